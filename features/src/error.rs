//! The error type of this crate.

use std::path::PathBuf;

use celeris_formats::FormatError;
use celeris_model::ModelError;
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
    /// The contents are inconsistent or violate the rules of [`ModelError`].
    #[error(transparent)]
    Model(#[from] ModelError),
}
