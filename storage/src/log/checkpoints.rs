//! Checkpoints of the log, so that opening the store need not read all of it.
//!
//! A *checkpoint* is a stream's watermark. After every [`CHECKPOINT_BYTES`] of the log, the
//! committer adds checkpoints of all streams to the next batch; closing the store writes them once
//! more. A checkpoint states that its records exist: they were durable when it was written, and it
//! is in the same write-ahead log, so no crash leaves it without them. On opening, the last record of each checkpoint
//! is looked up, and all records after it are checked. No marker distinguishes a clean stop from a
//! crash; they differ only in the number of records after the checkpoint: none, or at most those
//! between two checkpoints.

use std::collections::HashMap;
use std::ops::ControlFlow;

use celeris_model::{Partition, Sequence, StreamName};

use super::check::LogCheck;
use super::watermark::Watermark;
use crate::database::{Access, Batch, Column, Database, Durability, KeyRange, after_prefix};
use crate::error::StorageError;
use crate::layout::envelope::{begin, corrupt, seal, unseal};
use crate::layout::keys::{self, KeyReader};
use celeris_model::wire::{Reader, Writer};

/// Bytes of the log, including indexes, between two checkpoints: the amount that opening checks
/// after a crash.
pub(super) const CHECKPOINT_BYTES: usize = 32 << 20;

pub(crate) type Watermarks = HashMap<StreamName, Watermark>;

/// Adds checkpoints of all streams to `batch`.
pub(super) fn put(batch: &mut Batch, watermarks: &Watermarks) {
    for (stream, watermark) in watermarks {
        let key = keys::of_stream(stream);
        let value = encode(&key, watermark);
        batch.put(Column::Checkpoints, &key, &value);
    }
}

/// Writes the checkpoints of all streams, unless they are on disk already.
///
/// # Errors
/// `Corrupt`, `CorruptLog` or `Database`.
pub(crate) fn write(database: &Database, watermarks: &Watermarks) -> Result<(), StorageError> {
    if read(database)? == *watermarks {
        return Ok(());
    }
    let mut batch = database.batch();
    put(&mut batch, watermarks);
    batch.commit(Durability::Synced)
}

/// Returns the last sequences of every stream. Reads and checks only the records after the
/// checkpoints.
///
/// # Errors
/// `Corrupt` if a record is damaged or missing; `CorruptLog` or `Database`.
pub(crate) fn recover(database: &Database) -> Result<Watermarks, StorageError> {
    let mut watermarks = read(database)?;
    for stream in streams(database)? {
        watermarks.entry(stream).or_insert_with(Watermark::start);
    }
    let mut checked = 0;
    for (stream, watermark) in &mut watermarks {
        for partition in Partition::all() {
            let known = watermark.get(partition);
            let last = last_after(database, stream, partition, known)?;
            checked += last.0 - known.0;
            watermark.set(partition, last);
        }
    }
    let records: u64 = watermarks.values().map(Watermark::records).sum();
    tracing::info!(records, checked, "log recovered");
    Ok(watermarks)
}

