//! The store: opening it in the right order, and closing it clean.

use std::path::Path;
use std::sync::Arc;

use celeris_model::StreamName;
use parking_lot::Mutex;

use crate::database::{self, Batch, BytesWritten, Column, Database, Durability, Recovery, Tuning};
use crate::decisions::Decisions;
use crate::directory::Directory;
use crate::error::StorageError;
use crate::hashing::Hashes;
use crate::log::{Append, Appended, CommitPosition, Companions, Log, LogCounters, Ticket};
use crate::options::StorageOptions;
use crate::scrub::{Scope, Scrubber};
use crate::space::SpaceGuard;
use crate::verifier::{Verification, Verifier};
use crate::{checkpoints, keys, wal_check};

/// One node's store. Cheap to clone: clones share one open directory, which closes with the last of them.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    log: Log,
    hashes: Arc<Hashes>,
    scrubber: Arc<Scrubber>,
    verifier: Arc<Verifier>,
    space: Arc<SpaceGuard>,
    decisions: Decisions,
    database: Arc<Database>,
    /// Held while a revision is chosen and written, so that no two writes choose the same.
    revisions: Mutex<()>,
    /// Last, so that the lock outlives the databases.
    directory: Directory,
}

impl Storage {
    /// Opens the store in `dir`, or creates it.
    ///
    /// The write-ahead log is checked before RocksDB replays it, RocksDB looks for every file that its manifest names, and
    /// the log is checked from the last checkpoint on. The time does not grow with the store: it is bounded by
    /// `wal_bytes_max` and the bytes between two checkpoints. All else is verified in the background.
    ///
    /// # Errors
    /// `InUse`, `UnknownFormat`; `CorruptLog` and `Corrupt` for damage, where the message names the place and says what
    /// to do; `Io` and `Database` for the rest.
    pub fn open(dir: impl AsRef<Path>, options: &StorageOptions) -> Result<Self, StorageError> {
        let directory = Directory::open(dir.as_ref())?;
        let stopped_clean = wal_check::check_and_cut(&directory.database())?;
        let cache = database::block_cache(options.block_cache_bytes);
        let tuning = Tuning {
            recovery: Recovery::Refuse,
            cache: &cache,
            write_buffer_bytes: options.write_buffer_bytes,
            wal_bytes_max: options.wal_bytes_max,
        };
        let database = Arc::new(Database::open(&directory.database(), Column::MAIN, &tuning)?);
        let watermarks = checkpoints::recover(&database)?;
        // Only now is there something that a later opening may not find missing.
        directory.write_format()?;
        let tuning =
            Tuning { recovery: Recovery::UpToDamage, write_buffer_bytes: options.write_buffer_bytes / 2, ..tuning };
        let decisions = Decisions::start(&directory.decisions(), &tuning, options)?;
        let hashes = Arc::new(Hashes::open(&database, watermarks.is_empty())?);
        let scrubber = Scrubber::open(Arc::clone(&database), options.scrub_delay)?;
        let verifier = Verifier::open(
            Arc::clone(&database),
            Arc::clone(&scrubber),
            directory.verification(),
            options,
            stopped_clean,
        )?;
        let space = SpaceGuard::new(
            directory.path(),
            Arc::clone(&database),
            options.disk_reserve_bytes,
            options.write_buffer_bytes,
        );
        let space = Arc::new(space);
        let companions =
            Companions { hashes: Arc::clone(&hashes), scrubber: Arc::clone(&scrubber), space: Arc::clone(&space) };
        let log = Log::start(Arc::clone(&database), companions, watermarks, options)?;
        scrubber.start(log.shared_progress())?;
        verifier.start(log.shared_progress())?;
        let revisions = Mutex::new(());
        let inner = Inner { log, hashes, scrubber, verifier, space, decisions, database, revisions, directory };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The data directory. `versions/` and `jobs/` in it are the manager's.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.inner.directory.path()
    }

