//! The bounded queue between appenders and the committer of a shard, which also assigns the
//! sequences.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_model::{ObservationId, Partition, Sequence, StreamName, Timestamp};
use parking_lot::{Condvar, Mutex};
use tracing::Span;

use super::AckMode;
use super::checkpoints::Watermarks;
use super::positions::SourcePosition;
use super::progress::{CommitPosition, Placed, Progress, Ticket};
use super::watermark::Watermark;
use crate::database::Change;
use crate::error::StorageError;
use crate::layout::hashing::IdHash;
use crate::options::StorageOptions;
use crate::spans;

/// A record that is complete except for its sequence.
pub(super) struct Prepared {
    pub(super) stream: StreamName,
    pub(super) partition: Partition,
    pub(super) encoded: Encoded,
    /// The hash of its client-given id.
    pub(super) id: Option<IdHash>,
    /// Keys and values of `frozen` entries.
    pub(super) frozen: Vec<(Vec<u8>, Vec<u8>)>,
    /// Key of the `observed_items` entry to write.
    pub(super) item: Option<Vec<u8>>,
    /// The message that it was in.
    pub(super) source: Option<SourcePosition>,
    pub(super) amendment: Option<Box<Amendment>>,
}

impl Prepared {
    pub(super) fn bytes(&self) -> usize {
        let frozen: usize = self.frozen.iter().map(|(key, value)| key.len() + value.len()).sum();
        let id = self.id.map_or(0, |_| IdHash::BYTES);
        let item = self.item.as_ref().map_or(0, Vec::len);
        let source = self.source.as_ref().map_or(0, SourcePosition::bytes);
        self.encoded.bytes.len()
            + id
            + frozen
            + item
            + source
            + self.amendment.as_ref().map_or(0, |amendment| amendment.bytes())
    }
}

/// A record and its history entry, except for the sequence: in one allocation, since it is
/// allocated and freed by different threads.
#[derive(Clone)]
pub(super) struct Encoded {
    bytes: Arc<[u8]>,
    /// End of the record.
    value: usize,
    /// End of the history entry's key.
    key: usize,
}

impl Encoded {
    pub(super) fn new(mut value: Vec<u8>, history: Option<HistoryEntry<'_>>) -> Self {
        let record = value.len();
        let HistoryEntry { key, event } = history.unwrap_or(HistoryEntry { key: &[], event: &[] });
        value.extend_from_slice(key);
        value.extend_from_slice(event);
        Self { bytes: value.into(), value: record, key: record + key.len() }
    }

    /// The encoded record, not sealed yet.
    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[..self.value]
    }

    /// `None` for an erasure, which has no history entry.
    pub(super) fn history(&self) -> Option<HistoryEntry<'_>> {
        let entry = HistoryEntry { key: &self.bytes[self.value..self.key], event: &self.bytes[self.key..] };
        (!entry.key.is_empty()).then_some(entry)
    }
}

/// A history entry that is complete except for the sequence.
#[derive(Clone, Copy)]
pub(super) struct HistoryEntry<'a> {
    pub(super) key: &'a [u8],
    /// See [`crate::layout::event::encode_event`].
    pub(super) event: &'a [u8],
}

/// Changes of earlier records.
#[derive(Default)]
pub(super) struct Amendment {
    /// The encoded record as it was requested, from which other nodes compute the same changes.
    pub(super) requested: Vec<u8>,
    pub(super) changes: Vec<Change>,
    pub(super) erasure: Option<ErasureDraft>,
    /// The first sequence whose old bytes must be scrubbed; the last is before that of the
    /// amendment.
    pub(super) scrub_from: Option<Sequence>,
}

impl Amendment {
    fn bytes(&self) -> usize {
        self.changes.iter().map(Change::bytes).sum()
    }
}

/// An erasure that is complete except for its sequence.
pub(super) struct ErasureDraft {
    /// `None` if no record was removed.
    pub(super) first: Option<Sequence>,
    pub(super) timestamp: Timestamp,
    pub(super) observations: u64,
}

/// One task for the committer.
pub(super) enum Work {
    Append {
        sequence: Sequence,
        prepared: Prepared,
    },
    /// Key and value of features that a state has frozen.
    Freeze(Vec<u8>, Vec<u8>),
    /// Key and value of the attributes of a user; without a value, the user has none any more.
    Describe(Vec<u8>, Option<Vec<u8>>),
    /// A message of which nothing is written but its position.
    PassOver(SourcePosition),
    /// A write that only needs its order relative to appends, and can be derived from them.
    Derived(Change),
    /// Nothing to write but the end of a replicated log, so that the database is known to be complete up to it.
    NoteEnd,
}

