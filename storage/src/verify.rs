//! The full read at open: every block and every sealed value of the main database is checked before it is served.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use celeris_model::{Partition, Sequence, StreamName};

use crate::database::{Column, Database};
use crate::envelope::{corrupt, unseal};
use crate::error::StorageError;
use crate::keys::KeyReader;
use crate::watermark::Watermark;

/// The last sequences of every stream, after reading everything.
///
/// RocksDB checks a block when it reads it, so a damaged one is found here and not on the day it is asked for. The
/// log's sequences must also count up from 1 without a gap: a lost file is found even where no block is wrong.
///
/// # Errors
/// `CorruptLog` for a bad block, `Corrupt` for a bad value or a gap.
pub(crate) fn verify(database: &Database) -> Result<HashMap<StreamName, Watermark>, StorageError> {
    let started = Instant::now();
    let mut log = LogCheck::default();
    database.sweep(Column::Log, |key, value| log.visit(key, value))?;
    log.leave();
    let records: u64 = log.watermarks.values().map(Watermark::records).sum();
    for column in database.columns().iter().filter(|column| **column != Column::Log) {
        database.sweep(*column, |key, value| {
            if column.is_sealed() {
                unseal(*column, key, value)?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    tracing::info!(records, seconds = started.elapsed().as_secs_f64(), "log verified");
    Ok(log.watermarks)
}

#[derive(Default)]
struct LogCheck {
    watermarks: HashMap<StreamName, Watermark>,
    /// Where the read is.
    place: Option<(StreamName, Partition, u64)>,
}

impl LogCheck {
    fn visit(&mut self, key: &[u8], value: &[u8]) -> Result<ControlFlow<()>, StorageError> {
        unseal(Column::Log, key, value)?;
        let (stream, partition, sequence) =
            parse(key).ok_or_else(|| corrupt(Column::Log, key, "its key is not that of a record"))?;
        let expected = match &mut self.place {
            Some((name, at, last)) if *at == partition && name.as_str() == stream => {
                *last += 1;
                *last
            }
            _ => {
                self.leave();
                let name = StreamName::new(stream).map_err(|error| corrupt(Column::Log, key, &error.to_string()))?;
                self.place = Some((name, partition, 1));
                1
            }
        };
        if sequence != expected {
            return Err(corrupt(Column::Log, key, &format!("record {expected} of its partition is missing before it")));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Notes how far the partition went that the read has just left.
    fn leave(&mut self) {
        if let Some((stream, partition, last)) = self.place.take() {
            self.watermarks.entry(stream).or_insert_with(Watermark::start).set(partition, Sequence(last));
        }
    }
}

fn parse(key: &[u8]) -> Option<(&str, Partition, u64)> {
    let mut reader = KeyReader::new(key);
    let parsed = (reader.text()?, Partition::from_index(reader.byte()?)?, reader.number()?);
    reader.is_empty().then_some(parsed)
}
