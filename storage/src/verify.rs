//! The full read at open: every block and every sealed value of the main database is checked before it is served.
//!
//! Checking is bound by the processor (checksums, decompression), so the key space is cut into pieces and all
//! processors take part.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use celeris_model::ids::PARTITIONS;
use celeris_model::{Partition, Sequence, StreamName};
use parking_lot::Mutex;

use crate::database::{Access, Column, Database, END, KeyRange};
use crate::envelope::{corrupt, unseal};
use crate::error::StorageError;
use crate::keys::{self, KeyReader, after_prefix};
use crate::watermark::Watermark;

/// Pieces that a stream's part of a large column is cut into: enough that no processor is left with a long last one.
const PIECES_PER_STREAM: u8 = 16;

type Watermarks = HashMap<StreamName, Watermark>;

/// The last sequences of every stream, after reading everything.
///
/// RocksDB checks a block when it reads it, so a damaged one is found here and not on the day it is asked for. The
/// log's sequences must also count up from 1 without a gap: a lost file is found even where no block is wrong.
///
/// # Errors
/// `CorruptLog` for a bad block, `Corrupt` for a bad value or a gap.
pub(crate) fn verify(database: &Database) -> Result<Watermarks, StorageError> {
    let started = Instant::now();
    let mut pieces = Vec::new();
    for column in database.columns() {
        pieces.extend(cut(database, *column)?.into_iter().map(|range| (*column, range)));
    }
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(Ok(Watermarks::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(pieces.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((column, range)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match check(database, *column, range.clone()) {
                        Ok(found) => merge(&outcome, &found),
                        Err(error) => {
                            *outcome.lock() = Err(error);
                            // Nobody need begin another piece.
                            next.store(pieces.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let watermarks = outcome.into_inner()?;
    let records: u64 = watermarks.values().map(Watermark::records).sum();
    tracing::info!(records, threads, seconds = started.elapsed().as_secs_f64(), "log verified");
    Ok(watermarks)
}

/// Adds what one piece has found; a failure that is there already stays.
fn merge(outcome: &Mutex<Result<Watermarks, StorageError>>, found: &Watermarks) {
    let mut outcome = outcome.lock();
    let Ok(watermarks) = &mut *outcome else { return };
    for (stream, watermark) in found {
        watermarks.entry(stream.clone()).or_insert_with(Watermark::start).join(watermark);
    }
}

/// Ranges that cover the whole column, in key order. No partition of the log lies in two.
fn cut(database: &Database, column: Column) -> Result<Vec<KeyRange>, StorageError> {
    let mut bounds = vec![Vec::new()];
    if matches!(column, Column::Log | Column::History | Column::ObservationIds) {
        // Behind the stream's name there is a partition, or the first byte of a hash.
        let values = if column == Column::ObservationIds { 1 << u8::BITS } else { u16::from(PARTITIONS) };
        let mut from = Vec::new();
        while let Some(prefix) = stream_prefix(database, column, from)? {
            bounds.extend((0..PIECES_PER_STREAM).map(|piece| {
                let first = u16::from(piece) * values / u16::from(PIECES_PER_STREAM);
                let mut bound = prefix.clone();
                bound.push(u8::try_from(first).expect("less than the number of values of a byte"));
                bound
            }));
            from = after_prefix(prefix);
        }
    }
    bounds.push(END.to_vec());
    Ok(bounds.windows(2).map(|pair| KeyRange { from: pair[0].clone(), to: pair[1].clone() }).collect())
}

/// The part of the first key at or after `from` that names its stream.
fn stream_prefix(database: &Database, column: Column, from: Vec<u8>) -> Result<Option<Vec<u8>>, StorageError> {
    let mut prefix = None;
    database.scan(column, KeyRange::from(from), Access::Lookup, |key, _| {
        let stream = KeyReader::new(key).text().and_then(|stream| StreamName::new(stream).ok());
        prefix = Some(keys::of_stream(&stream.ok_or_else(|| corrupt(column, key, "its key names no stream"))?));
        Ok(ControlFlow::Break(()))
    })?;
    Ok(prefix)
}

/// Reads one piece.
fn check(database: &Database, column: Column, range: KeyRange) -> Result<Watermarks, StorageError> {
    let mut log = LogCheck::default();
    database.scan(column, range, Access::Sweep, |key, value| {
        if column == Column::Log {
            log.visit(key, value)?;
        } else if column.is_sealed() {
            unseal(column, key, value)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    log.leave();
    Ok(log.watermarks)
}

#[derive(Default)]
struct LogCheck {
    watermarks: Watermarks,
    /// Where the read is.
    place: Option<Place>,
}

struct Place {
    stream: StreamName,
    partition: Partition,
    last: u64,
    /// The key's bytes before the sequence.
    prefix: Vec<u8>,
}

impl LogCheck {
    fn visit(&mut self, key: &[u8], value: &[u8]) -> Result<(), StorageError> {
        unseal(Column::Log, key, value)?;
        let bad_key = || corrupt(Column::Log, key, "its key is not that of a record");
        if !self.place.as_ref().is_some_and(|place| key.starts_with(&place.prefix)) {
            self.leave();
            self.place = Some(Place::of(key).ok_or_else(bad_key)?);
        }
        let place = self.place.as_mut().ok_or_else(bad_key)?;
        let mut rest = KeyReader::new(&key[place.prefix.len()..]);
        let sequence = rest.number().filter(|_| rest.is_empty()).ok_or_else(bad_key)?;
        place.last += 1;
        if sequence != place.last {
            let reason = format!("record {} of its partition is missing before it", place.last);
            return Err(corrupt(Column::Log, key, &reason));
        }
        Ok(())
    }

    /// Notes how far the partition went that the read has just left.
    fn leave(&mut self) {
        if let Some(Place { stream, partition, last, .. }) = self.place.take() {
            self.watermarks.entry(stream).or_insert_with(Watermark::start).set(partition, Sequence(last));
        }
    }
}

impl Place {
    /// Before the first record of the partition that `key` is in.
    fn of(key: &[u8]) -> Option<Self> {
        let mut reader = KeyReader::new(key);
        let stream = StreamName::new(reader.text()?).ok()?;
        let partition = Partition::from_index(reader.byte()?)?;
        let mut prefix = keys::of_stream(&stream);
        prefix.push(partition.index());
        Some(Self { stream, partition, last: 0, prefix })
    }
}
