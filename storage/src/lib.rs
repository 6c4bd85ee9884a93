//! The storage layer of one node: the observation log with its indexes, items and features, the registry, decisions.
//!
//! # What it promises
//!
//! - **Durable means synced.** [`Storage::append`] returns at once with the record's place; [`Placed::durable`] resolves
//!   after the sync of the write that holds the record. Writers that come together share that sync.
//! - **All or nothing.** A record, its history entry, its id and the features it freezes are one atomic write.
//! - **Once.** A client-given observation id names one observation of a stream, also while that one is in the queue, and
//!   after it was retracted or erased.
//! - **A bounded wait.** A lone append is written at once and alone. One that comes while a commit is under way waits
//!   for that one and for its own, as long as the queue holds no more than one commit takes (`commit_records_max`,
//!   `commit_bytes_max`); the queue's bounds give the rest, and a full queue refuses.
//! - **Forgetting.** A correction, retraction or erasure changes the records before it in its own atomic write; what was
//!   retracted or erased leaves the disk within a stated time (`scrub.rs`).
//! - **Full is not broken.** Before the disk is full, observations are refused; reads go on, and so do observations once
//!   there is space (`space.rs`).
//! - **Poison.** After a failed write nothing more is acknowledged; durable data can still be read.
//! - **No silent loss.** What is read is checked. Opening checks the write-ahead log and what was written last, cuts the
//!   torn end of the last write with a warning (`wal_check.rs` says how it is told from damage, and what cannot be), and
//!   refuses all other damage, naming the file; the rest is verified in the background, at a bounded rate, and damage found
//!   there poisons the log and is refused by the next opening (`verifier.rs`).
//! - **A bounded start.** The time that opening takes does not grow with the store (`checkpoints.rs`).
//!
//! # What it is not
//!
//! It knows no models, versions or policies beyond their names, makes no decision about a user, does not replicate,
//! and has no query language. It is the only crate that knows RocksDB, and in it `database.rs` is the only file.
//! Reads and administrative writes block on the disk: asynchronous callers put them on a blocking thread.
//!
//! # The data directory
//!
//! | entry        | holds                                                                                        |
//! |--------------|----------------------------------------------------------------------------------------------|
//! | `FORMAT`     | `{"format":2,"partitions":64}`; another version or count is refused                          |
//! | `LOCK`       | locked while the store is open; a second opening is refused                                  |
//! | `VERIFICATION` | how far the background verification has come; may be removed                         |
//! | `db/`        | RocksDB: everything that must not be lost; all writes are synced                             |
//! | `decisions/` | RocksDB: decisions, written unsynced; may be removed while the store is closed to lose these |
//! | others       | `versions/` and `jobs/` are the manager's                                                    |
//!
//! # The layout on disk
//!
//! `keys.rs` has the table of column families and keys, `record.rs` the stored form of a record, made of the parts in
//! `wire.rs`, `envelope.rs` the format byte and checksum around every value. Each pins its bytes in a test. Why the log is as it is:
//! `docs/rfcs/002-observation-log.md`.
//!
//! # Where to look
//!
//! `store.rs` opens and closes; `log/` is the queue, the committer and the tickets, with `log/amend.rs` for what changes
//! earlier records; `history.rs` reads the log, and `events.rs` is what states learn of it; `erasures.rs`,
//! `erased_users.rs`, `hashing.rs` and `scrub.rs` are how a user is forgotten; `snapshots.rs`, `items.rs`, `features.rs`,
//! `registry.rs` and `decisions/` hold the rest; `directory.rs`, `wal_check.rs`, `checkpoints.rs`, `verify.rs` and `verifier.rs`
//! keep a node from running on a damaged disk.

mod checkpoints;
mod database;
mod decisions;
mod directory;
mod envelope;
mod erased_users;
mod erasures;
mod error;
mod events;
mod features;
mod hashing;
mod history;
mod history_spans;
mod items;
mod keys;
mod log;
mod options;
mod record;
mod registry;
mod scrub;
mod snapshots;
mod space;
mod store;
mod verifier;
mod verify;
mod wal_check;
mod watermark;
mod wire;

pub use database::BytesWritten;
pub use decisions::{DecisionCounters, DecisionRange, ErasingDecisions, LateCandidates, LatePropensity};
pub use erased_users::ErasedUsers;
pub use erasures::Erasure;
pub use error::StorageError;
pub use events::{Event, Events};
pub use features::{FrozenFeatures, ItemFeatures};
pub use history::{LogRange, Lookup, observation_id};
pub use history_spans::HistorySpan;
pub use items::{ItemRecord, ItemWrite, SweptItem};
pub use log::{
    AckMode, Append, Appended, CommitPosition, Committed, Existing, LogCounters, Placed, RECORD_BYTES_MAX, Ticket,
};
pub use options::StorageOptions;
pub use registry::{ListedDocument, RegistryBatch, RegistryKey};
pub use snapshots::Snapshot;
pub use store::Storage;
pub use verifier::Verification;
pub use watermark::Watermark;