    /// Commits what is queued, writes the decisions that wait, removes the bytes of erased users from the disk, and
    /// leaves an empty write-ahead log behind. Later writes are [`StorageError::Closed`], reads go on. Dropping the last clone does the same. Blocks the thread.
    ///
    /// # Errors
    /// `Poisoned` or `Database`; what was acknowledged is durable all the same.
    pub fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }

    /// Enqueues one event. Never waits for the disk to sync; [`crate::Placed::durable`] does.
    ///
    /// Events of one caller keep their order. An observation whose client-given id the stream has already, committed or
    /// queued, is not enqueued: the answer is the first one. A client that repeats an id that the server made
    /// (`~partition-sequence`) is answered with that record; it cannot name a new one.
    ///
    /// *Amendments* change records before them, in the same atomic write:
    ///
    /// - `Correct` with `targets` of one observation and a new `label`: that observation has the new label from then on,
    ///   and the first one ever sent as `first_label`.
    /// - `Retract` with `targets` of one observation: a blank takes the place of the observation, and of corrections of
    ///   it, which join the `targets`. Its id stays taken.
    /// - `Erase`: a blank takes the place of every record of the user, and all are its `targets`. The user's ids stay
    ///   taken, the epoch goes on, and the stored record names a keyed hash in the user's place.
    ///
    /// The store fills in the amendment's other fields: item and observation id are those of the observation, where they
    /// may stay. The caller guarantees that it holds off other appends for the user, and that everything of the user is
    /// durable, when it appends an amendment; it blocks the thread to read what it changes. Until the amendment is durable
    /// itself, reads find the log as it was before.
    ///
    /// # Errors
    /// `Overloaded`, `StorageFull`, `Poisoned`, `Closed`, `ReservedId`, `ObservationForgotten`, `NotAnObservation` or
    /// `RecordTooLarge`, with nothing enqueued; or what reading can fail with.
    pub fn append(&self, append: Append) -> Result<Appended, StorageError> {
        self.inner.log.append(append)
    }

    /// Waits until everything up to `position` is durable.
    ///
    /// # Errors
    /// `Poisoned` if it will never be known to be; `Closed`.
    pub async fn wait_durable(&self, position: CommitPosition) -> Result<(), StorageError> {
        self.inner.log.progress().wait(position).await
    }

    /// A way to wait until everything up to `position` is durable.
    #[must_use]
    pub fn ticket(&self, position: CommitPosition) -> Ticket {
        self.inner.log.ticket(position)
    }

    /// Keeps the log from writing what is queued until the guard is dropped. For tests of what happens between queueing
    /// and sync; nothing else calls it.
    #[doc(hidden)]
    #[must_use]
    pub fn hold_writes(&self) -> impl Drop + use<> {
        self.inner.log.hold_writes()
    }

    /// Whether everything up to `position` is durable now.
    #[must_use]
    pub fn is_durable(&self, position: CommitPosition) -> bool {
        self.inner.log.progress().is_durable(position)
    }

    /// Whether observations are accepted now.
    ///
    /// # Errors
    /// `Poisoned`, with the first failure, or `StorageFull`.
    pub fn check_accepts(&self) -> Result<(), StorageError> {
        self.health()?;
        self.inner.space.check()
    }

    /// Whether the store still accepts writes.
    ///
    /// # Errors
    /// `Poisoned`, with the first failure.
    pub fn health(&self) -> Result<(), StorageError> {
        self.inner.log.progress().health()
    }

    /// What the log has done since the store was opened.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        self.inner.log.counters()
    }

    /// Bytes that observations, items and the registry have cost on the disk since the store was opened: RocksDB's own
    /// count.
    #[must_use]
    pub fn bytes_written(&self) -> BytesWritten {
        self.inner.database.bytes_written()
    }

    /// Removes the bytes of retracted and erased records from the disk now instead of later. Blocks the thread for as
    /// long as it takes to rewrite the partitions concerned.
    ///
    /// # Errors
    /// `Poisoned`, `CorruptLog` or `Database`; it is tried again in the background.
    pub fn scrub(&self) -> Result<(), StorageError> {
        self.inner.scrubber.scrub(Scope::All, self.inner.log.progress())
    }

    /// What the verification has done and found.
    #[must_use]
    pub fn verification(&self) -> Verification {
        self.inner.verifier.found()
    }

    /// Verifies the whole store now, at full speed. Blocks the thread.
    ///
    /// # Errors
    /// `CorruptLog` or `Corrupt` for damage, which poisons the log; `Database`.
    pub fn verify(&self) -> Result<(), StorageError> {
        self.inner.verifier.check_all(self.inner.log.progress())
    }

    /// Retractions and erasures whose bytes are still on the disk.
    #[must_use]
    pub fn unscrubbed(&self) -> usize {
        self.inner.scrubber.waiting()
    }

    /// Deletes a stream: its items at once, its records and ids behind what is in the queue. The answer is the position
    /// at which that is durable. The caller guarantees that no append of the stream is under way.
    ///
    /// # Errors
    /// `Overloaded`, `Poisoned`, `Closed` or `Database`.
    pub fn delete_stream(&self, stream: &StreamName) -> Result<CommitPosition, StorageError> {
        let mut batch = self.inner.database.batch();
        batch.delete_prefix(Column::Items, &keys::of_stream(stream));
        self.commit(batch)?;
        self.inner.log.delete_stream(stream)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.inner.database
    }

    pub(crate) fn log(&self) -> &Log {
        &self.inner.log
    }

    pub(crate) fn hashes(&self) -> &Hashes {
        &self.inner.hashes
    }

    pub(crate) fn decisions(&self) -> &Decisions {
        &self.inner.decisions
    }

    /// Writes and syncs. A failure poisons the log too: both share the write-ahead log, whose state is unknown then.
    pub(crate) fn commit(&self, batch: Batch) -> Result<(), StorageError> {
        self.inner.log.check_writable()?;
        batch.commit(Durability::Synced).inspect_err(|error| self.inner.log.progress().poison(&error.to_string()))
    }

    pub(crate) fn space(&self) -> &SpaceGuard {
        &self.inner.space
    }

    /// Writes and syncs what `fill` puts under a revision that is greater than any before.
    pub(crate) fn write_with_revision(&self, fill: impl FnOnce(&mut Batch, u64)) -> Result<u64, StorageError> {
        self.inner.space.check()?;
        let _chosen = self.inner.revisions.lock();
        // RocksDB counts its writes, and this write raises the count, so the next revision is greater.
        let revision = self.inner.database.latest_write() + 1;
        let mut batch = self.inner.database.batch();
        fill(&mut batch, revision);
        self.commit(batch)?;
        Ok(revision)
    }
}

impl Inner {
    fn close(&self) -> Result<(), StorageError> {
        self.log.stop();
        self.verifier.stop();
        self.scrubber.stop();
        self.decisions.stop()?;
        self.log.progress().health()?;
        checkpoints::write(&self.database, &self.log.watermarks())?;
        if let Err(error) = self.scrubber.scrub(Scope::Erasures, self.log.progress()) {
            tracing::warn!(%error, "erased records are still on the disk; the next opening goes on with them");
        }
        self.database.flush()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, dir = %self.directory.path().display(), "the store was not closed clean");
        }
    }
}
