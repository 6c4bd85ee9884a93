//! Settings of a study.

use std::ops::RangeInclusive;

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

/// Shortest and longest lease of a trial, in seconds.
pub const LEASE_SECONDS_MIN: u32 = 5;
pub const LEASE_SECONDS_MAX: u32 = 3600;

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
    /// Number of trials at a time of the node that leads the study. It makes trial 0 also if this is 0.
    pub workers: u32,
    /// Number of trials at a time of workers on other machines.
    #[serde(default)]
    pub remote_workers: u32,
    /// Seconds without a message after which a trial of a worker on another machine is lost.
    #[serde(default = "lease_seconds_default")]
    pub lease_seconds: u32,
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

/// Default of [`Settings::lease_seconds`]: a few messages may be lost, and the work of a worker that
/// has died is not waited for much longer than it took.
#[must_use]
pub const fn lease_seconds_default() -> u32 {
    60
}

impl Settings {
    /// Number of trials besides that of the present settings: no more than the space has points.
    pub(crate) fn trials_in_space(&self) -> u32 {
        let points = self.space.points().and_then(|points| u32::try_from(points).ok());
        points.map_or(self.trials, |points| points.min(self.trials))
    }

    /// Checks that all values are within their bounds.
    ///
    /// # Errors
    /// `Field`.
    pub fn check(&self) -> Result<(), StudyError> {
        let within = |field: &str, value: u64, range: RangeInclusive<u64>| {
            if range.contains(&value) {
                return Ok(());
            }
            let (least, most) = range.into_inner();
            Err(StudyError::field(field, format!("must be from {least} to {most}, got {value}")))
        };
        within("trials", self.trials.into(), 1..=TRIALS_MAX.into())?;
        within("seconds", self.seconds.unwrap_or(1), 1..=SECONDS_MAX)?;
        within("remote_workers", self.remote_workers.into(), 0..=WORKERS_MAX.into())?;
        // Without remote ones, a study with no worker would never end.
        within("workers", self.workers.into(), u64::from(self.remote_workers == 0)..=WORKERS_MAX.into())?;
        within("lease_seconds", self.lease_seconds.into(), LEASE_SECONDS_MIN.into()..=LEASE_SECONDS_MAX.into())?;
        within("patience", self.patience.unwrap_or(1).into(), 1..=TRIALS_MAX.into())?;
        self.collaborative.as_ref().map_or(Ok(()), Collaborative::check)
    }
}