fn read(database: &Database) -> Result<Watermarks, StorageError> {
    let mut watermarks = Watermarks::new();
    let everything = KeyRange::from(Vec::new());
    database.scan(Column::Checkpoints, everything, Access::Lookup, |key, value| {
        let found = decode(key, unseal(Column::Checkpoints, key, value)?);
        watermarks
            .extend([found.ok_or_else(|| corrupt(Column::Checkpoints, key, "it is not a watermark of a stream"))?]);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(watermarks)
}

/// The streams that have records, including those created after the last checkpoint.
fn streams(database: &Database) -> Result<Vec<StreamName>, StorageError> {
    let mut streams = Vec::new();
    let mut from = Vec::new();
    loop {
        let mut next = None;
        database.scan(Column::Log, KeyRange::from(from), Access::Lookup, |key, _| {
            let stream = KeyReader::new(key).text().and_then(|stream| StreamName::new(stream).ok());
            next = Some(stream.ok_or_else(|| corrupt(Column::Log, key, "its key names no stream"))?);
            Ok(ControlFlow::Break(()))
        })?;
        let Some(stream) = next else { return Ok(streams) };
        from = after_prefix(keys::of_stream(&stream));
        streams.push(stream);
    }
}

/// The last sequence of a partition whose record `known` was durable; 0 for an empty partition.
fn last_after(
    database: &Database,
    stream: &StreamName,
    partition: Partition,
    known: Sequence,
) -> Result<Sequence, StorageError> {
    let prefix = keys::of_partition(stream, partition);
    let from = if known.0 == 0 { prefix.clone() } else { keys::log(stream, partition, known) };
    let mut log = LogCheck::from(&from);
    let range = KeyRange { to: after_prefix(prefix), from: from.clone() };
    database.scan(Column::Log, range, Access::Lookup, |key, value| {
        log.visit(key, value)?;
        Ok(ControlFlow::Continue(()))
    })?;
    if log.last() < known {
        return Err(corrupt(Column::Log, &from, "the record is missing, and it was durable"));
    }
    Ok(log.last())
}

/// Encodes the sequences of all partitions, in order.
fn encode(key: &[u8], watermark: &Watermark) -> Vec<u8> {
    let mut value = Writer(begin());
    for partition in Partition::all() {
        value.varint(watermark.get(partition).0);
    }
    seal(key, &mut value.0);
    value.0
}

fn decode(key: &[u8], body: &[u8]) -> Option<(StreamName, Watermark)> {
    let mut key = KeyReader::new(key);
    let stream = StreamName::new(key.text()?).ok()?;
    let mut body = Reader(body);
    let mut watermark = Watermark::start();
    for partition in Partition::all() {
        watermark.set(partition, Sequence(body.varint()?));
    }
    (key.is_empty() && body.0.is_empty()).then_some((stream, watermark))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::path::Path;

    use celeris_model::{Record, RecordKind, Timestamp, UserEpoch, UserId};

    use super::*;
    use crate::{AckMode, Append, Appended, Placed, Storage, StorageOptions};

    fn films() -> StreamName {
        StreamName::new("films").unwrap()
    }

    fn user() -> UserId {
        UserId::new("u").unwrap()
    }

    fn open(dir: &Path) -> Result<Storage, StorageError> {
        Storage::open(dir, &StorageOptions::default())
    }

    fn append(storage: &Storage, epoch: u64, feedback: &str) -> Placed {
        let record = Record {
            kind: RecordKind::Observe,
            user: user(),
            user_epoch: UserEpoch(epoch),
            item: None,
            label: 1.0,
            weight: 1.0,
            feedback: Some(feedback.to_owned()),
            timestamp: Timestamp(0),
            observation_id: None,
            decision: None,
            context: None,
            predictions: Vec::new(),
            first_label: None,
            targets: Vec::new(),
        };
        match storage
            .log()
            .append(Append {
                stream: films(),
                record,
                frozen: Vec::new(),
                notes_item: false,
                source: None,
                ack: AckMode::Wait,
            })
            .unwrap()
        {
            Appended::New(placed) => placed,
            Appended::Existing(existing) => panic!("{existing:?} was there already"),
        }
    }

    /// Closes a store with ten records of one partition and opens it again.
    async fn ten_records(dir: &Path) -> Storage {
        let storage = open(dir).unwrap();
        for epoch in 1..=10 {
            append(&storage, epoch, "").durable().await.unwrap();
        }
        drop(storage);
        open(dir).unwrap()
    }

    /// Deletes a record, which no crash can do.
    fn lose(storage: &Storage, sequence: u64) {
        let mut batch = storage.database().batch();
        batch.delete(Column::Log, &keys::log(&films(), Partition::of(&user()), Sequence(sequence)));
        batch.commit(Durability::Synced).unwrap();
    }

    #[tokio::test]
    async fn opening_requires_the_record_of_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let storage = ten_records(dir.path()).await;
        lose(&storage, 10);
        drop(storage);
        let refused = open(dir.path()).err().unwrap();
        assert!(matches!(refused, StorageError::Corrupt { column: "log", .. }), "{refused}");
    }

    #[tokio::test]
    async fn a_gap_is_found_by_opening_after_the_checkpoint_and_by_verification_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let storage = ten_records(dir.path()).await;
        lose(&storage, 4);
        drop(storage);
        let storage = open(dir.path()).unwrap();
        let found = storage.verify().unwrap_err();
        assert!(found.to_string().contains("record 4 of its partition is missing"), "{found}");
        drop(storage);
        assert!(open(dir.path()).is_err(), "the damage is recorded");

        let dir = tempfile::tempdir().unwrap();
        let storage = ten_records(dir.path()).await;
        append(&storage, 11, "").durable().await.unwrap();
        append(&storage, 12, "").durable().await.unwrap();
        lose(&storage, 11);
        // A poisoned log writes no checkpoint on closing.
        storage.poison("a test ends it without a clean stop");
        drop(storage);
        let refused = open(dir.path()).err().unwrap();
        assert!(refused.to_string().contains("record 11 of its partition is missing"), "{refused}");
    }

    #[tokio::test]
    async fn checkpoints_follow_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path()).unwrap();
        let feedback = "x".repeat(60_000);
        let records = CHECKPOINT_BYTES as u64 / 60_000 * 9 / 8;
        let placed: Vec<_> = (1..=records).map(|epoch| append(&storage, epoch, &feedback)).collect();
        for placed in placed {
            placed.durable().await.unwrap();
        }
        let kept = read(storage.database()).unwrap();
        let (kept, last) = (kept[&films()].records(), storage.log().watermark(&films()).records());
        assert!(last - kept < last / 4, "{kept} of {last}");
    }

    #[test]
    fn checkpoints_keep_their_stored_format() {
        let stream = StreamName::new("films").unwrap();
        let mut watermark = Watermark::start();
        watermark.set(Partition::from_index(0).unwrap(), Sequence(300));
        watermark.set(Partition::from_index(63).unwrap(), Sequence(1));
        let key = keys::of_stream(&stream);
        let value = encode(&key, &watermark);
        let body = unseal(Column::Checkpoints, &key, &value).unwrap();
        assert_eq!(keys::hex(body), format!("ac02{}01", "00".repeat(62)));
        assert_eq!(decode(&key, body), Some((stream, watermark)));
        assert_eq!(decode(&key, &body[..body.len() - 1]), None);
    }
}
