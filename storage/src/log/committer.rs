//! The thread that writes the log of a shard during a term.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use celeris_model::{Sequence, Shard};
use tracing::Span;

use super::Records;
use super::checkpoints::{self, CHECKPOINT_BYTES};
use super::commit::{Commit, CommitError};
use super::erasures::{self, Erasure};
use super::positions;
use super::progress::End;
use super::queue::{Amendment, ErasureDraft, Group, Prepared, Work};
use super::reading;
use super::scrub::{self, Cause, Unscrubbed};
use super::shard::Term;
use super::watermark::Watermark;
use crate::database::{Batch, Column};
use crate::faults;
use crate::layout::{envelope, event, keys};
use crate::spans::SPANS;

/// Commits the groups of a term.
pub(super) struct Committer {
    records: Arc<Records>,
    shard: Shard,
    term: Arc<Term>,
    commit: Box<dyn Commit>,
    scratch: Scratch,
}

impl Committer {
    pub(super) fn new(records: Arc<Records>, shard: Shard, term: Arc<Term>, commit: Box<dyn Commit>) -> Self {
        Self { records, shard, term, commit, scratch: Scratch::default() }
    }

    /// Commits groups until the queue is closed and empty. After the end of the term it only drains
    /// the queue.
    pub(super) fn run(mut self) {
        let records = Arc::clone(&self.records);
        let term = Arc::clone(&self.term);
        let _guard = PoisonOnPanic { records: &records, term: &term };
        let (mut group, mut last) = (Group::default(), Duration::ZERO);
        while term.queue.take(&mut group, self.commit.patience(last)) {
            let started = Instant::now();
            if let Err(error) = records.health.check() {
                term.progress.end(End::Poisoned(error.to_string().into()));
            }
            if term.progress.check().is_err() {
                continue;
            }
            records.space.look();
            faults::reach_in(records.database.path(), "commit");
            let written = commit_span(&group).in_scope(|| self.write(&group));
            match written {
                Ok(bytes) => {
                    last = started.elapsed();
                    metrics::histogram!("celeris_log_commit_seconds").record(last.as_secs_f64());
                    publish(&records, &group, bytes);
                    term.committed(&group);
                }
                Err(CommitError::Fenced) => term.progress.end(End::Fenced),
                Err(CommitError::Stopped { reason }) => term.progress.end(End::Poisoned(reason.into())),
                Err(CommitError::Failed(error)) => {
                    let cause = error.to_string();
                    records.health.poison(&cause);
                    term.progress.end(End::Poisoned(cause.into()));
                }
            }
        }
    }

    /// Makes a group durable; returns the bytes passed to RocksDB.
    fn write(&mut self, group: &Group) -> Result<usize, CommitError> {
        let batch = batch_of(&self.records, self.shard, group, &mut self.scratch);
        let bytes = batch.bytes();
        self.commit.commit(group, batch)?;
        Ok(bytes)
    }
}

/// The span of the write of a group: below that of the first traced caller, and with links to the others. Of those that
/// share a write, one trace has it.
fn commit_span(group: &Group) -> Span {
    let [first, others @ ..] = &*group.traced else { return Span::none() };
    let span = first.in_scope(|| {
        tracing::info_span!(target: SPANS, "log.commit", celeris.records = group.work.len(), celeris.bytes = group.bytes)
    });
    for other in others {
        span.follows_from(other);
    }
    span
}

/// Poisons the log if the committer panics, so that no request waits for it forever.
struct PoisonOnPanic<'a> {
    records: &'a Records,
    term: &'a Term,
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let cause = "the log's committer panicked";
            self.records.health.poison(cause);
            self.term.progress.end(End::Poisoned(cause.into()));
        }
    }
}

impl Term {
    /// Publishes that a group is durable.
    fn committed(&self, group: &Group) {
        self.progress.advance(group.position);
        for work in &group.work {
            if let Work::Append { prepared: Prepared { id: Some(id), .. }, .. } = work {
                self.pending.committed(*id);
            }
        }
    }
}

