//! The one error type of this crate.

use std::path::PathBuf;

use celeris_model::ModelError;
use thiserror::Error;

/// What can stop a training run. Nothing has been published when one of these is returned.
#[derive(Debug, Error)]
pub enum RetrainError {
    /// There is nothing to learn from.
    #[error("no ratings to train on; observe some first")]
    NoRatings,
    /// A rating refers to a user or an item outside the declared counts.
    #[error("rating {row}: {what} index {index} is out of range; there are {count}")]
    IndexOutOfRange {
        /// Position of the rating, from 0.
        row: usize,
        /// "user" or "item".
        what: &'static str,
        /// The index received.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// A rating's label or weight is not a number that can be learnt from.
    #[error("rating {row}: {source}")]
    Rating {
        /// Position of the rating, from 0.
        row: usize,
        /// What is wrong with it.
        source: ModelError,
    },
    /// A setting lies outside its range.
    #[error("{what} must be {range}, got {value}")]
    Setting {
        /// The setting's name.
        what: &'static str,
        /// The range, in words.
        range: &'static str,
        /// The value received.
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
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The job file does not say what it must.
    #[error("{}: {source}", path.display())]
    JobFile {
        /// The job file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// An input file is not the one the job was written for.
    #[error("{}: sha-256 is {received}, the job expects {expected}; write the file and the job again", path.display())]
    Checksum {
        /// The input file.
        path: PathBuf,
        /// What the job says.
        expected: String,
        /// What the file has.
        received: String,
    },
    /// What an engine wrote is not what the contract asks for.
    #[error("{}: {problem} (see docs/rfcs/003-trainer-contract.md)", path.display())]
    Output {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The job is for another trainer than the built-in one.
    #[error("this job is for the engine {engine} to read; `celeris train` finishes its output once `raw` names it")]
    NotOurs {
        /// The engine.
        engine: String,
    },
    /// There is an earlier training, but none that this one can go on from.
    #[error("cannot go on from the earlier training: {reason}; train from nothing instead")]
    WarmStart {
        /// What does not fit.
        reason: String,
    },
    /// An input file cannot be read, or the version cannot be written; the message names file, row and column.
    #[error(transparent)]
    Files(#[from] celeris_features::FeaturesError),
}
