//! The error type of this crate.

use std::path::PathBuf;

use thiserror::Error;

/// Errors of writing or reading a columnar file or a version directory.
#[derive(Debug, Error)]
pub enum FormatError {
    /// A file system error.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A file is not readable Parquet, or could not be written as such.
    #[error("{}: {source}", path.display())]
    Parquet { path: PathBuf, source: parquet::errors::ParquetError },
    /// A column is missing or has a type that cannot be converted to the expected one.
    #[error("{}: column {column}: {problem}", path.display())]
    Column { path: PathBuf, column: String, problem: String },
    /// A value is invalid or out of its range.
    #[error("{}: row {row}: column {column}: {problem}", path.display())]
    Value {
        path: PathBuf,
        /// The row, from 0.
        row: usize,
        column: String,
        problem: String,
    },
    /// The manifest is missing, unreadable or of an unknown format, or contradicts a file.
    #[error("{}: {problem}", path.display())]
    Manifest { path: PathBuf, problem: String },
    /// A file does not match its entry in the manifest.
    #[error("{}: {what} is {found}, the manifest says {expected}; the file has changed since it was written", path.display())]
    Mismatch {
        path: PathBuf,
        /// The property that differs.
        what: &'static str,
        /// The value in the manifest.
        expected: String,
        /// The value found.
        found: String,
    },
}

impl FormatError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
