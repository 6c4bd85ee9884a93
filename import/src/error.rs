//! Errors: of a row, which may be set aside, and of a file or of the arguments, which end an
//! import.

use std::fmt;
use std::io;

use celeris_datasets::DatasetError;
use celeris_formats::FormatError;
use celeris_location::LocationError;
use thiserror::Error;

/// An error that ends an import. Messages name the cause and what to do about it.
#[derive(Debug, Error)]
pub enum ImportError {
    #[error("{file}: {source}")]
    Io { file: String, source: io::Error },
    /// The arguments contradict each other or the file.
    #[error("{0}")]
    Usage(String),
    /// The file as a whole cannot be read in the given way.
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(transparent)]
    Location(#[from] LocationError),
}

impl ImportError {
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { file, source }
    }

    pub(crate) fn file(file: &str, problem: impl Into<String>) -> Self {
        Self::File { file: file.to_owned(), problem: problem.into() }
    }
}

/// A row that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    pub place: Place,
    /// The cause, and what is expected instead.
    pub reason: String,
    /// The row as it is in the file; of Parquet, as JSON.
    pub raw: Vec<u8>,
}

impl fmt::Display for BadRow {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.reason)
    }
}

/// Where a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    /// The line at which the row begins, or the row of a Parquet file; from 1.
    pub number: u64,
    pub unit: PlaceUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceUnit {
    Line,
    Row,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self.unit {
            PlaceUnit::Line => write!(formatter, "{}:{}", self.file, self.number),
            PlaceUnit::Row => write!(formatter, "{}: row {}", self.file, self.number),
        }
    }
}

impl PlaceUnit {
    /// The word before a number.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Row => "row",
        }
    }
}

/// Why the next row was not read.
#[derive(Debug)]
pub enum Fault {
    /// The row is bad; reading can go on after it.
    Row(BadRow),
    /// Reading cannot go on.
    File(ImportError),
}

impl<E: Into<ImportError>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::File(error.into())
    }
}
