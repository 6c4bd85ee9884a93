//! The storage layer of one node: the observation log with its indexes, items and features, the registry, decisions.
//!
//! # Guarantees
//!
//! - **Durable means synced.** [`Log::append`] returns at once with the record's position; [`Placed::durable`]
//!   resolves after the sync of the write that holds the record. Concurrent writers share that sync.
//! - **Atomicity.** A record, its history entry, its id and the features it freezes are one atomic write.
//! - **Idempotence.** A client-given observation id names one observation of a stream, also while that one is in the
//!   queue, and after it was retracted or erased.
//! - **Bounded waits.** A lone append is written at once and alone. One that arrives during a commit waits for that
//!   commit and for its own, as long as the queue holds no more than one commit takes (`commit_records_max`,
//!   `commit_bytes_max`); beyond that, waits are bounded by the queue, and a full queue rejects appends.
//! - **Erasure.** A correction, retraction or erasure changes earlier records in its own atomic write; retracted and
//!   erased data leave the disk within a stated time (`scrub.rs`).
//! - **Nearly full disks.** Before the disk is full, observations are rejected; reads continue, and observations are
//!   accepted again once there is space (`space.rs`).
//! - **Poisoning.** After a failed write nothing more is acknowledged; durable data can still be read.
//! - **No silent loss.** All reads are checked. Opening checks the write-ahead log and the most recent writes,
//!   truncates the torn end of the last write with a warning (`wal_check.rs` explains how it differs from damage, and
//!   which cases cannot be distinguished), and fails on all other damage, naming the file; the rest is verified in the
//!   background, at a bounded rate. Damage found there poisons the log, and the next opening fails (`verifier.rs`).
//! - **Bounded start.** The time of opening does not grow with the store (`checkpoints.rs`).
//!
//! # Non-goals
//!
//! The store refers to models, versions and policies by name or id only, makes no decision about a user, does not
//! replicate, and has no query language. It is the only crate that uses RocksDB, and in it `database.rs` is the only
//! file. Reads and administrative writes block on the disk: asynchronous callers run them on a blocking thread.
//!
//! # The data directory
//!
//! | entry        | contents                                                                                     |
//! |--------------|----------------------------------------------------------------------------------------------|
//! | `FORMAT`     | `{"format":2,"partitions":64}`; another version or count is refused                          |
//! | `LOCK`       | locked while the store is open; a second opening is refused                                  |
//! | `VERIFICATION` | the state of the background verification; may be removed                                   |
//! | `db/`        | RocksDB: everything that must not be lost; all writes are synced                             |
//! | `decisions/` | RocksDB: decisions, written unsynced; may be removed while the store is closed to lose these |
//! | `selections/` | stored states of selections; may be removed                                                |
//! | others       | `versions/` and `jobs/` belong to the manager                                                |
//!
//! # The layout on disk
//!
//! `keys.rs` has the table of column families and keys, `record.rs` the stored form of a record, composed of the parts
//! in `wire.rs`, `envelope.rs` the format byte and checksum around every value. Each has a test that fixes its bytes.
//! Rationale of the log: `docs/rfcs/002-observation-log.md`.
//!
//! # Modules
//!
//! `store.rs` opens and closes; `log/` has the queue, the committer and the tickets, with `log/amend.rs` for changes of
//! earlier records; `history.rs` reads the log, `events.rs` the events for user states; `erasures.rs`,
//! `erased_users.rs`, `hashing.rs` and `scrub.rs` implement the erasure of users; `snapshots.rs`, `items.rs`,
//! `features.rs`, `registry.rs`, `selection_states.rs` and `decisions/` store the rest; `directory.rs`, `wal_check.rs`, `checkpoints.rs`,
//! `verify.rs` and `verifier.rs` detect damage; [`faults`] has the points at which tests stop a node.

mod checkpoints;
mod database;
mod decisions;
mod directory;
mod disk_space;
mod envelope;
mod erased_users;
mod erasures;
mod error;
mod events;
pub mod faults;
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
mod selection_states;
mod snapshots;
mod space;
mod store;
mod verifier;
mod verify;
mod wal_check;
mod watermark;
mod wire;

pub use database::BytesWritten;
pub use decisions::{DecisionCounters, DecisionRange, Decisions, ErasingDecisions, LateCandidates, LatePropensity};
pub use disk_space::DiskSpace;
pub use erased_users::ErasedUsers;
pub use erasures::Erasure;
pub use error::StorageError;
pub use events::{Event, Events};
pub use features::{FrozenFeatures, ItemFeatures};
pub use history::{Histories, LogRange, Lookup, observation_id};
pub use history_spans::HistorySpan;
pub use items::{ItemRecord, ItemWrite, Items, SweptItem};
pub use log::{
    AckMode, Append, Appended, CommitPosition, Committed, Existing, Log, LogCounters, Placed, RECORD_BYTES_MAX, Ticket,
};
pub use options::StorageOptions;
pub use registry::{Documents, ListedDocument, RegistryBatch, RegistryKey};
pub use selection_states::SelectionStates;
pub use snapshots::Snapshot;
pub use store::Storage;
pub use verifier::Verification;
pub use watermark::Watermark;
