//! Removes the old bytes of removed records from the disk.
//!
//! A blank hides a record; the record itself stays in the write-ahead log until it is flushed, in
//! sorted files until they are compacted, and its user in the manifest as long as the key is the
//! first or last of such a file. So every retraction and erasure writes a note of the range that it
//! blanked, in its own atomic write. A background thread processes the notes together, at latest
//! `scrub_delay` after an erasure and [`RETRACTION_DELAYS`] times that after a retraction, of which
//! there may be many: it flushes, compacts those ranges, deletes the notes and flushes again. It
//! reads and rewrites only the affected partitions, about a sixty-fourth of the log for one user.
//! Closing the store does the same for erasures, and opening a store continues with the notes it
//! finds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use celeris_model::{Partition, Sequence, StreamName};
use parking_lot::{Condvar, Mutex};

use crate::database::{Access, Column, Database, Durability, KeyRange};
use crate::error::StorageError;
use crate::health::Health;
use crate::layout::envelope::{begin, corrupt, seal, unseal};
use crate::layout::keys::{self, KeyReader};
use celeris_model::wire::{Reader, Writer};

/// A range of one partition's log in which records were blanked and history entries removed; empty if attributes of a
/// user alone were removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unscrubbed {
    pub(super) stream: StreamName,
    pub(super) partition: Partition,
    /// The first blanked sequence.
    pub(super) first: Sequence,
    /// The sequence of the amendment, after the last blanked one.
    pub(super) at: Sequence,
    pub(super) cause: Cause,
}

/// The reason for scrubbing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Erasure,
    Retraction,
}

/// The notes to process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope {
    All,
    Erasures,
}

/// The delay of a retraction as a multiple of that of an erasure.
const RETRACTION_DELAYS: u32 = 60;

/// The delay after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Key and value of a note.
pub(super) fn encode(note: &Unscrubbed) -> (Vec<u8>, Vec<u8>) {
    let key = keys::unscrubbed(&note.stream, note.partition, note.at);
    let mut value = Writer(begin());
    value.varint(note.first.0);
    value.varint(u64::from(note.cause == Cause::Retraction));
    seal(&key, &mut value.0);
    (key, value.0)
}

fn decode(key: &[u8], body: &[u8]) -> Option<Unscrubbed> {
    let mut key = KeyReader::new(&key[1..]);
    let mut body = Reader(body);
    Some(Unscrubbed {
        stream: StreamName::new(key.text()?).ok()?,
        partition: Partition::from_index(key.byte()?)?,
        at: Sequence(key.number()?),
        first: Sequence(body.varint()?),
        cause: if body.varint()? == 0 { Cause::Erasure } else { Cause::Retraction },
    })
}

fn delay_of(note: &Unscrubbed, delay: Duration) -> Duration {
    match note.cause {
        Cause::Erasure => delay,
        Cause::Retraction => delay.saturating_mul(RETRACTION_DELAYS),
    }
}

struct State {
    /// Notes with their due times.
    notes: Vec<(Instant, Unscrubbed)>,
    closed: bool,
}

