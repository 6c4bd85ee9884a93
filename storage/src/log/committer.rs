//! The one thread that writes the log.

use std::sync::atomic::Ordering;

use celeris_model::Sequence;

use super::Shared;
use super::queue::{Group, Prepared, Work};
use crate::database::{Batch, Column, Durability};
use crate::error::StorageError;
use crate::watermark::Watermark;
use crate::{envelope, history, keys};

/// Commits group after group until the queue is closed and empty. After a failure it only drains.
pub(super) fn run(shared: &Shared) {
    let _guard = PoisonOnPanic(shared);
    while let Some(mut group) = shared.queue.take() {
        if shared.progress.health().is_err() {
            continue;
        }
        match write(shared, &mut group) {
            Ok(bytes) => publish(shared, &group, bytes),
            Err(error) => shared.progress.poison(&error.to_string()),
        }
    }
}

/// Nobody may wait for ever for a committer that is gone.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.progress.poison("the log's committer panicked");
        }
    }
}

/// Writes and syncs; returns the bytes handed to RocksDB.
fn write(shared: &Shared, group: &mut Group) -> Result<usize, StorageError> {
    let mut batch = shared.database.batch();
    for work in &mut group.work {
        match work {
            Work::Append { sequence, prepared } => put_record(&mut batch, *sequence, prepared),
            Work::DeleteStream(stream) => {
                let prefix = keys::of_stream(stream);
                for column in [Column::Log, Column::History, Column::ObservationIds] {
                    batch.delete_prefix(column, &prefix);
                }
            }
        }
    }
    let bytes = batch.bytes();
    batch.commit(Durability::Synced)?;
    Ok(bytes)
}

fn put_record(batch: &mut Batch, sequence: Sequence, prepared: &mut Prepared) {
    let key = keys::log(&prepared.stream, prepared.partition, sequence);
    envelope::seal(&key, &mut prepared.value);
    batch.put(Column::Log, &key, &prepared.value);
    batch.put(Column::History, &prepared.indexed.history_key, &history::encode_sequence(sequence));
    if let Some(id_key) = &prepared.indexed.id_key {
        batch.put(Column::ObservationIds, id_key, &history::encode_place(prepared.partition, sequence));
    }
    for (key, value) in &prepared.indexed.frozen {
        batch.put(Column::Frozen, key, value);
    }
}

/// Tells the world that a group is durable.
fn publish(shared: &Shared, group: &Group, bytes: usize) {
    let mut records = 0;
    {
        let mut watermarks = shared.watermarks.write();
        for work in &group.work {
            match work {
                Work::Append { sequence, prepared } => {
                    records += 1;
                    if !watermarks.contains_key(&prepared.stream) {
                        watermarks.insert(prepared.stream.clone(), Watermark::start());
                    }
                    if let Some(watermark) = watermarks.get_mut(&prepared.stream) {
                        watermark.set(prepared.partition, *sequence);
                    }
                }
                Work::DeleteStream(stream) => {
                    watermarks.remove(stream);
                }
            }
        }
    }
    shared.commits.fetch_add(1, Ordering::Relaxed);
    shared.records.fetch_add(records, Ordering::Relaxed);
    shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    shared.progress.advance(group.position);
    for work in &group.work {
        if let Work::Append { prepared: Prepared { indexed, .. }, .. } = work
            && let Some(key) = &indexed.id_key
        {
            shared.pending.committed(key);
        }
    }
}
