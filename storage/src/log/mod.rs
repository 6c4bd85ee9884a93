//! The observation log: appends are synchronous, durability is asynchronous.
//!
//! An append takes its sequence and its position in a bounded queue, and returns. One committer
//! thread takes all queued records, writes them as one batch with one sync, and advances the
//! durable position; writers that arrive during a sync share the next one. A failed write or sync
//! poisons the log for good: the state of RocksDB is then unknown, and only reopening the directory
//! determines what is on disk.

mod amend;
mod check;
pub(crate) mod checkpoints;
mod committer;
mod erasures;
mod pending;
mod progress;
mod queue;
pub(crate) mod reading;
mod scrub;
mod watermark;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use celeris_model::ids::SERVER_ID_PREFIX;
use celeris_model::{ObservationId, Partition, Record, RecordKind, StreamName};
use parking_lot::{Mutex, RwLock};

pub(crate) use self::amend::SNAPSHOT_EPOCH_MIN;
pub(crate) use self::check::LogCheck;
use self::checkpoints::Watermarks;
pub use self::erasures::Erasure;
use self::pending::PendingIds;
pub(crate) use self::progress::Progress;
pub use self::progress::{CommitPosition, Committed, Placed, Ticket};
use self::queue::{Change, Encoded, HistoryEntry, Prepared, Queue};
pub use self::reading::{LogRange, Lookup, observation_id};
pub(crate) use self::scrub::{Scope, Scrubber};
pub use self::watermark::Watermark;
use crate::database::{Batch, Column, Database, Durability};
use crate::disk_space::SpaceGuard;
use crate::error::StorageError;
use crate::layout::features::{self, FrozenFeatures};
use crate::layout::hashing::Hashes;
use crate::layout::{event, keys, record};
use crate::options::StorageOptions;

/// The largest encoded record, in bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// One event for the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    pub stream: StreamName,
    /// The event. Its partition is that of its user; the caller counts `user_epoch`.
    pub record: Record,
    /// Features to freeze in the same atomic batch. The caller guarantees that an item of a version
    /// is always frozen with the same features.
    pub frozen: Vec<FrozenFeatures>,
    /// Whether the same atomic batch notes that the item was observed ([`crate::Items::sweep_observed`]).
    pub notes_item: bool,
    /// Whether the caller waits for durability next.
    pub ack: AckMode,
}

/// Whether the caller waits for the record next, which determines whether the sync may be delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckMode {
    /// The caller waits until the record is durable.
    Wait,
    /// The caller appends more before it waits. The sync gathers up to
    /// [`StorageOptions::gather_records`] such records, for at most
    /// [`StorageOptions::gather_wait`]; an append with [`AckMode::Wait`] triggers it at once.
    Gather,
}

/// The result of an append.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is destructured where it is returned")]
pub enum Appended {
    /// The record was enqueued.
    New(Placed),
    /// The stream already has an observation of that id; nothing was enqueued.
    Existing(Existing),
}

/// The existing observation of an id.
#[derive(Debug)]
pub struct Existing {
    pub record: Record,
    /// Its position, which may not be durable yet: it may still be in the queue.
    pub placed: Placed,
}

/// Counters of the log since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCounters {
    /// Number of writes, each with its sync.
    pub commits: u64,
    /// Number of records written.
    pub records: u64,
    /// Bytes passed to RocksDB.
    pub bytes: u64,
}

/// State shared by appenders and the committer.
struct Shared {
    database: Arc<Database>,
    hashes: Arc<Hashes>,
    scrubber: Arc<Scrubber>,
    space: Arc<SpaceGuard>,
    queue: Queue,
    progress: Arc<Progress>,
    pending: PendingIds,
    /// The last durable sequences.
    watermarks: RwLock<Watermarks>,
    commits: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

/// Components that the log uses.
pub(crate) struct Companions {
    pub(crate) hashes: Arc<Hashes>,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) space: Arc<SpaceGuard>,
}

