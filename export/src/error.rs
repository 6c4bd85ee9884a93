//! Error type of this crate.

use std::path::PathBuf;

use celeris_formats::FormatError;
use celeris_model::ModelName;
use celeris_storage::StorageError;
use thiserror::Error;

/// Error of sealing or of an export.
#[derive(Debug, Error)]
pub enum ExportError {
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The disk is nearly full; the remaining space is reserved for the log.
    #[error("{free} bytes are free, and sealing leaves the last {kept} to the log; make room for it to go on")]
    NoRoomToSeal {
        free: u64,
        /// Bytes reserved for the log.
        kept: u64,
    },
    /// The export folder is not empty.
    #[error("{} is not empty; name a folder that is, or that is not there yet", path.display())]
    FolderNotEmpty { path: PathBuf },
    /// The model to export is not in the store.
    #[error("the data directory has no model {model}; it has {known}")]
    UnknownModel {
        model: ModelName,
        /// The names of the models, as text.
        known: String,
    },
    /// A columnar file or a version cannot be read or written.
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ExportError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
