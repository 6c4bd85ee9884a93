//! The observation log: appends are synchronous, durability is asynchronous.
//!
//! The partitions are divided into *shards* (`shard.rs`): one in a node on its own, several in a
//! cluster. A node writes a shard during a *term*, in which it owns the shard. An append takes its
//! sequence and its position in the bounded queue of the term, and returns. The term's committer
//! thread takes all queued records, makes them durable as one group (`commit.rs`), and advances the
//! durable position; writers that arrive meanwhile share the next group. A failed write or sync
//! poisons the log for good: the state of RocksDB is then unknown, and only reopening the directory
//! determines what is on disk.

mod amend;
mod check;
pub(crate) mod checkpoints;
mod commit;
mod committer;
pub(crate) mod cut;
mod entries;
mod erasures;
mod pending;
mod positions;
mod prepare;
mod progress;
mod queue;
pub(crate) mod reading;
mod replication;
mod scrub;
mod shard;
mod watermark;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use celeris_model::ids::SERVER_ID_PREFIX;
use celeris_model::{ObservationId, Partition, Record, RecordKind, Shard, Shards, StreamName, UserId};
use parking_lot::RwLock;

pub(crate) use self::amend::SNAPSHOT_EPOCH_MIN;
pub(crate) use self::check::LogCheck;
use self::checkpoints::Watermarks;
use self::commit::Local;
pub use self::cut::{CutAt, CutDone, Position};
pub use self::erasures::Erasure;
pub use self::positions::SourcePosition;
pub(crate) use self::positions::copy_for_all as copy_positions_for_all;
use self::prepare::Attached;
pub use self::progress::{Committed, Placed, Ticket};
pub use self::reading::{LogRange, Lookup, observation_id};
pub use self::replication::{AppliedGroup, AppliedRecord, Journal, JournalError};
pub(crate) use self::scrub::{Scope, Scrubber};
use self::shard::{ShardLog, Term};
pub use self::watermark::Watermark;
use crate::database::{Batch, Change, Column, Database, Durability};
use crate::disk_space::SpaceGuard;
use crate::error::StorageError;
use crate::health::Health;
use crate::layout::features::{self, FrozenFeatures};
use crate::layout::hashing::Hashes;
use crate::layout::record;
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
    /// The message that the observation was in; amendments have none. The same atomic batch writes its position ([`Log::source_position`]).
    pub source: Option<SourcePosition>,
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
    /// The user already has an observation of that id; nothing was enqueued.
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

/// Key and value of the attributes of a user; no value removes them.
pub(crate) type Description = (Vec<u8>, Option<Vec<u8>>);

/// The log in the database, for all shards.
struct Records {
    database: Arc<Database>,
    hashes: Arc<Hashes>,
    scrubber: Arc<Scrubber>,
    space: Arc<SpaceGuard>,
    health: Arc<Health>,
    options: StorageOptions,
    /// The last durable sequences.
    watermarks: RwLock<Watermarks>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    commits: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
}

/// Components that the log uses.
pub(crate) struct Companions {
    pub(crate) hashes: Arc<Hashes>,
    pub(crate) scrubber: Arc<Scrubber>,
    pub(crate) space: Arc<SpaceGuard>,
    pub(crate) health: Arc<Health>,
}

/// The observation log with the threads that write it.
pub struct Log {
    records: Arc<Records>,
    layout: Shards,
    /// By number.
    shards: Box<[ShardLog]>,
}

impl Log {
    /// The log of these shards, each between two terms; `watermarks` are the last sequences of each
    /// partition.
    pub(crate) fn new(
        database: Arc<Database>,
        Companions { hashes, scrubber, space, health }: Companions,
        (layout, watermarks): (Shards, Watermarks),
        options: &StorageOptions,
    ) -> Self {
        let records = Arc::new(Records {
            database,
            hashes,
            scrubber,
            space,
            health,
            options: options.clone(),
            watermarks: RwLock::new(watermarks),
            counters: Counters::default(),
        });
        let shards = layout.all().map(|_| ShardLog::default()).collect();
        Self { records, layout, shards }
    }

