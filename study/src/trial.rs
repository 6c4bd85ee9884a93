//! One trial of a study.

use serde::{Deserialize, Serialize};

use crate::collaborative::Start;
use crate::error::StudyError;
use crate::space::Params;

/// Number of times that a trial is begun, if its workers die. A training that kills its machine is
/// not tried for ever.
pub const ATTEMPTS_MAX: u32 = 5;

/// Bytes of the name of a worker.
pub const WORKER_BYTES_MAX: usize = 200;

/// Reports of a trial that are kept.
pub const REPORTS_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// A worker has it.
    Running,
    /// Its loss is known.
    Complete,
    /// It was stopped early: its loss is that of its last report.
    Pruned,
    /// It has no loss, and is not tried again.
    Failed,
    /// Its worker has died. It is the next to be asked for, unless the study has ended.
    Abandoned,
}

/// The loss of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The lower, the better.
    pub value: f64,
    /// Standard error of `value`, if there were enough observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
    /// Standard error of the difference to the loss of trial 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference_error: Option<f64>,
}

impl Outcome {
    /// A loss without standard errors.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self { value, standard_error: None, difference_error: None }
    }

    /// # Errors
    /// `NotFinite`.
    pub fn check(&self) -> Result<(), StudyError> {
        let figures = [
            ("value", Some(self.value)),
            ("standard_error", self.standard_error),
            ("difference_error", self.difference_error),
        ];
        for (field, value) in figures {
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                return Err(StudyError::NotFinite { field, value });
            }
        }
        Ok(())
    }
}

/// The loss of a trial on its way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// How far the training has come, in its own count: trials are compared at equal ones.
    pub epoch: u32,
    pub value: f64,
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Its place in the study. Trial 0 has the present settings.
    pub number: u32,
    /// The settings that it tries; none in trial 0.
    pub params: Params,
    pub start: Start,
    pub state: TrialState,
    /// How often it was begun.
    pub attempts: u32,
    /// The worker of the latest attempt.
    pub worker: String,
    /// Whether that is one on another machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remote: bool,
    /// Whether its worker was asked to stop it early.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pruning: bool,
    /// When the latest attempt began, in Unix milliseconds.
    pub began: i64,
    /// When it ended; `None` while it runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// When its worker was last heard of.
    pub heard: i64,
    /// Losses on the way, of the latest attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<Report>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Trial {
    /// Its loss, if it has run to its end.
    #[must_use]
    pub fn loss(&self) -> Option<f64> {
        self.outcome.filter(|_| self.state == TrialState::Complete).map(|outcome| outcome.value)
    }

    /// The loss that it had reported at an epoch.
    pub(crate) fn reported_at(&self, epoch: u32) -> Option<f64> {
        self.reports.iter().find(|report| report.epoch == epoch).map(|report| report.value)
    }

    /// Whether the losses of the last `epochs` reports are not below the lowest before them.
    pub(crate) fn has_stalled(&self, epochs: u32) -> bool {
        let Some(before) = self.reports.len().checked_sub(epochs as usize).filter(|before| *before > 0) else {
            return false;
        };
        let lowest = |reports: &[Report]| reports.iter().map(|report| report.value).fold(f64::INFINITY, f64::min);
        lowest(&self.reports[before..]) >= lowest(&self.reports[..before])
    }

    /// Seconds of the latest attempt, if it has ended.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        Some((self.ended? - self.began).max(0) as f64 / 1000.0)
    }
}
