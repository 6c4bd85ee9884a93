//! Error type of this crate.

use std::path::PathBuf;

use celeris_model::ModelError;
use thiserror::Error;

/// Error of a training run. On every error, nothing has been published.
#[derive(Debug, Error)]
pub enum RetrainError {
    /// The training data is empty.
    #[error("no ratings to train on; observe some first")]
    NoRatings,
    /// A rating refers to a user or an item outside the declared counts.
    #[error("rating {row}: {what} index {index} is out of range; there are {count}")]
    IndexOutOfRange {
        /// Position of the rating, from 0.
        row: usize,
        /// `user` or `item`.
        what: &'static str,
        index: u32,
        /// Number of users or items.
        count: usize,
    },
    /// A rating's label or weight is not valid.
    #[error("rating {row}: {source}")]
    Rating {
        /// Position of the rating, from 0.
        row: usize,
        source: ModelError,
    },
    /// A setting is out of range.
    #[error("{what} must be {range}, got {value}")]
    Setting {
        what: &'static str,
        /// The range, in words.
        range: &'static str,
        value: String,
    },
    /// The fitted prior or a user's posterior is not usable.
    #[error("the fitted prior cannot be served: {0}")]
    Prior(#[from] ModelError),
    /// The threads for training could not be started.
    #[error("cannot start the training threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The job file is invalid.
    #[error("{}: {source}", path.display())]
    JobFile {
        path: PathBuf,
        /// Position and cause.
        source: serde_json::Error,
    },
    /// An input file is not the one that the job was written for.
    #[error("{}: sha-256 is {received}, the job expects {expected}; write the file and the job again", path.display())]
    Checksum {
        path: PathBuf,
        /// The checksum in the job.
        expected: String,
        /// The checksum of the file.
        received: String,
    },
    /// The output of an engine violates the trainer contract.
    #[error("{}: {problem} (see docs/rfcs/003-trainer-contract.md)", path.display())]
    Output {
        path: PathBuf,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// The job is for another trainer than the built-in one.
    #[error("this job is for the engine {engine} to read; `celeris train` finishes its output once `raw` names it")]
    NotOurs { engine: String },
    /// An earlier training is given, but a warm start from it is impossible.
    #[error("cannot warm start from the earlier training: {reason}; start cold instead")]
    WarmStart {
        /// What does not match.
        reason: String,
    },
    /// An input file cannot be read, or a file cannot be written; the message names file, row and
    /// column.
    #[error(transparent)]
    Format(#[from] celeris_formats::FormatError),
    /// The version cannot be written, or an earlier version cannot be read.
    #[error(transparent)]
    Version(#[from] celeris_features::FeaturesError),
}
