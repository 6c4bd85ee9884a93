//! The storage layer of one node: the observation log with its indexes, items and features, the
//! registry, decisions.
//!
//! # Guarantees
//!
//! - **Durable means synced.** [`Log::append`] returns at once with the record's position;
//!   [`Placed::durable`] resolves after the sync of the write that holds the record. Concurrent
//!   writers share that sync.
//! - **Atomicity.** A record, its history entry, its id and the features it freezes are one atomic
//!   write.
//! - **Idempotence.** A client-given observation id names one observation of a user of a stream,
//!   also while that one is in the queue, and after it was retracted or erased.
//! - **Bounded waits.** A lone append is written at once and alone. One that arrives during a
//!   commit waits for that commit and for its own, as long as the queue holds no more than one
//!   commit takes (`commit_records_max`, `commit_bytes_max`); beyond that, waits are bounded by the
//!   queue, and a full queue rejects appends.
//! - **Erasure.** A correction, retraction or erasure changes earlier records in its own atomic
//!   write; retracted and erased data leave the disk within a stated time (`log/scrub.rs`).
//! - **Nearly full disks.** Before the disk is full, observations are rejected; reads continue, and
//!   observations are accepted again once there is space (`disk_space.rs`).
//! - **Poisoning.** After a failed write nothing more is acknowledged; durable data can still be
//!   read.
//! - **No silent loss.** All reads are checked. Opening checks the write-ahead log and the most
//!   recent writes, truncates the torn end of the last write with a warning
//!   (`verification/wal_check.rs` explains how it differs from damage, and which cases cannot be
//!   distinguished), and fails on all other damage, naming the file; the rest is verified in the
//!   background, at a bounded rate. Damage found there poisons the log, and the next opening fails
//!   (`verification/`).
//! - **Bounded start.** The time of opening does not grow with the store (`log/checkpoints.rs`).
//!
//! # Non-goals
//!
//! The store refers to models, versions and policies by name or id only, makes no decision about a
//! user, does not replicate, and has no query language. It is the only crate that uses RocksDB, and
//! in it `database/` is the only module. Reads and administrative writes block on the disk:
//! asynchronous callers run them on a blocking thread.
//!
//! # The data directory
//!
//! | entry        | contents                                                                                     |
//! |--------------|----------------------------------------------------------------------------------------------|
//! | `FORMAT`     | `{"format":3,"partitions":64}`; another version or count is refused                          |
//! | `LOCK`       | locked while the store is open; a second opening is refused                                  |
//! | `VERIFICATION` | the state of the background verification; may be removed                                   |
//! | `db/`        | RocksDB: everything that must not be lost; all writes are synced                             |
//! | `decisions/` | RocksDB: decisions, written unsynced; may be removed while the store is closed to lose these |
//! | `selections/` | stored states of selections; may be removed                                                |
//! | others       | `versions/` and `jobs/` belong to the manager                                                |
//!
//! # The layout on disk
//!
//! `layout/` has the stored forms that several components share: `keys.rs` the table of column
//! families and keys, `record.rs` the form of a record, composed of the parts in `celeris_model::wire`,
//! `envelope.rs` the format byte and checksum around every value; each has a test that fixes its
//! bytes. A form that one component alone uses is in that component. Rationale of the log:
//! `docs/rfcs/002-observation-log.md`.
//!
//! # Modules
//!
//! From top to bottom; a module uses only those below it, and none uses [`Storage`], which owns
//! them.
//!
//! | module                                  | purpose                                                              |
//! |-----------------------------------------|----------------------------------------------------------------------|
//! | `store`                                 | [`Storage`]: opens and closes the others in order                    |
//! | `verification`                          | damage: the write-ahead log on opening, everything in the background |
//! | `history`, `items`, `registry`          | users' histories and snapshots; items and features; documents        |
//! | `user_attributes`                       | attributes of users, in the order of the log                         |
//! | `log`                                   | queue, committer, tickets; amendments, erasures and their scrubbing; |
//! |                                         | look-up by position and id; checkpoints                              |
//! | `decisions`                             | decisions, in their own database; independent of the log             |
//! | `selection_states`                      | states of selections, which can be read from the log instead         |
//! | `disk_space`, `erased_users`            | rejects writes before the disk is full; users who are being erased   |
//! | `directory`                             | lock and format of the data directory                                |
//! | `layout`                                | stored forms of keys and values                                      |
//! | `database`                              | RocksDB: columns, ranges of keys, atomic batches                     |
//! | `options`, `error`                      | limits and schedules; the error type                                 |
//! | `spans`                                 | names of the spans of traces                                         |
//! | [`faults`]                              | points at which tests stop a node                                    |
//! | `memory_log`                            | replicated logs of several stores in one process, for tests          |

mod catalog_log;
mod database;
mod decisions;
mod directory;
mod disk_space;
mod erased_users;
mod error;
pub mod faults;
mod health;
mod history;
mod items;
mod layout;
mod left_decisions;
mod log;
#[cfg(any(test, feature = "memory-log"))]
pub mod memory_log;
mod options;
mod registry;
mod replica;
mod selection_states;
mod spans;
mod store;
mod user_attributes;
mod verification;

pub use database::BytesWritten;
pub use decisions::{
    AddedEvent, DecisionCounters, DecisionRange, Decisions, ErasingDecisions, LateCandidates, LatePropensity,
};
pub use directory::{ClusterIdentity, DirectoryContents, DirectoryLock};
pub use disk_space::DiskSpace;
pub use erased_users::ErasedUsers;
pub use error::StorageError;
pub use history::{Events, Histories, HistorySpan, Snapshot};
pub use items::{ChangedItem, ItemRecord, ItemWrite, Items, SweptItem};
pub use layout::event::Event;
pub use layout::features::{FrozenFeatures, ItemFeatures};
pub use log::{
    AckMode, Append, Appended, AppliedGroup, AppliedRecord, Committed, CutAt, CutDone, Erasure, Existing, Journal,
    JournalError, Log, LogCounters, LogRange, Lookup, Placed, Position, RECORD_BYTES_MAX, SourcePosition, Ticket,
    Watermark, observation_id,
};
pub use options::StorageOptions;
pub use registry::{Documents, ListedDocument, RegistryBatch, RegistryKey};
pub use replica::{Applied, Replica};
pub use selection_states::SelectionStates;
pub use spans::{ROOTS, SPANS};
pub use store::Storage;
pub use user_attributes::{DescribedUser, UserAttributes};
pub use verification::Verification;
