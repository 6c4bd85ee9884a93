//! The error type of this crate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use celeris_model::{LogId, SourceId};
use thiserror::Error;

/// Errors of the store. A rejected operation has not written anything.
#[derive(Debug, Error)]
pub enum StorageError {
    /// A file system error outside RocksDB.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another process, or another [`crate::Storage`] of this process, has locked the directory.
    #[error("the data directory {} is in use by another process; stop it, or choose another directory", .dir.display())]
    InUse { dir: PathBuf },
    /// The directory was written by another version of this program, or is not a data directory.
    #[error("the data directory {} cannot be opened: {reason}", .dir.display())]
    UnknownFormat {
        dir: PathBuf,
        /// The problem and a remedy.
        reason: String,
    },
    /// Stored bytes are damaged in a way that no crash causes.
    #[error(
        "{} is damaged{}: {reason}; no record was changed: restore the data directory from a backup or a replica",
        .file.display(),
        .offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
    )]
    CorruptLog {
        /// The damaged file, or the database's directory if RocksDB names no file.
        file: PathBuf,
        /// Offset in the file, if known.
        offset: Option<u64>,
        reason: String,
    },
    /// An entry has a wrong checksum or cannot be decoded.
    #[error(
        "the entry {key} of column family `{column}` is damaged: {reason}; restore the data directory from a backup or \
         a replica"
    )]
    Corrupt {
        column: &'static str,
        /// The entry's key, in hexadecimal.
        key: String,
        reason: String,
    },
    /// RocksDB failed for a reason other than corruption.
    #[error("cannot {action}: {reason}")]
    Database {
        /// The attempted action.
        action: &'static str,
        /// RocksDB's message.
        reason: String,
    },
    /// The queue of the log is full; nothing was enqueued.
    #[error("{queued} records wait for the disk already; try again later")]
    Overloaded { queued: usize },
    /// The disk is nearly full; nothing was enqueued. Appends are accepted again once there is
    /// space.
    #[error(
        "the disk is nearly full: {free} bytes are free and {needed} are kept in reserve; make room, no restart is needed"
    )]
    StorageFull {
        /// Bytes free on the data directory's file system.
        free: u64,
        /// Required free bytes.
        needed: u64,
    },
    /// An earlier write or sync failed, or the verification found damage; nothing more is accepted
    /// until the store is opened again.
    #[error("the log accepts no more writes ({cause}); mend that, and start the node again")]
    Poisoned {
        /// The first failure, or the damage.
        cause: Arc<str>,
    },
    #[error("the store is closed")]
    Closed,
    /// A client's observation has a reserved id ([`celeris_model::ObservationId::is_reserved`]).
    #[error(
        "observation_id {id} begins with `~` or `default-reward-`, which are reserved for ids made by the server; choose \
         another"
    )]
    ReservedId { id: String },
    /// The shard has this message, or a later one of its source, already.
    #[error("message {offset} of {message_source} is in the log already")]
    MessageTaken { message_source: SourceId, offset: u64 },
    /// Another node owns the shard; nothing was enqueued.
    #[error("another node owns the shard of this user")]
    NotOwner,
    /// Another node took the shard over before the write was durable; it is not in the log.
    #[error("another node took over the shard of this user before the write was durable; nothing was written")]
    Fenced,
    /// A replicated log does not continue the records of this store.
    #[error("the log of {log} does not continue this node's copy: {reason}; copy the store of another node")]
    Diverged { log: LogId, reason: String },
    /// Observations of several users have this id.
    #[error("several users have an observation {id}; name the user with ?user=")]
    AmbiguousId { id: String },
    /// The id belongs to an observation that was retracted, or erased with its user.
    #[error("observation {id} was forgotten, and its id is not free; send a new observation under another id")]
    ObservationForgotten { id: String },
    /// A correction or retraction does not refer to an observation of its user.
    #[error("observation {id} cannot be corrected or retracted: that user has no observation of this id")]
    NotAnObservation {
        /// The id, in the form `~partition-sequence`.
        id: String,
    },
    /// A record exceeds the size limit.
    #[error("the record takes {bytes} bytes, more than the {bytes_max} allowed; shorten its texts")]
    RecordTooLarge {
        /// Its encoded size.
        bytes: usize,
        bytes_max: usize,
    },
    /// A commit to the catalog of a cluster exceeds the size limit of its log.
    #[error("the change takes {bytes} bytes, more than the {bytes_max} that a cluster's log takes at once")]
    CommitTooLarge {
        /// Its encoded size.
        bytes: usize,
        bytes_max: usize,
    },
    /// A registry key has no parts, or a part that is empty or too long.
    #[error("a registry key needs at least one part, of 1 to 256 bytes each, got {parts:?}")]
    RegistryKey { parts: Vec<String> },
    /// A registry document cannot be serialised as JSON or deserialised as the requested type.
    #[error("the registry document {key} does not fit its type: {reason}")]
    Document { key: String, reason: String },
}

impl StorageError {
    /// Adapts an I/O error for `map_err`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
