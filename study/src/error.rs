//! Error type of this crate.

use thiserror::Error;

/// A study cannot begin, or a message of a worker does not fit its state, which is unchanged then.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StudyError {
    /// A field of the settings is invalid.
    #[error("{field}: {problem}")]
    Field {
        /// Path within the settings, such as `space.dim.int`.
        field: String,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// There is no such trial.
    #[error("the study has no trial {trial}; its trials are 0 to {last}")]
    UnknownTrial { trial: u32, last: u32 },
    /// The trial is not this worker's any more: it has ended, or was given to another worker.
    #[error("attempt {attempt} of trial {trial} is not running any more; ask for another trial")]
    NotRunning { trial: u32, attempt: u32 },
    /// A loss is not a finite number.
    #[error("{field}: must be a finite number, got {value}")]
    NotFinite { field: &'static str, value: f64 },
}

impl StudyError {
    pub(crate) fn field(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { field: field.into(), problem: problem.into() }
    }
}
