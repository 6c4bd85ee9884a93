//! What can go wrong with an index's file.

use std::path::PathBuf;

/// Why there is no graph. Searches are exact without one.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A path that is no text.
    #[error("{path}: the index library takes paths in UTF-8 only; choose another data directory")]
    Path {
        /// Which.
        path: PathBuf,
    },
    /// A file is not as it was written.
    #[error("{path}: damaged or of another format; remove it and the index is built again")]
    Torn {
        /// Which.
        path: PathBuf,
    },
    /// The index belongs to other features.
    #[error("{path}: built from other features; remove it and the index is built again")]
    OtherTable {
        /// Which.
        path: PathBuf,
    },
    /// The build was asked to stop.
    #[error("the build of the index was stopped")]
    Stopped,
    /// No query to measure with.
    #[error("an index is measured by sample queries, and there is none; give at least one")]
    NoQueries,
    /// What the library says.
    #[error("the index library: {message}")]
    Library {
        /// Its words.
        message: String,
    },
}

impl GraphError {
    pub(super) fn library(error: impl std::fmt::Display) -> Self {
        Self::Library { message: error.to_string() }
    }
}