impl Work {
    pub(super) fn is_append(&self) -> bool {
        matches!(self, Self::Append { .. })
    }

    /// The stream of its record.
    pub(super) fn stream(&self) -> Option<&StreamName> {
        match self {
            Self::Append { prepared, .. } => Some(&prepared.stream),
            Self::Freeze(..) | Self::Describe(..) | Self::PassOver(_) | Self::Derived(_) | Self::NoteEnd => None,
        }
    }
}

/// The traced callers of a write, beyond which more are not noted.
const TRACED_MAX: usize = 64;

/// Tasks that share one write.
#[derive(Default)]
pub(super) struct Group {
    pub(super) work: Vec<Work>,
    /// The spans of callers that are traced.
    pub(super) traced: Vec<Span>,
    /// Bytes accounted by the queue.
    pub(super) bytes: usize,
    /// Number of tasks whose caller waits.
    awaited: usize,
    /// The position that is durable once the group is written.
    pub(super) position: CommitPosition,
}

struct Waiting {
    work: Work,
    bytes: usize,
    ack: AckMode,
}

struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Number of queued tasks whose caller waits.
    awaited: usize,
    /// Arrival of the first queued task.
    since: Instant,
    /// The last assigned position.
    last: CommitPosition,
    /// The last assigned sequences.
    sequences: Watermarks,
    /// The spans of traced callers, with the positions of their tasks.
    traced: VecDeque<(CommitPosition, Span)>,
    closed: bool,
}

/// First in, first out: appends, positions, sequences and writes have the same order.
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    limits: StorageOptions,
    progress: Arc<Progress>,
}