/// The notes, and the thread that processes them.
pub(crate) struct Scrubber {
    database: Arc<Database>,
    delay: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the scrubber works.
    at_work: Mutex<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Scrubber {
    /// Creates the scrubber with the notes of earlier sessions.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub(crate) fn open(database: Arc<Database>, delay: Duration) -> Result<Arc<Self>, StorageError> {
        let mut notes = Vec::new();
        database.scan(Column::Erasures, keys::all_unscrubbed(), Access::Lookup, |key, value| {
            let note = decode(key, unseal(Column::Erasures, key, value)?);
            let note = note.ok_or_else(|| corrupt(Column::Erasures, key, "it names no range of the log"))?;
            notes.push((Instant::now() + delay_of(&note, delay), note));
            Ok(ControlFlow::Continue(()))
        })?;
        let state = Mutex::new(State { notes, closed: false });
        let (changed, at_work, thread) = (Condvar::new(), Mutex::new(()), Mutex::new(None));
        Ok(Arc::new(Self { database, delay, state, changed, at_work, thread }))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn start(self: &Arc<Self>, health: Arc<Health>) -> Result<(), StorageError> {
        let scrubber = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("celeris-scrub".to_owned())
            .spawn(move || scrubber.run(&health))
            .map_err(StorageError::io("start the thread of", "the scrubber"))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Adds a durable note.
    pub(super) fn add(&self, note: Unscrubbed) {
        let due = Instant::now() + delay_of(&note, self.delay);
        self.state.lock().notes.push((due, note));
        self.changed.notify_one();
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().notes.len()
    }

    /// Pauses the scrubber while the guard exists: an open iterator keeps the files it reads on
    /// disk.
    pub(crate) fn hold(&self) -> impl Drop + use<'_> {
        self.at_work.lock()
    }

    /// Ends the thread. Idempotent.
    pub(crate) fn stop(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the scrubber panicked");
        }
    }

    fn run(&self, health: &Health) {
        while self.wait() {
            if let Err(error) = self.scrub(Scope::All, health) {
                tracing::warn!(%error, "forgotten records are still on the disk; trying again later");
            }
        }
    }

    /// Waits until a note is due; `false` if the scrubber is stopped.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.closed {
            match state.notes.iter().map(|(due, _)| *due).min() {
                Some(due) if due <= Instant::now() => return true,
                Some(due) => {
                    self.changed.wait_until(&mut state, due);
                }
                None => self.changed.wait(&mut state),
            }
        }
        false
    }

    /// Processes the current notes. On failure they are kept and retried soon.
    ///
    /// # Errors
    /// `Poisoned`, `CorruptLog` or `Database`.
    pub(crate) fn scrub(&self, scope: Scope, health: &Health) -> Result<(), StorageError> {
        let _at_work = self.at_work.lock();
        let wanted = |(_, note): &mut (Instant, Unscrubbed)| match scope {
            Scope::All => true,
            Scope::Erasures => note.cause == Cause::Erasure,
        };
        let notes: Vec<_> = self.state.lock().notes.extract_if(.., wanted).collect();
        if notes.is_empty() {
            return Ok(());
        }
        let done = self.work_off(&notes, health);
        if done.is_err() {
            let again = Instant::now() + RETRY_AFTER;
            let mut state = self.state.lock();
            state.notes.extend(notes.into_iter().map(|(_, note)| (again, note)));
        }
        done
    }

    fn work_off(&self, notes: &[(Instant, Unscrubbed)], health: &Health) -> Result<(), StorageError> {
        health.check()?;
        let started = Instant::now();
        let mut ranges: BTreeMap<(&StreamName, Partition), (Sequence, Sequence)> = BTreeMap::new();
        for (_, Unscrubbed { stream, partition, first, at, .. }) in notes {
            let range = ranges.entry((stream, *partition)).or_insert((*first, *at));
            *range = (range.0.min(*first), range.1.max(*at));
        }
        self.database.flush()?;
        for ((stream, partition), (first, at)) in &ranges {
            let from = keys::log(stream, *partition, *first);
            self.database.compact(Column::Log, &KeyRange { from, to: keys::log(stream, *partition, *at) })?;
            let users = KeyRange::prefix(keys::of_partition(stream, *partition));
            self.database.compact(Column::History, &users)?;
            self.database.compact(Column::Snapshots, &users)?;
            self.database.compact(Column::UserAttributes, &users)?;
        }
        let mut batch = self.database.batch();
        for (_, note) in notes {
            batch.delete(Column::Erasures, &keys::unscrubbed(&note.stream, note.partition, note.at));
        }
        batch.commit(Durability::Synced).inspect_err(|error| health.poison(&error.to_string()))?;
        // The last change of the manifest, which now no longer names the deleted files.
        self.database.flush()?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(amendments = notes.len(), ranges = ranges.len(), seconds, "forgotten records left the disk");
        Ok(())
    }
}
