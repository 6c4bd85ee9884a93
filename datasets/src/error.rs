//! The one error type of this crate.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An error of a file, a setting or a download. Nothing is left partially done on error.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// An operating system error, or a damaged compressed file.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A folder contains no ratings file.
    #[error("{}: no ratings file here; expected one of {known}, each also with .gz", .folder.display())]
    NoRatingsFile {
        folder: PathBuf,
        /// The names searched for.
        known: String,
    },
    /// The first line of a file has no known format.
    #[error("{}: not a known ratings format (first line {first_line:?}); known are {known}", .file.display())]
    UnknownFormat {
        file: PathBuf,
        /// The beginning of its first line.
        first_line: String,
        /// The known formats, as text.
        known: &'static str,
    },
    /// A folder does not contain exactly one log of impressions.
    #[error(
        "{}: {found} logs of impressions here; expected one, such as men.csv, beside item_context.csv",
        .folder.display()
    )]
    NoImpressions {
        folder: PathBuf,
        /// Number of CSV files in it that could be a log.
        found: usize,
    },
    /// A required column is missing in the header of a file.
    #[error("{}:1: no column {column} in the header", .file.display())]
    NoColumn { file: PathBuf, column: &'static str },
    /// The probabilities of a position do not sum to 1.
    #[error("{}: the probabilities of position {position} sum to {sum}; they must sum to 1", .file.display())]
    Sum {
        file: PathBuf,
        /// The position, as numbered in the log.
        position: usize,
        sum: f64,
    },
    /// A file has no rows of data.
    #[error("{}: holds no {what}", .file.display())]
    Empty {
        file: PathBuf,
        /// The kind of rows expected.
        what: &'static str,
    },
    /// A field of a row is missing, superfluous or invalid.
    #[error("{}:{line}: field {field}: expected {expected}, got {got}", .file.display())]
    BadField {
        file: PathBuf,
        /// The line at which the row begins, from 1.
        line: u64,
        /// The column, as named in the file's header if it has one.
        field: String,
        /// Description of a valid value.
        expected: &'static str,
        /// The beginning of the value, quoted, or a description if it is not text.
        got: String,
    },
    /// A row is too long.
    #[error("{}:{line}: row is longer than {bytes_max} bytes; look for a missing line break or closing quote", .file.display())]
    RowTooLong {
        file: PathBuf,
        /// The line at which the row begins, from 1.
        line: u64,
        bytes_max: usize,
    },
    /// A line is no logged decision.
    #[error("{}:{line}: {problem}", .file.display())]
    BadLine {
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        problem: String,
    },
    /// A file has more entries than are read into memory.
    #[error("{}: more than {max} {what}; too many to hold in memory", .file.display())]
    TooMany {
        file: PathBuf,
        /// The kind of entries.
        what: &'static str,
        max: usize,
    },
    /// A setting of the synthetic generator is out of its range.
    #[error("{setting} must be {range}, got {value}")]
    Setting {
        setting: &'static str,
        /// The range, as text.
        range: &'static str,
        value: f64,
    },
    /// No data set of this name can be downloaded.
    #[error("unknown data set {name:?}; known are {known}")]
    UnknownName { name: String, known: String },
    /// A download failed or was interrupted.
    #[error("download of {url} failed: {source}")]
    Download { url: String, source: Box<ureq::Error> },
    #[error("download of {url} is larger than the limit of {bytes_max} bytes")]
    DownloadTooLarge { url: String, bytes_max: u64 },
    /// The published checksum file contains no checksum.
    #[error("{url} holds no MD5 checksum; the archive cannot be verified and was not unpacked")]
    NoChecksum {
        /// URL of the checksum file.
        url: String,
    },
    /// The checksum of a download differs from the published one.
    #[error("{url}: MD5 checksum is {received}, published is {expected}; nothing was unpacked, try again")]
    Checksum {
        url: String,
        /// The published checksum, in hexadecimal.
        expected: String,
        /// The checksum of the download.
        received: String,
    },
    /// An archive is damaged or rejected.
    #[error("{url}: {problem}; nothing was kept")]
    Archive {
        /// URL of the archive.
        url: String,
        problem: String,
    },
    /// The destination folder exists and is not a data set.
    #[error("{}: exists and holds no ratings file; move it away or choose another destination", .folder.display())]
    Occupied { folder: PathBuf },
}

impl DatasetError {
    /// Converts an I/O error on `path`, for `map_err`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
