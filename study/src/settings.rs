//! Settings of a study.

use serde::{Deserialize, Serialize};

use crate::collaborative::Collaborative;
use crate::error::StudyError;
use crate::sampler::Sampler;
use crate::space::Space;

/// Maximum number of trials: the state is one document, which is written at each.
pub const TRIALS_MAX: u32 = 500;

/// Maximum number of workers.
pub const WORKERS_MAX: u32 = 32;

/// Longest time of a study: a week.
pub const SECONDS_MAX: u64 = 7 * 24 * 3600;

/// What is searched, how, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub space: Space,
    /// Number of trials besides that of the present settings.
    pub trials: u32,
    /// Seconds after which no trial begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Number of trials at a time.
    pub workers: u32,
    #[serde(default)]
    pub sampler: Sampler,
    /// The study ends after this many complete trials in a row without a lower loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collaborative: Option<Collaborative>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Settings {
    /// Checks that all values are within their bounds.
    ///
    /// # Errors
    /// `Field`.
    pub fn check(&self) -> Result<(), StudyError> {
        let within = |field: &str, value: u64, most: u64| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(StudyError::field(field, format!("must be from 1 to {most}, got {value}")))
        };
        within("trials", self.trials.into(), TRIALS_MAX.into())?;
        within("seconds", self.seconds.unwrap_or(1), SECONDS_MAX)?;
        within("workers", self.workers.into(), WORKERS_MAX.into())?;
        within("patience", self.patience.unwrap_or(1).into(), TRIALS_MAX.into())?;
        self.collaborative.as_ref().map_or(Ok(()), Collaborative::check)
    }
}