/// The observation log and its committer thread.
pub struct Log {
    shared: Arc<Shared>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
    /// Starts the committer; `watermarks` are the last sequences of each partition.
    ///
    /// # Errors
    /// [`StorageError::Io`] if no thread can be started.
    pub(crate) fn start(
        database: Arc<Database>,
        Companions { hashes, scrubber, space }: Companions,
        watermarks: Watermarks,
        options: &StorageOptions,
    ) -> Result<Self, StorageError> {
        let progress = Arc::<Progress>::default();
        let shared = Arc::new(Shared {
            database,
            hashes,
            scrubber,
            space,
            queue: Queue::new(options, watermarks.clone(), Arc::clone(&progress)),
            progress,
            pending: PendingIds::default(),
            watermarks: RwLock::new(watermarks),
            commits: AtomicU64::new(0),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let worker = Arc::clone(&shared);
        let committer = std::thread::Builder::new()
            .name("celeris-commit".to_owned())
            .spawn(move || committer::run(&worker))
            .map_err(StorageError::io("start the thread of", "the log"))?;
        Ok(Self { shared, committer: Mutex::new(Some(committer)) })
    }

    /// Enqueues one event. Does not wait for the disk; [`Placed::durable`] does.
    ///
    /// Events of one caller keep their order. An observation whose client-given id the stream
    /// already has, committed or queued, is not enqueued: the existing one is returned. The same
    /// holds for an id that the server has assigned (`~partition-sequence`); a client cannot create
    /// one.
    ///
    /// *Amendments* change earlier records, in the same atomic write:
    ///
    /// - `Correct` with `targets` of one observation and a new `label`: the observation has the new
    ///   label from then on, and the original one as `first_label`.
    /// - `Retract` with `targets` of one observation: a blank replaces the observation and its
    ///   corrections, which are added to the `targets`. Its id cannot be used again.
    /// - `Erase`: a blank replaces every record of the user, and all are its `targets`. The user's
    ///   ids cannot be used again, the epoch continues, and the stored record has a keyed hash in
    ///   place of the user.
    ///
    /// The store fills in the other fields of an amendment: item and observation id are those of
    /// the observation, as far as they may remain. The caller guarantees that it holds off other
    /// appends for the user, and that all records of the user are durable, when it appends an
    /// amendment; the call blocks the thread to read the records to change. Until the amendment is
    /// durable, reads return the log without it.
    ///
    /// # Errors
    /// `Overloaded`, `StorageFull`, `Poisoned`, `Closed`, `ReservedId`, `ObservationForgotten`,
    /// `NotAnObservation` or `RecordTooLarge`, with nothing enqueued; or errors of reading.
    pub fn append(&self, append: Append) -> Result<Appended, StorageError> {
        let shared = &*self.shared;
        shared.progress.health()?;
        shared.space.check()?;
        let Append { stream, mut record, frozen, notes_item, ack } = append;
        let partition = Partition::of(&record.user);
        let key = keys::history(&stream, &record.user, record.user_epoch);
        if record.kind != RecordKind::Observe {
            // The key was built before an erasure removes the user from the record.
            let amendment = amend::amend(&shared.database, &shared.hashes, &stream, &mut record)?.map(Box::new);
            let history = (record.kind != RecordKind::Erase).then_some(HistoryEntry { key: &key, event: &[] });
            let encoded = encode(&record, history)?;
            let prepared = Prepared { stream, partition, encoded, id: None, frozen: Vec::new(), item: None, amendment };
            return shared.queue.push(prepared, None, ack).map(Appended::New);
        }
        let prepared = |id| -> Result<Prepared, StorageError> {
            let history = HistoryEntry { key: &key, event: &event::encode_event(&record) };
            let encoded = encode(&record, Some(history))?;
            let frozen = frozen.iter().map(features::encode_frozen).collect();
            let item = record.item.as_ref().filter(|_| notes_item).map(|item| keys::item(&stream, item));
            Ok(Prepared { stream: stream.clone(), partition, encoded, id, frozen, item, amendment: None })
        };
        let Some(id) = &record.observation_id else {
            return shared.queue.push(prepared(None)?, None, ack).map(Appended::New);
        };
        if id.as_str().starts_with(SERVER_ID_PREFIX) {
            return match reading::find_by_place(&shared.database, &stream, id)? {
                Lookup::Unknown => Err(StorageError::ReservedId { id: id.as_str().to_owned() }),
                known => shared.existing(known, id),
            };
        }
        let hash = shared.hashes.id(&stream, id);
        let mut shard = shared.pending.lock(hash);
        if let Some((encoded, placed)) = shard.get(&hash) {
            let record = record::decode_unsealed(encoded.value()).ok_or_else(|| StorageError::Database {
                action: "read",
                reason: "a queued record is damaged".into(),
            })?;
            return Ok(Appended::Existing(Existing { record, placed: placed.clone() }));
        }
        // The committer removes an id from `pending` only after it can be read, so one of the two
        // always has it.
        match reading::find_by_hash(&shared.database, &stream, id, hash)? {
            Lookup::Unknown => {}
            known => return shared.existing(known, id),
        }
        let prepared = prepared(Some(hash))?;
        let encoded = prepared.encoded.clone();
        let placed = shared.queue.push(prepared, Some(id.clone()), ack)?;
        shard.insert(hash, (encoded, placed.clone()));
        Ok(Appended::New(placed))
    }

    /// Deletes a stream's records and index entries in queue order: earlier appends are deleted,
    /// later ones remain and count from 1 again.
    pub(crate) fn delete_stream(&self, stream: &StreamName) -> Result<CommitPosition, StorageError> {
        self.shared.progress.health()?;
        self.shared.queue.push_deletion(stream.clone())
    }

    /// See [`crate::Histories::keep_snapshot`].
    pub(crate) fn keep_snapshot(&self, (key, value): (Vec<u8>, Vec<u8>)) -> Result<(), StorageError> {
        self.shared.progress.health()?;
        self.shared.space.check()?;
        self.shared.queue.push_change(Change::Put(Column::Snapshots, key, value), AckMode::Gather).map(drop)
    }

    /// See [`crate::Items::freeze`].
    pub(crate) fn freeze(&self, (key, value): (Vec<u8>, Vec<u8>)) -> Result<CommitPosition, StorageError> {
        self.shared.progress.health()?;
        self.shared.queue.push_change(Change::Put(Column::Frozen, key, value), AckMode::Wait)
    }

    /// Waits until everything up to `position` is durable.
    ///
    /// # Errors
    /// `Poisoned` if it will never be known to be durable; `Closed`.
    pub async fn wait_durable(&self, position: CommitPosition) -> Result<(), StorageError> {
        self.ticket(position).durable().await
    }

    /// A handle to wait until everything up to `position` is durable.
    #[must_use]
    pub fn ticket(&self, position: CommitPosition) -> Ticket {
        self.shared.progress.ticket(position)
    }

    #[must_use]
    pub fn is_durable(&self, position: CommitPosition) -> bool {
        self.shared.progress.is_durable(position)
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    pub(crate) fn shared_progress(&self) -> Arc<Progress> {
        Arc::clone(&self.shared.progress)
    }

    /// Writes and syncs changes that are not records. A failure also poisons the log: both share
    /// the write-ahead log, whose state is then unknown.
    ///
    /// # Errors
    /// `Poisoned`, `Closed` or `Database`.
    pub(crate) fn commit(&self, batch: Batch) -> Result<(), StorageError> {
        self.shared.progress.health()?;
        if self.shared.queue.is_closed() {
            return Err(StorageError::Closed);
        }
        batch.commit(Durability::Synced).inspect_err(|error| self.shared.progress.poison(&error.to_string()))
    }

    /// The last durable sequences of the stream.
    #[must_use]
    pub fn watermark(&self, stream: &StreamName) -> Watermark {
        self.shared.watermarks.read().get(stream).cloned().unwrap_or_else(Watermark::start)
    }

    /// The last durable sequences of all streams.
    pub(crate) fn watermarks(&self) -> Watermarks {
        self.shared.watermarks.read().clone()
    }

    /// The streams that have records, by name.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamName> {
        let mut streams: Vec<StreamName> = self.shared.watermarks.read().keys().cloned().collect();
        streams.sort();
        streams
    }

    /// Counters of the log since the store was opened.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        LogCounters {
            commits: self.shared.commits.load(Ordering::Relaxed),
            records: self.shared.records.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
        }
    }

