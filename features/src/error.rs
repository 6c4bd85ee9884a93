//! The one error type of this crate.

use std::path::PathBuf;

use celeris_model::ModelError;
use thiserror::Error;

/// Why a version directory could not be written, or must not be believed.
#[derive(Debug, Error)]
pub enum FeaturesError {
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A file is not readable Parquet, or could not be written as such.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: parquet::errors::ParquetError,
    },
    /// A column is missing or of a type that cannot be read as the one expected.
    #[error("{}: column {column}: {problem}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A value is out of its range.
    #[error("{}: row {row}: column {column}: {problem}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: usize,
        /// The column.
        column: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The manifest is missing, unreadable or of an unknown format.
    #[error("{}: {problem}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file is not the one that the manifest names.
    #[error("{}: {what} is {found}, the manifest says {expected}; the file has changed since it was written", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// By the manifest.
        expected: String,
        /// As found.
        found: String,
    },
    /// A number of a version is larger than any sound training makes it.
    #[error("{}: {what} is {value:e}, at most {max:e} in magnitude is taken; check the labels and the trainer for values that diverge", path.display())]
    OutOfBounds {
        /// The file.
        path: PathBuf,
        /// The number.
        what: String,
        /// As found.
        value: f64,
        /// The bound.
        max: f64,
    },
    /// The contents contradict themselves or the model's rules.
    #[error(transparent)]
    Model(#[from] ModelError),
}
