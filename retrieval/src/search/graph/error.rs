//! Errors of graph indexes.

use std::path::PathBuf;

/// The reason why there is no graph. Searches are exact without one.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// A path that is not valid UTF-8.
    #[error("{path}: the index library takes paths in UTF-8 only; choose another data directory")]
    Path { path: PathBuf },
    /// A file is damaged.
    #[error("{path}: damaged or of another format; remove it and the index is built again")]
    Torn { path: PathBuf },
    /// The index was built from other features.
    #[error("{path}: built from other features; remove it and the index is built again")]
    OtherTable { path: PathBuf },
    /// The build was stopped.
    #[error("the build of the index was stopped")]
    Stopped,
    /// No query to measure with.
    #[error("an index is measured by sample queries, and there is none; give at least one")]
    NoQueries,
    /// An error of the library.
    #[error("the index library: {message}")]
    Library { message: String },
}

impl GraphError {
    pub(super) fn library(error: impl std::fmt::Display) -> Self {
        Self::Library { message: error.to_string() }
    }
}