    /// Commits queued work and ends the committer. Idempotent.
    pub(crate) fn stop(&self) {
        self.shared.queue.close();
        if let Some(committer) = self.committer.lock().take()
            && committer.join().is_err()
        {
            // It has poisoned the log, which the caller sees.
            tracing::error!("the log's committer panicked");
        }
    }
}

impl Shared {
    fn existing(&self, known: Lookup, id: &ObservationId) -> Result<Appended, StorageError> {
        let Lookup::Found { partition, sequence, record } = known else {
            return Err(StorageError::ObservationForgotten { id: id.as_str().to_owned() });
        };
        let ticket = self.progress.ticket(CommitPosition::START);
        let placed = Placed::new(partition, sequence, record.observation_id.clone(), ticket);
        Ok(Appended::Existing(Existing { record, placed }))
    }
}

/// Encodes everything that does not depend on the sequence, to keep the committer's work small.
fn encode(record: &Record, history: Option<HistoryEntry<'_>>) -> Result<Encoded, StorageError> {
    let value = record::encode(record);
    // An erasure lists all records of its user and must not be rejected for that.
    if value.len() > RECORD_BYTES_MAX && record.kind != RecordKind::Erase {
        return Err(StorageError::RecordTooLarge { bytes: value.len(), bytes_max: RECORD_BYTES_MAX });
    }
    Ok(Encoded::new(value, history))
}