    /// Begins the only term of a node on its own, whose database is the log of all shards.
    ///
    /// # Errors
    /// [`StorageError::Io`] if no thread can be started.
    pub(crate) fn own_all(&self) -> Result<(), StorageError> {
        self.layout.all().try_for_each(|shard| self.shard(shard).begin(shard, &self.records, Box::new(Local)))
    }

    /// The division of the partitions into shards.
    #[must_use]
    pub fn shards(&self) -> Shards {
        self.layout
    }

    /// The shard of a user.
    #[must_use]
    pub fn shard_of(&self, user: &UserId) -> Shard {
        self.layout.of(Partition::of(user))
    }

    /// Whether this node owns a shard, so that appends for its users are accepted. In a cluster, it may
    /// lose it at any time.
    #[must_use]
    pub fn owns(&self, shard: Shard) -> bool {
        self.shard(shard).in_term(|_| Ok(())).is_ok()
    }

    fn shard(&self, shard: Shard) -> &ShardLog {
        &self.shards[usize::from(shard.index())]
    }

    /// Enqueues one event. Does not wait for the disk; [`Placed::durable`] does.
    ///
    /// Events of one caller keep their order. An observation whose client-given id the user
    /// already has in the stream, committed or queued, is not enqueued: the existing one is
    /// returned. The same holds for an id that the server has assigned (`~partition-sequence`); a
    /// client cannot create one.
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
    /// `Overloaded`, `StorageFull`, `Poisoned`, `Closed`, `NotOwner`, `Fenced`, `MessageTaken`, `ReservedId`,
    /// `ObservationForgotten`, `NotAnObservation` or `RecordTooLarge`, with nothing enqueued; or
    /// errors of reading.
    pub fn append(&self, append: Append) -> Result<Appended, StorageError> {
        self.records.health.check_open()?;
        self.records.space.check()?;
        let shard = self.shard_of(&append.record.user);
        self.shard(shard).in_term(|term| match append.source.clone() {
            None => self.append_in(term, shard, append),
            Some(message) => self.take(term, shard, &message, || {
                let appended = self.append_in(term, shard, append)?;
                if let Appended::Existing(_) = appended {
                    term.queue.push_position(message.clone())?;
                }
                Ok(appended)
            }),
        })
    }

    fn append_in(&self, term: &Term, shard: Shard, append: Append) -> Result<Appended, StorageError> {
        let Records { database, hashes, .. } = &*self.records;
        let Append { stream, record, frozen, notes_item, source, ack } = append;
        if record.kind != RecordKind::Observe {
            let prepared = prepare::amendment(&self.records, &stream, &record)?;
            return term.queue.push(prepared, None, ack).map(Appended::New);
        }
        let prepared = |id| {
            let frozen = frozen.iter().map(|frozen| features::encode_frozen(shard, frozen)).collect();
            prepare::observation(&stream, &record, Attached { id, frozen, notes_item, source: source.clone() })
        };
        let Some(id) = &record.observation_id else {
            return term.queue.push(prepared(None)?, None, ack).map(Appended::New);
        };
        if id.as_str().starts_with(SERVER_ID_PREFIX) {
            return match reading::find_by_place(database, &stream, id)? {
                Lookup::Unknown => Err(StorageError::ReservedId { id: id.as_str().to_owned() }),
                known => existing(known, id),
            };
        }
        let hash = hashes.id(&stream, &record.user, id);
        let mut pending = term.pending.lock(hash);
        if let Some((encoded, placed)) = pending.get(&hash) {
            let record = record::decode_unsealed(encoded.value()).ok_or_else(|| StorageError::Database {
                action: "read",
                reason: "a queued record is damaged".into(),
            })?;
            return Ok(Appended::Existing(Existing { record, placed: placed.clone() }));
        }
        // The committer removes an id from `pending` only after it can be read, so one of the two
        // always has it.
        match reading::find_by_hash(database, &stream, (&record.user, id), hash)? {
            Lookup::Unknown => {}
            known => return existing(known, id),
        }
        let prepared = prepared(Some(hash))?;
        let encoded = prepared.encoded.clone();
        let placed = term.queue.push(prepared, Some(id.clone()), ack)?;
        pending.insert(hash, (encoded, placed.clone()));
        Ok(Appended::New(placed))
    }