/// The writes of a group of a shard.
pub(super) fn batch_of<'r>(records: &'r Records, shard: Shard, group: &Group, scratch: &mut Scratch) -> Batch<'r> {
    let mut batch = records.database.batch_of(group.bytes + BATCH_BYTES_PER_WORK * group.work.len());
    if scratch.since_checkpoint >= CHECKPOINT_BYTES {
        // Of positions that are written already.
        checkpoints::put(&mut batch, &records.watermarks.read());
        scratch.since_checkpoint = 0;
    }
    for run in group.work.chunk_by(|a, b| a.is_append() && b.is_append()) {
        match run {
            [Work::Freeze(key, value)] => batch.put(Column::Frozen, key, value),
            [Work::Describe(key, Some(value))] => batch.put(Column::UserAttributes, key, value),
            [Work::Describe(key, None)] => batch.delete(Column::UserAttributes, key),
            [Work::Derived(change)] => batch.change(change),
            [Work::PassOver(_) | Work::NoteEnd] => {}
            appends => put_records(&mut batch, appends, scratch),
        }
    }
    positions::put_last(&mut batch, shard, group);
    scratch.since_checkpoint += batch.bytes();
    batch
}

/// Overhead in addition to keys and values: tags and lengths, the log's key and the seal.
const BATCH_BYTES_PER_WORK: usize = 64;

/// Buffers reused between groups.
#[derive(Default)]
pub(super) struct Scratch {
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
        Work::Freeze(..) | Work::Describe(..) | Work::PassOver(_) | Work::Derived(_) | Work::NoteEnd => {
            unreachable!("a run of appends")
        }
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
    let id_order = |at: &usize| {
        let prepared = append(*at).1;
        (prepared.stream.as_str(), prepared.partition, prepared.id)
    };
    order.sort_by(|a, b| id_order(a).cmp(&id_order(b)));
    for (sequence, prepared) in order.iter().map(|at| append(*at)) {
        let Some(id) = prepared.id else { continue };
        let key = keys::observation_id(&prepared.stream, prepared.partition, id);
        batch.put(Column::ObservationIds, &key, &reading::encode_sequence(sequence));
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

fn put_amendment(batch: &mut Batch, at: Sequence, prepared: &Prepared, amendment: &Amendment) {
    for change in &amendment.changes {
        batch.change(change);
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
    // An erasure without records may remove attributes, whose old bytes are in the same partition.
    let first = amendment.scrub_from.or(amendment.erasure.is_some().then_some(at))?;
    let cause = if amendment.erasure.is_some() { Cause::Erasure } else { Cause::Retraction };
    Some(Unscrubbed { stream: prepared.stream.clone(), partition: prepared.partition, first, at, cause })
}

/// Publishes the extent of a group that is in the log and in the database.
pub(super) fn publish(records: &Records, group: &Group, bytes: usize) {
    let mut count = 0;
    {
        let mut watermarks = records.watermarks.write();
        for run in group.work.chunk_by(|a, b| a.stream() == b.stream()) {
            let Some(stream) = run[0].stream() else { continue };
            let watermark = watermarks.entry(stream.clone()).or_insert_with(Watermark::start);
            for work in run {
                if let Work::Append { sequence, prepared } = work {
                    watermark.set(prepared.partition, *sequence);
                    count += 1;
                }
            }
        }
    }
    records.counters.commits.fetch_add(1, Ordering::Relaxed);
    records.counters.records.fetch_add(count, Ordering::Relaxed);
    records.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    for work in &group.work {
        let Work::Append { sequence, prepared } = work else { continue };
        let Some(amendment) = &prepared.amendment else { continue };
        if let Some(note) = unscrubbed(*sequence, prepared, amendment) {
            records.scrubber.add(note);
        }
    }
}
