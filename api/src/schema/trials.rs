//! Messages of workers that make trials of a study on other machines.

use celeris_manager::RemoteAsked;
use celeris_study::{Outcome, Params};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::studies::SettingValue;

/// A worker that asks for a trial.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskTrial {
    /// The name of the worker, for the record of the trial; at most 200 bytes.
    #[schema(min_length = 1, max_length = 200)]
    pub worker: String,
}

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskedDo {
    /// Make the trial.
    Try,
    /// There is no trial now: ask again later.
    #[default]
    Wait,
    /// The study has no trial any more.
    End,
}

/// The reply to a worker that asks for a trial. Without a trial, all but `do` and `data` is null.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct AskedTrial {
    #[serde(rename = "do")]
    pub action: AskedDo,
    /// The number of the trial.
    pub trial: Option<u32>,
    /// Which attempt at the trial it is, for the worker's messages.
    pub attempt: Option<u32>,
    /// The settings to try, in addition to those of the data.
    #[schema(value_type = Option<BTreeMap<String, SettingValue>>)]
    pub params: Option<Params>,
    /// When the trial is lost unless the worker is heard of, in Unix milliseconds.
    pub lease_until: Option<i64>,
    /// The time until then, in seconds.
    pub lease_seconds: Option<u32>,
    /// Which data the trials need: another number than that of the data which the worker has means that users in it
    /// were erased, and that it must be removed. Null when the study has no trial any more.
    pub data: Option<u64>,
}

impl From<RemoteAsked> for AskedTrial {
    fn from(asked: RemoteAsked) -> Self {
        match asked {
            RemoteAsked::Trial { assignment, lease_until, lease_seconds, data } => Self {
                action: AskedDo::Try,
                trial: Some(assignment.trial),
                attempt: Some(assignment.attempt),
                params: Some(assignment.params),
                lease_until: Some(lease_until),
                lease_seconds: Some(lease_seconds),
                data: Some(data),
            },
            RemoteAsked::Wait { data } => Self { data: Some(data), ..Self::default() },
            RemoteAsked::Ended => Self { action: AskedDo::End, ..Self::default() },
        }
    }
}

/// A worker that is at work on its trial.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialReport {
    pub attempt: u32,
}

/// The reply to a report.
#[derive(Debug, Serialize, ToSchema)]
pub struct TrialReply {
    /// When the trial is lost unless the worker is heard of again, in Unix milliseconds.
    pub lease_until: i64,
}

/// The result of a trial: its loss, or why it has none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialResult {
    pub attempt: u32,
    /// The loss on the held-out observations, in the metric of the study.
    pub value: Option<f64>,
    /// Standard error of the loss.
    #[schema(minimum = 0)]
    pub standard_error: Option<f64>,
    /// Standard error of the difference to the loss of trial 0, on the same observations.
    #[schema(minimum = 0)]
    pub difference_error: Option<f64>,
    /// In place of `value`: why there is no loss; at most 1000 bytes.
    #[schema(max_length = 1000)]
    pub error: Option<String>,
}

impl TrialResult {
    /// The result.
    ///
    /// # Errors
    /// The field that is wrong, and what is expected.
    pub fn result(self) -> Result<Result<Outcome, String>, (&'static str, &'static str)> {
        let Self { value, standard_error, difference_error, error, .. } = self;
        for (field, figure) in [("standard_error", standard_error), ("difference_error", difference_error)] {
            if figure.is_some_and(|figure| figure < 0.0) {
                return Err((field, "must be 0 or above"));
            }
        }
        match (value, error) {
            (Some(value), None) => Ok(Ok(Outcome { value, standard_error, difference_error })),
            (None, Some(error)) if (1..=ERROR_BYTES_MAX).contains(&error.len()) => Ok(Err(error)),
            (None, Some(_)) => Err(("error", "must have from 1 to 1000 bytes")),
            (Some(_), Some(_)) => Err(("error", "is given in place of `value`; leave one of them out")),
            (None, None) => Err(("value", "is missing: give the loss, or an `error`")),
        }
    }
}

/// Maximum bytes of an error.
const ERROR_BYTES_MAX: usize = 1000;
