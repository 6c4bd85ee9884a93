//! One trial of a study.

use serde::{Deserialize, Serialize};

use crate::collaborative::Start;
use crate::error::StudyError;
use crate::space::Params;

/// Workers that may die of one trial. A training that kills its machine is not tried for ever.
pub const DEATHS_MAX: u32 = 5;

/// Bytes of the name of a worker.
pub const WORKER_BYTES_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialState {
    /// A worker has it.
    Running,
    /// Its loss is known.
    Complete,
    /// It has no loss, and is not tried again.
    Failed,
    /// Its worker has died, or must begin again. It is the next to be asked for, unless the study has ended.
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
    /// How often its worker has died.
    #[serde(default)]
    pub deaths: u32,
    /// The worker of the latest attempt.
    pub worker: String,
    /// Whether that is one on another machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remote: bool,
    /// When the latest attempt began, in Unix milliseconds.
    pub began: i64,
    /// When it ended; `None` while it runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// When its worker was last heard of.
    pub heard: i64,
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

    /// Seconds of the latest attempt, if it has ended.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        Some((self.ended? - self.began).max(0) as f64 / 1000.0)
    }
}
