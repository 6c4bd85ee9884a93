//! The one thread that writes the log.

use std::sync::atomic::Ordering;

use celeris_model::Sequence;

use super::Shared;
use super::queue::{Amendment, Change, ErasureDraft, Group, Indexed, Prepared, Work};
use crate::database::{Batch, Column, Durability};
use crate::erasures::{self, Erasure};
use crate::error::StorageError;
use crate::scrub::{self, Unscrubbed};
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
                batch.delete_prefix(Column::Erasures, &keys::erased_users_of(stream));
                batch.delete_prefix(Column::Erasures, &keys::erasures_of(stream));
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
    let Indexed { history_key, id, frozen, amendment } = &prepared.indexed;
    if let Some(history_key) = history_key {
        batch.put(Column::History, history_key, &history::encode_sequence(sequence));
    }
    if let Some(id) = *id {
        let key = keys::observation_id(&prepared.stream, id);
        batch.put(Column::ObservationIds, &key, &history::encode_place(prepared.partition, sequence));
    }
    for (key, value) in frozen {
        batch.put(Column::Frozen, key, value);
    }
    if let Some(amendment) = amendment {
        put_amendment(batch, sequence, prepared, amendment);
    }
}

fn put_amendment(batch: &mut Batch, at: Sequence, prepared: &Prepared, amendment: &Amendment) {
    for change in &amendment.changes {
        match change {
            Change::Put(column, key, value) => batch.put(*column, key, value),
            Change::Delete(column, key) => batch.delete(*column, key),
        }
    }
    let (stream, partition) = (&prepared.stream, prepared.partition);
    if let Some(ErasureDraft { first, timestamp, observations }) = amendment.erasure {
        let erasure = Erasure { partition, first: first.unwrap_or(at), at, timestamp, observations };
        let (key, value) = erasures::encode(stream, &erasure);
        batch.put(Column::Erasures, &key, &value);
    }
    if let Some(first) = amendment.scrub_from {
        let (key, value) = scrub::encode(&Unscrubbed { stream: stream.clone(), partition, first, at });
        batch.put(Column::Erasures, &key, &value);
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
        let Work::Append { sequence, prepared } = work else { continue };
        if let Some(id) = prepared.indexed.id {
            shared.pending.committed(id);
        }
        if let Some(first) = prepared.indexed.amendment.as_ref().and_then(|amendment| amendment.scrub_from) {
            let (stream, partition) = (prepared.stream.clone(), prepared.partition);
            shared.scrubber.add(Unscrubbed { stream, partition, first, at: *sequence });
        }
    }
}