impl Queue {
    pub(super) fn new(limits: &StorageOptions, sequences: Watermarks, progress: Arc<Progress>) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            bytes: 0,
            awaited: 0,
            since: Instant::now(),
            last: CommitPosition::default(),
            sequences,
            traced: VecDeque::new(),
            closed: false,
        };
        Self { state: Mutex::new(state), arrived: Condvar::new(), limits: limits.clone(), progress }
    }

    /// Enqueues a record with the id that the client gave it, and assigns its position and sequence.
    pub(super) fn push(
        &self,
        prepared: Prepared,
        given: Option<ObservationId>,
        ack: AckMode,
    ) -> Result<Placed, StorageError> {
        let bytes = prepared.bytes();
        let span = spans::enclosing();
        let mut state = self.state.lock();
        self.check_room(&state, bytes)?;
        let partition = prepared.partition;
        let handed_out = state.sequences.entry(prepared.stream.clone()).or_insert_with(Watermark::start);
        let sequence = handed_out.get(partition).next();
        handed_out.set(partition, sequence);
        let work = Work::Append { sequence, prepared };
        let position = self.enqueue(&mut state, Waiting { work, bytes, ack });
        if let Some(span) = span.filter(|_| state.traced.len() < TRACED_MAX) {
            state.traced.push_back((position, span));
        }
        Ok(Placed::new(partition, sequence, given, self.progress.ticket(position)))
    }

    /// Enqueues frozen features.
    pub(super) fn push_freeze(&self, (key, value): (Vec<u8>, Vec<u8>)) -> Result<Ticket, StorageError> {
        let bytes = key.len() + value.len();
        let position = self.push_work(Work::Freeze(key, value), bytes, AckMode::Wait)?;
        Ok(self.progress.ticket(position))
    }

    /// Enqueues the attributes of a user.
    pub(super) fn push_description(&self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<Ticket, StorageError> {
        let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
        let position = self.push_work(Work::Describe(key, value), bytes, AckMode::Wait)?;
        Ok(self.progress.ticket(position))
    }

    /// Enqueues the position of a message of which nothing else is written.
    pub(super) fn push_position(&self, source: SourcePosition) -> Result<Ticket, StorageError> {
        let bytes = source.bytes();
        let position = self.push_work(Work::PassOver(source), bytes, AckMode::Wait)?;
        Ok(self.progress.ticket(position))
    }

    /// Enqueues a derived write.
    pub(super) fn push_derived(&self, change: Change) -> Result<(), StorageError> {
        let bytes = change.bytes();
        self.push_work(Work::Derived(change), bytes, AckMode::Gather).map(drop)
    }

    /// Enqueues a note of the end of the log.
    pub(super) fn push_note_of_end(&self) -> Result<Ticket, StorageError> {
        let position = self.push_work(Work::NoteEnd, 0, AckMode::Wait)?;
        Ok(self.progress.ticket(position))
    }

    fn push_work(&self, work: Work, bytes: usize, ack: AckMode) -> Result<CommitPosition, StorageError> {
        let mut state = self.state.lock();
        self.check_room(&state, bytes)?;
        Ok(self.enqueue(&mut state, Waiting { work, bytes, ack }))
    }

    fn check_room(&self, state: &State, bytes: usize) -> Result<(), StorageError> {
        self.progress.check()?;
        if state.closed {
            return Err(StorageError::Closed);
        }
        let queued = state.waiting.len();
        // One task is always accepted: it may be larger than a small limit.
        let too_large = queued > 0 && state.bytes + bytes > self.limits.queue_bytes_max;
        if queued >= self.limits.queue_records_max || too_large {
            return Err(StorageError::Overloaded { queued });
        }
        Ok(())
    }

    fn enqueue(&self, state: &mut State, next: Waiting) -> CommitPosition {
        let is_first = state.waiting.is_empty();
        if is_first {
            state.since = Instant::now();
        }
        state.last.0 += 1;
        state.bytes += next.bytes;
        state.awaited += usize::from(next.ack == AckMode::Wait);
        state.waiting.push_back(next);
        if is_first || self.is_due(state) {
            self.arrived.notify_one();
        }
        state.last
    }

    /// Whether the queued tasks are to be written without waiting for more.
    fn is_due(&self, state: &State) -> bool {
        state.awaited > 0 || state.waiting.len() >= self.limits.gather_records || state.closed
    }

    /// Waits for tasks and fills `group` up to the limits of one write; `false` once the queue is
    /// closed and empty.
    ///
    /// Callers of the group before this one, which is still in `group`, tend to append again as soon as
    /// they are answered. Those who wait already wait for them too, for at most `patience` from now: otherwise
    /// both would take turns, with a write for each.
    pub(super) fn take(&self, group: &mut Group, patience: Duration) -> bool {
        let returning = group.awaited;
        group.work.clear();
        group.traced.clear();
        group.awaited = 0;
        group.bytes = 0;
        let mut state = self.state.lock();
        let (expected, deadline) = (state.awaited + returning, Instant::now() + patience);
        while state.waiting.is_empty() {
            if state.closed {
                return false;
            }
            self.arrived.wait(&mut state);
        }
        while !self.is_due(&state) {
            let deadline = state.since + self.limits.gather_wait;
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        while patience > Duration::ZERO && (1..expected).contains(&state.awaited) && !state.closed {
            if self.arrived.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        while group.work.len() < self.limits.commit_records_max.max(1) {
            let Some(next) = state.waiting.pop_front() else { break };
            if !group.work.is_empty() && group.bytes + next.bytes > self.limits.commit_bytes_max {
                state.waiting.push_front(next);
                break;
            }
            group.bytes += next.bytes;
            group.awaited += usize::from(next.ack == AckMode::Wait);
            group.work.push(next.work);
        }
        state.bytes -= group.bytes;
        state.awaited -= group.awaited;
        group.position = CommitPosition(state.last.0 - state.waiting.len() as u64);
        let written = state.traced.partition_point(|(position, _)| *position <= group.position);
        group.traced.extend(state.traced.drain(..written).map(|(_, span)| span));
        true
    }

    /// Rejects new tasks; queued ones are still taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn callers_who_return_share_a_group_with_those_who_wait() {
        let queue = Queue::new(&StorageOptions::default(), Watermarks::default(), Arc::new(Progress::default()));
        let push = || drop(queue.push_freeze((vec![1], vec![2])).unwrap());
        let mut group = Group::default();
        push();
        push();
        assert!(queue.take(&mut group, Duration::ZERO));
        assert_eq!(group.work.len(), 2);
        push();
        let group = std::thread::scope(|scope| {
            let taken = scope.spawn(|| {
                // Far longer than the others take, so that only a fault reaches it.
                queue.take(&mut group, Duration::from_secs(60));
                group
            });
            while !taken.is_finished() {
                push();
                std::thread::yield_now();
            }
            taken.join().unwrap()
        });
        assert!(group.work.len() >= 3, "one waited, and two return");
    }

    #[test]
    fn nobody_waits_for_callers_who_do_not_return() {
        let queue = Queue::new(&StorageOptions::default(), Watermarks::default(), Arc::new(Progress::default()));
        let mut group = Group { awaited: 5, ..Group::default() };
        drop(queue.push_freeze((vec![1], vec![2])).unwrap());
        assert!(queue.take(&mut group, Duration::from_millis(1)));
        assert_eq!(group.work.len(), 1);
    }
}
