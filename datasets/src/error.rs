//! The one error type of this crate.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What can be wrong with a file, a setting or a download. Nothing is left half done on error.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// The operating system refused, or a compressed file is damaged.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A folder holds none of the files that ratings are kept in.
    #[error("{}: no ratings file here; expected one of {known}, each also with .gz", .folder.display())]
    NoRatingsFile {
        /// The folder.
        folder: PathBuf,
        /// The names looked for.
        known: String,
    },
    /// The first line of a file is of no known format.
    #[error("{}: not a known ratings format (first line {first_line:?}); known are {known}", .file.display())]
    UnknownFormat {
        /// The file.
        file: PathBuf,
        /// The beginning of its first line.
        first_line: String,
        /// The formats, in words.
        known: &'static str,
    },
    /// A folder holds no log of impressions, or several.
    #[error(
        "{}: {found} logs of impressions here; expected one, such as men.csv, beside item_context.csv",
        .folder.display()
    )]
    NoImpressions {
        /// The folder.
        folder: PathBuf,
        /// CSV files in it that could be one.
        found: usize,
    },
    /// The header of a file does not name a column that is needed.
    #[error("{}:1: no column {column} in the header", .file.display())]
    NoColumn {
        /// The file.
        file: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// Probabilities that are none.
    #[error("{}: the probabilities of position {position} sum to {sum}; they must sum to 1", .file.display())]
    Sum {
        /// The file.
        file: PathBuf,
        /// The position, as the log numbers it.
        position: usize,
        /// Their sum.
        sum: f64,
    },
    /// A file without a row of data.
    #[error("{}: holds no {what}", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
        /// What there should be.
        what: &'static str,
    },
    /// A field of a row is missing, superfluous or not what it must be.
    #[error("{}:{line}: field {field}: expected {expected}, got {got}", .file.display())]
    BadField {
        /// The file.
        file: PathBuf,
        /// The line at which the row begins, from 1.
        line: u64,
        /// The column, by the file's own header where it has one.
        field: String,
        /// What belongs there.
        expected: &'static str,
        /// The beginning of what is there, quoted, or words for what is not text.
        got: String,
    },
    /// A row is longer than any row of a sound file.
    #[error("{}:{line}: row is longer than {bytes_max} bytes; look for a missing line break or closing quote", .file.display())]
    RowTooLong {
        /// The file.
        file: PathBuf,
        /// The line at which the row begins, from 1.
        line: u64,
        /// The limit.
        bytes_max: usize,
    },
    /// A file holds more than is read into memory at once.
    #[error("{}: more than {max} {what}; too many to hold in memory", .file.display())]
    TooMany {
        /// The file.
        file: PathBuf,
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// A setting of the synthetic generator is out of its range.
    #[error("{setting} must be {range}, got {value}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The range, in words.
        range: &'static str,
        /// The value received.
        value: f64,
    },
    /// No data set of this name can be downloaded.
    #[error("unknown data set {name:?}; known are {known}")]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// A download failed or broke off.
    #[error("download of {url} failed: {source}")]
    Download {
        /// What was being downloaded.
        url: String,
        /// The cause.
        source: Box<ureq::Error>,
    },
    /// A download is larger than the limit.
    #[error("download of {url} is larger than the limit of {bytes_max} bytes")]
    DownloadTooLarge {
        /// What was being downloaded.
        url: String,
        /// The limit.
        bytes_max: u64,
    },
    /// The published checksum file holds no checksum.
    #[error("{url} holds no MD5 checksum; the archive cannot be verified and was not unpacked")]
    NoChecksum {
        /// The checksum file.
        url: String,
    },
    /// A download is not what its publisher says it is.
    #[error("{url}: MD5 checksum is {received}, published is {expected}; nothing was unpacked, try again")]
    Checksum {
        /// What was downloaded.
        url: String,
        /// The published checksum, in hexadecimal.
        expected: String,
        /// The checksum of what arrived.
        received: String,
    },
    /// An archive is damaged, or not one to unpack.
    #[error("{url}: {problem}; nothing was kept")]
    Archive {
        /// Where the archive came from.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The folder that a download would create exists and is not a data set.
    #[error("{}: exists and holds no ratings file; move it away or choose another destination", .folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
}

impl DatasetError {
    /// For `map_err` on operations on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
