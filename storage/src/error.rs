//! The one error type of this crate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::log::RECORD_BYTES_MAX;

/// What can go wrong with the store. Nothing that was refused has been written.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The file system refused something outside RocksDB.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another process, or another [`crate::Storage`] of this one, holds the directory.
    #[error("the data directory {} is in use by another process; stop it, or choose another directory", .dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// The directory was written by another version of this program, or is not a data directory at all.
    #[error("the data directory {} cannot be opened by this version: {reason}", .dir.display())]
    UnknownFormat {
        /// The data directory.
        dir: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
    /// Stored bytes are damaged where no crash damages them.
    #[error(
        "{} is damaged{}: {reason}; no record was changed: restore the data directory from a backup or a replica",
        .file.display(),
        .offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
    )]
    CorruptLog {
        /// The damaged file, or the database's directory where RocksDB names no file.
        file: PathBuf,
        /// Where in the file, if known.
        offset: Option<u64>,
        /// What is wrong there.
        reason: String,
    },
    /// An entry was read whole but is not what was written.
    #[error(
        "the entry {key} of column family `{column}` is damaged: {reason}; restore the data directory from a backup or \
         a replica"
    )]
    Corrupt {
        /// The column family.
        column: &'static str,
        /// The entry's key, in hexadecimal.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// RocksDB failed for another reason than corruption.
    #[error("cannot {action}: {reason}")]
    Database {
        /// What was tried.
        action: &'static str,
        /// RocksDB's own words.
        reason: String,
    },
    /// The queue of the log is full; nothing was enqueued.
    #[error("{queued} records wait for the disk already; try again later")]
    Overloaded {
        /// Records waiting.
        queued: usize,
    },
    /// The disk is nearly full; nothing was enqueued. Appends are accepted again once there is space.
    #[error(
        "the disk is nearly full: {free} bytes are free and {needed} are kept in reserve; make room, no restart is needed"
    )]
    StorageFull {
        /// Bytes free on the data directory's file system.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// An earlier write or sync failed, or the verification found damage, so nothing more is accepted until the store is
    /// opened again.
    #[error("the log accepts no more writes ({cause}); check the disk and restart")]
    Poisoned {
        /// The first failure, or the damage.
        cause: Arc<str>,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// A client's observation has an id of those that nodes make ([`celeris_model::ObservationId::is_reserved`]).
    #[error(
        "observation_id {id} begins with `~` or `default-reward-`, which are reserved for ids made by the server; choose \
         another"
    )]
    ReservedId {
        /// The id.
        id: String,
    },
    /// The id names an observation that was retracted, or erased with its user.
    #[error("observation {id} was forgotten, and its id is not free; send a new observation under another id")]
    ObservationForgotten {
        /// The id.
        id: String,
    },
    /// A correction or retraction names no observation of its user.
    #[error("observation {id} cannot be corrected or retracted: that user has no observation of this id")]
    NotAnObservation {
        /// The id, in the form `~partition-sequence`.
        id: String,
    },
    /// A record is larger than any sound one.
    #[error("the record takes {bytes} bytes, more than the {} allowed; shorten its texts", RECORD_BYTES_MAX)]
    RecordTooLarge {
        /// Its encoded size.
        bytes: usize,
    },
    /// A registry key has no part, or a part that is empty or too long.
    #[error("a registry key needs at least one part, of 1 to 256 bytes each, got {parts:?}")]
    RegistryKey {
        /// The parts received.
        parts: Vec<String>,
    },
    /// A registry document cannot be written as JSON or read as the type asked for.
    #[error("the registry document {key} does not fit its type: {reason}")]
    Document {
        /// Its key.
        key: String,
        /// Why not.
        reason: String,
    },
}

impl StorageError {
    /// Adapts an I/O error for `map_err`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
