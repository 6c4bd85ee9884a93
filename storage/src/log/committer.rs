//! The thread that writes the log.

use std::sync::atomic::Ordering;

use celeris_model::{Sequence, StreamName};

use super::Shared;
use super::checkpoints::{self, CHECKPOINT_BYTES};
use super::erasures::{self, Erasure};
use super::queue::{Amendment, Change, ErasureDraft, Group, Prepared, Work};
use super::reading;
use super::scrub::{self, Cause, Unscrubbed};
use super::watermark::Watermark;
use crate::database::{Batch, Column, Durability};
use crate::error::StorageError;
use crate::faults;
use crate::layout::{envelope, event, keys};

/// Commits groups until the queue is closed and empty. After a failure it only drains the queue.
pub(super) fn run(shared: &Shared) {
    let _guard = PoisonOnPanic(shared);
    let mut group = Group::default();
    let mut scratch = Scratch::default();
    while shared.queue.take(&mut group) {
        if shared.progress.health().is_err() {
            continue;
        }
        shared.space.look();
        faults::reach_in(shared.database.path(), "commit");
        match write(shared, &group, &mut scratch) {
            Ok(bytes) => publish(shared, &group, bytes),
            Err(error) => shared.progress.poison(&error.to_string()),
        }
    }
}

/// Poisons the log if the committer panics, so that no request waits for it forever.
struct PoisonOnPanic<'a>(&'a Shared);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.progress.poison("the log's committer panicked");
        }
    }
}

/// Writes and syncs a group; returns the bytes passed to RocksDB.
fn write(shared: &Shared, group: &Group, scratch: &mut Scratch) -> Result<usize, StorageError> {
    let mut batch = shared.database.batch_of(group.bytes + BATCH_BYTES_PER_WORK * group.work.len());
    if scratch.since_checkpoint >= CHECKPOINT_BYTES {
        // First, with positions that are durable already: the deletion of a stream in this group
        // also deletes its checkpoint.
        checkpoints::put(&mut batch, &shared.watermarks.read());
        scratch.since_checkpoint = 0;
    }
    for run in group.work.chunk_by(|a, b| a.is_append() && b.is_append()) {
        match run {
            [Work::DeleteStream(stream)] => delete_stream(&mut batch, stream),
            [Work::Change(change)] => put_change(&mut batch, change),
            appends => put_records(&mut batch, appends, scratch),
        }
    }
    let bytes = batch.bytes();
    batch.commit(Durability::Synced)?;
    scratch.since_checkpoint += bytes;
    Ok(bytes)
}

/// Overhead in addition to keys and values: tags and lengths, the log's key and the seal.
const BATCH_BYTES_PER_WORK: usize = 64;

fn delete_stream(batch: &mut Batch, stream: &StreamName) {
    let prefix = keys::of_stream(stream);
    for column in [Column::Log, Column::History, Column::ObservationIds, Column::Snapshots] {
        batch.delete_prefix(column, &prefix);
    }
    batch.delete(Column::Checkpoints, &prefix);
    batch.delete_prefix(Column::Erasures, &keys::erased_users_of(stream));
    batch.delete_prefix(Column::Erasures, &keys::erasures_of(stream));
}

/// Buffers reused between groups.
#[derive(Default)]
struct Scratch {
    /// Indices into the group, in the order of one column's keys.
    order: Vec<usize>,
    value: Vec<u8>,
    /// Bytes written since the last checkpoint.
    since_checkpoint: usize,
}