    /// See [`crate::Histories::keep_snapshot`].
    pub(crate) fn keep_snapshot(
        &self,
        partition: Partition,
        (key, value): (Vec<u8>, Vec<u8>),
    ) -> Result<(), StorageError> {
        self.records.health.check_open()?;
        self.records.space.check()?;
        let change = Change::Put(Column::Snapshots, key, value);
        self.shard(self.layout.of(partition)).in_term(|term| term.queue.push_derived(change))
    }

    /// Writes what can be derived from the log, outside its order, and syncs it.
    ///
    /// # Errors
    /// `Poisoned`, `Closed` or `Database`; a failure poisons the log.
    pub(crate) fn write_derived(&self, batch: Batch<'_>) -> Result<(), StorageError> {
        let health = &self.records.health;
        health.check_open()?;
        batch.commit(Durability::Synced).inspect_err(|error| health.poison(&error.to_string()))
    }

    /// See [`crate::Items::freeze`].
    pub(crate) fn freeze(&self, shard: Shard, entry: (Vec<u8>, Vec<u8>)) -> Result<Ticket, StorageError> {
        self.records.health.check_open()?;
        self.shard(shard).in_term(|term| term.queue.push_freeze(entry))
    }

    /// See [`crate::UserAttributes::put`].
    pub(crate) fn describe(&self, user: &UserId, (key, value): Description) -> Result<Ticket, StorageError> {
        self.records.health.check_open()?;
        self.records.space.check()?;
        self.shard(self.shard_of(user)).in_term(|term| term.queue.push_description(key, value))
    }

    /// The last durable sequences of the stream.
    #[must_use]
    pub fn watermark(&self, stream: &StreamName) -> Watermark {
        self.records.watermark(stream)
    }

    /// The last durable sequences of all streams.
    pub(crate) fn watermarks(&self) -> Watermarks {
        self.records.watermarks()
    }

    /// The streams that have records, by name.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamName> {
        let mut streams: Vec<StreamName> = self.records.watermarks.read().keys().cloned().collect();
        streams.sort();
        streams
    }

    /// Counters of the log since the store was opened.
    #[must_use]
    pub fn counters(&self) -> LogCounters {
        let Counters { commits, records, bytes } = &self.records.counters;
        LogCounters {
            commits: commits.load(Ordering::Relaxed),
            records: records.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        }
    }

    /// Commits queued work and ends the committers. Idempotent.
    pub(crate) fn stop(&self) {
        self.shards.iter().for_each(ShardLog::end);
    }
}

/// Also when the store fails to open: no thread may use the database while the process ends.
impl Drop for Log {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Records {
    fn watermarks(&self) -> Watermarks {
        self.watermarks.read().clone()
    }

    fn watermark(&self, stream: &StreamName) -> Watermark {
        self.watermarks.read().get(stream).cloned().unwrap_or_else(Watermark::start)
    }
}

/// The answer to an append of a known id.
fn existing(known: Lookup, id: &ObservationId) -> Result<Appended, StorageError> {
    let Lookup::Found { partition, sequence, record } = known else {
        return Err(StorageError::ObservationForgotten { id: id.as_str().to_owned() });
    };
    let placed = Placed::new(partition, sequence, record.observation_id.clone(), Ticket::DURABLE);
    Ok(Appended::Existing(Existing { record, placed }))
}
