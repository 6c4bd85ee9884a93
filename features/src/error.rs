//! The error type of this crate.

use std::path::PathBuf;

use celeris_model::ModelError;
use thiserror::Error;

/// Errors of writing or reading a version directory.
#[derive(Debug, Error)]
pub enum FeaturesError {
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
    /// The manifest is missing, unreadable or of an unknown format.
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
    /// A number of a version is beyond the bounds of sound training.
    #[error("{}: {what} is {value:e}, at most {max:e} in magnitude is allowed; check the labels and the trainer for values that diverge", path.display())]
    OutOfBounds {
        path: PathBuf,
        /// A description of the number.
        what: String,
        value: f64,
        max: f64,
    },
    /// The contents are inconsistent or violate the rules of [`ModelError`].
    #[error(transparent)]
    Model(#[from] ModelError),
}