/// Writes column by column and in key order, because a sorted run is inserted into RocksDB's skip
/// list several times faster than keys in the order of arrival. Amendments come last: they may
/// replace earlier records of the same group.
fn put_records(batch: &mut Batch, appends: &[Work], Scratch { order, value, .. }: &mut Scratch) {
    let append = |at: usize| match &appends[at] {
        Work::Append { sequence, prepared } => (*sequence, prepared),
        Work::DeleteStream(_) | Work::Change(_) => unreachable!("a run of appends"),
    };
    order.clear();
    order.extend(0..appends.len());
    order.sort_by_key(|at| {
        let (sequence, prepared) = append(*at);
        (prepared.stream.as_str(), prepared.partition, sequence)
    });
    for (sequence, prepared) in order.iter().map(|at| append(*at)) {
        let key = keys::log(&prepared.stream, prepared.partition, sequence);
        value.clear();
        value.extend_from_slice(prepared.encoded.value());
        envelope::seal(&key, value);
        batch.put(Column::Log, &key, value);
    }
    order.sort_by_key(|at| append(*at).1.encoded.history().map(|entry| entry.key));
    for (sequence, prepared) in order.iter().map(|at| append(*at)) {
        if let Some(entry) = prepared.encoded.history() {
            value.clear();
            event::put_entry(sequence, entry.event, value);
            batch.put(Column::History, entry.key, value);
        }
    }
    order.retain(|at| append(*at).1.id.is_some());
    order.sort_by_key(|at| (append(*at).1.stream.as_str(), append(*at).1.id));
    for (sequence, prepared) in order.iter().map(|at| append(*at)) {
        let Some(id) = prepared.id else { continue };
        let key = keys::observation_id(&prepared.stream, id);
        batch.put(Column::ObservationIds, &key, &reading::encode_place(prepared.partition, sequence));
    }
    for (sequence, prepared) in (0..appends.len()).map(append) {
        for (key, value) in &prepared.frozen {
            batch.put(Column::Frozen, key, value);
        }
        if let Some(key) = &prepared.item {
            batch.put(Column::ObservedItems, key, &[]);
        }
        if let Some(amendment) = &prepared.amendment {
            put_amendment(batch, sequence, prepared, amendment);
        }
    }
}

fn put_change(batch: &mut Batch, change: &Change) {
    match change {
        Change::Put(column, key, value) => batch.put(*column, key, value),
        Change::Delete(column, key) => batch.delete(*column, key),
        Change::DeletePrefix(column, prefix) => batch.delete_prefix(*column, prefix),
    }
}

fn put_amendment(batch: &mut Batch, at: Sequence, prepared: &Prepared, amendment: &Amendment) {
    for change in &amendment.changes {
        put_change(batch, change);
    }
    let (stream, partition) = (&prepared.stream, prepared.partition);
    if let Some(ErasureDraft { first, timestamp, observations }) = amendment.erasure {
        let erasure = Erasure { partition, first: first.unwrap_or(at), at, timestamp, observations };
        let (key, value) = erasures::encode(stream, &erasure);
        batch.put(Column::Erasures, &key, &value);
    }
    if let Some(note) = unscrubbed(at, prepared, amendment) {
        let (key, value) = scrub::encode(&note);
        batch.put(Column::Erasures, &key, &value);
    }
}

/// The range that an amendment leaves to be scrubbed.
fn unscrubbed(at: Sequence, prepared: &Prepared, amendment: &Amendment) -> Option<Unscrubbed> {
    let first = amendment.scrub_from?;
    let cause = if amendment.erasure.is_some() { Cause::Erasure } else { Cause::Retraction };
    Some(Unscrubbed { stream: prepared.stream.clone(), partition: prepared.partition, first, at, cause })
}

/// Publishes that a group is durable.
fn publish(shared: &Shared, group: &Group, bytes: usize) {
    let mut records = 0;
    {
        let mut watermarks = shared.watermarks.write();
        for run in group.work.chunk_by(|a, b| a.stream() == b.stream() && a.is_append() && b.is_append()) {
            let [first, ..] = run else { continue };
            let Some(stream) = first.stream() else { continue };
            if !first.is_append() {
                watermarks.remove(stream);
                continue;
            }
            let watermark = watermarks.entry(stream.clone()).or_insert_with(Watermark::start);
            for work in run {
                if let Work::Append { sequence, prepared } = work {
                    watermark.set(prepared.partition, *sequence);
                    records += 1;
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
        if let Some(id) = prepared.id {
            shared.pending.committed(id);
        }
        let Some(amendment) = &prepared.amendment else { continue };
        if let Some(note) = unscrubbed(*sequence, prepared, amendment) {
            shared.scrubber.add(note);
        }
    }
}
