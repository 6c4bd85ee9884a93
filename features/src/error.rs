//! The error type of this crate.

use std::path::PathBuf;

use celeris_formats::FormatError;
use celeris_model::ModelError;
use celeris_pipelines::PipelineError;
use thiserror::Error;

/// Errors of writing or reading a version.
#[derive(Debug, Error)]
pub enum FeaturesError {
    /// A file is missing, damaged, or not of its format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A number of a version is beyond the bounds of sound training.
    #[error("{}: {what} is {value:e}, at most {max:e} in magnitude is allowed; check the labels and the trainer for values that diverge", path.display())]
    OutOfBounds {
        path: PathBuf,
        /// A description of the number.
        what: String,
        value: f64,
        max: f64,
    },
    /// A computed part cannot be compiled.
    #[error("part {part}: {source}")]
    Part { part: String, source: Box<PipelineError> },
    /// The computed parts do not fit together, or not the features.
    #[error("parts: {problem}")]
    Parts { problem: String },
    /// The contents are inconsistent or violate the rules of [`ModelError`].
    #[error(transparent)]
    Model(#[from] ModelError),
}
