//! Studies.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, JobId, StudyId, StudyRecord};
use celeris_model::ModelName;
use celeris_study::{self as study, AxisSpec, Collaborative, Params, Space, Start, StudyError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::{Id, Name};
use super::settings::Metric;

/// Default number of trials.
pub fn trials_default() -> u32 {
    30
}

/// Default number of trials at a time of the node.
pub fn workers_default() -> u32 {
    1
}

/// The value of a setting.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum SettingValue {
    Number(f64),
    Text(String),
    Switch(bool),
    /// The setting is left out.
    Unset,
}

/// The values of a setting that a study tries: exactly one of `int`, `float` and `choice`.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The smallest and the largest whole number, both included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int: Option<[i64; 2]>,
    /// The smallest and the largest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub float: Option<[f64; 2]>,
    /// From 2 to 32 values without an order; null leaves the setting out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<SettingValue>>, min_items = 2, max_items = 32)]
    pub choice: Option<Vec<serde_json::Value>>,
    /// Whether equal ratios count as equal distances.
    #[serde(default)]
    pub log: bool,
}

mirror_enum! {
    /// How a study chooses its trials.
    Sampler = study::Sampler {
        /// Uniformly.
        Random,
        /// By expected improvement under a Gaussian process; after 100 trials, as `tpe`.
        Gp,
        /// By the tree-structured Parzen estimator.
        Tpe,
    }
}

impl Default for Sampler {
    fn default() -> Self {
        study::Sampler::default().into()
    }
}

mirror_enum! {
    /// What follows if a study has found better settings.
    Then = manager::Then {
        /// The model gets the settings and is retrained from nothing; the version passes the gate as
        /// any other.
        Retrain,
    }
}

/// A study to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStudy {
    /// What is searched, by the name of the setting: `dim`, `regularization`, `iterations`, `half_life` (in seconds),
    /// `prior_scale`, `attributes`, and for trainers that are not built in `alpha`. At most 16.
    pub space: BTreeMap<String, Axis>,
    /// Number of trials besides that of the present settings; 30 by default.
    #[schema(minimum = 1, maximum = 500)]
    pub trials: Option<u32>,
    /// Seconds after which no trial begins; no limit by default.
    #[schema(minimum = 1, maximum = 604_800)]
    pub seconds: Option<u64>,
    /// Number of trials at a time of the node, which share its processors; 1 by default. 0 leaves all but that of the
    /// present settings to workers on other machines.
    #[schema(minimum = 0, maximum = 32)]
    pub workers: Option<u32>,
    /// Number of trials at a time of workers on other machines (`celeris work`); 0 by default.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 32)]
    pub remote_workers: u32,
    /// Seconds without a message after which a trial of such a worker is lost; 60 by default.
    #[schema(minimum = 5, maximum = 3600)]
    pub lease_seconds: Option<u32>,
    /// `gp` by default.
    pub sampler: Option<Sampler>,
    /// Whether trials continue from what the best one so far has learnt, rather than from nothing: most
    /// of them, more and more, where `dim` is the same. They are faster, and a little less precise.
    #[serde(default)]
    pub collaborative: bool,
    /// Ends the study after this many trials in a row without a lower loss; never by default.
    #[schema(minimum = 1, maximum = 500)]
    pub patience: Option<u32>,
    /// What follows if better settings were found; nothing by default.
    pub then: Option<Then>,
    /// Seed of the trials; 1 by default.
    pub seed: Option<u64>,
    /// The reason, for the record; at most 1000 bytes.
    #[schema(max_length = 1000)]
    pub why: Option<String>,
}

impl TryFrom<NewStudy> for manager::NewStudy {
    type Error = StudyError;

    fn try_from(new: NewStudy) -> Result<Self, StudyError> {
        let spec = |Axis { int, float, choice, log }| AxisSpec { int, float, choice, log };
        let axes: BTreeMap<String, AxisSpec> = new.space.into_iter().map(|(name, axis)| (name, spec(axis))).collect();
        Ok(Self {
            space: Space::try_from(axes)?,
            trials: new.trials.unwrap_or_else(trials_default),
            seconds: new.seconds,
            workers: new.workers.unwrap_or_else(workers_default),
            remote_workers: new.remote_workers,
            lease_seconds: new.lease_seconds.unwrap_or_else(study::settings::lease_seconds_default),
            sampler: new.sampler.map_or_else(Default::default, Into::into),
            collaborative: new.collaborative.then(Collaborative::default),
            patience: new.patience,
            then: new.then.map(Into::into),
            seed: new.seed.unwrap_or(1),
            why: new.why.unwrap_or_else(|| "on request".to_owned()),
        })
    }
}

/// An accepted study.
#[derive(Debug, Serialize, ToSchema)]
pub struct StudyAccepted {
    /// The id of the study, for `GET /v1/studies/{study}`.
    #[schema(value_type = Id)]
    pub study: StudyId,
}

/// The state of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StudyState {
    /// Trials are running, or will.
    Running,
    /// No trial begins any more; some are running still.
    Ending,
    Ended,
}

mirror_enum! {
    /// Why no trial begins any more.
    StudyEnded = study::Ended {
        /// All trials were made.
        Trials,
        /// The time is over.
        Seconds,
        /// Too many trials in a row brought no lower loss.
        Patience,
        /// It was stopped.
        Stopped,
        /// The trial of the present settings failed, or five in a row.
        Failures,
    }
}

mirror_enum! {
    /// The state of a trial.
    TrialState = study::TrialState {
        Running,
        /// Its loss is known.
        Complete,
        /// It has no loss, and is not tried again.
        Failed,
        /// The node has stopped meanwhile. It is tried again, unless the study has ended.
        Abandoned,
    }
}

/// A loss on held-out observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct TrialLoss {
    /// The trial.
    pub trial: u32,
    /// The loss; the lower, the better.
    pub value: f64,
    /// Standard error of the loss, with the observations of a user as one draw.
    pub standard_error: Option<f64>,
    /// Standard error of the difference to the loss with the present settings, which is smaller: what is hard to
    /// predict is hard for both. Null for these.
    pub difference_error: Option<f64>,
    /// The settings that were searched.
    #[schema(value_type = BTreeMap<String, SettingValue>)]
    pub params: Params,
}

/// A trial: a training with some settings.
#[derive(Debug, Serialize, ToSchema)]
pub struct StudyTrial {
    /// Its number; trial 0 has the present settings.
    pub trial: u32,
    pub state: TrialState,
    /// The settings that it tries; empty in trial 0.
    #[schema(value_type = BTreeMap<String, SettingValue>)]
    pub params: Params,
    /// Its loss; null unless it is complete.
    pub value: Option<f64>,
    /// Standard error of the loss.
    pub standard_error: Option<f64>,
    /// Standard error of the difference to the loss with the present settings.
    pub difference_error: Option<f64>,
    /// The trial that it continues from; null if it starts from nothing.
    pub warm_from: Option<u32>,
    /// How often it was begun.
    pub attempts: u32,
    /// The worker on another machine that makes it; null if it is the node.
    pub worker: Option<String>,
    /// Seconds that it has taken; null while it runs.
    pub seconds: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The use of a study's settings.
#[derive(Debug, Serialize, ToSchema)]
pub struct StudyApplied {
    /// The trial whose settings the model got.
    pub trial: u32,
    /// The training that was started with them.
    #[schema(value_type = Id)]
    pub job: JobId,
    /// In Unix milliseconds.
    pub at: i64,
}

/// A study without its trials.
#[derive(Debug, Serialize, ToSchema)]
pub struct StudySummary {
    #[schema(value_type = Id)]
    pub study: StudyId,
    #[schema(value_type = Name)]
    pub model: ModelName,
    pub state: StudyState,
    /// The reason of the start.
    pub why: String,
    /// Why no trial begins any more; null while it is running.
    pub why_stopped: Option<StudyEnded>,
    /// The metric of all losses.
    pub metric: Metric,
    /// Number of trials that it makes at most, besides that of the present settings.
    pub trials_max: u32,
    /// Number of its complete trials.
    pub complete: usize,
    /// The loss with the present settings; null until it is known.
    pub baseline: Option<TrialLoss>,
    /// The lowest loss, that of the present settings if none is lower.
    pub best: Option<TrialLoss>,
    pub then: Option<Then>,
    /// The use of the settings; null if they were not applied.
    pub applied: Option<StudyApplied>,
    /// Why it has no result, or why its settings were not applied.
    pub error: Option<String>,
    /// In Unix milliseconds.
    pub created: i64,
    /// In Unix milliseconds; null until the last trial has ended.
    pub finished: Option<i64>,
}

/// A study.
#[derive(Debug, Serialize, ToSchema)]
pub struct StudyDescription {
    #[serde(flatten)]
    pub summary: StudySummary,
    /// What is searched.
    pub space: BTreeMap<String, Axis>,
    pub sampler: Sampler,
    /// Number of trials at a time of the node.
    pub workers: u32,
    /// Number of trials at a time of workers on other machines.
    pub remote_workers: u32,
    /// Seconds without a message after which a trial of such a worker is lost.
    pub lease_seconds: u32,
    /// Whether trials continue from the best one so far.
    pub collaborative: bool,
    /// Trials in a row without a lower loss after which it ends.
    pub patience: Option<u32>,
    /// Seconds after which no trial begins.
    pub seconds: Option<u64>,
    /// By setting, the share of the differences in loss that it explains alone, as far as the trials tell. Empty
    /// with few trials.
    pub importance: BTreeMap<String, f64>,
    /// By number.
    pub trials: Vec<StudyTrial>,
}

/// The studies of a model, the latest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StudyList)]
pub struct Studies {
    pub studies: Vec<StudySummary>,
}

impl From<StudyRecord> for StudySummary {
    fn from(record: StudyRecord) -> Self {
        let search = &record.search;
        let loss = |trial: &study::Trial| {
            let outcome = trial.outcome?;
            // The present settings are not in the trial.
            let params = if trial.number == 0 { record.present.clone() } else { trial.params.clone() };
            let study::Outcome { value, standard_error, difference_error } = outcome;
            Some(TrialLoss { trial: trial.number, value, standard_error, difference_error, params })
        };
        let state = match (record.finished, search.ended()) {
            (Some(_), _) => StudyState::Ended,
            (None, Some(_)) => StudyState::Ending,
            (None, None) => StudyState::Running,
        };
        let complete = search.trials().iter().filter(|trial| trial.loss().is_some()).count();
        Self {
            state,
            why_stopped: search.ended().map(Into::into),
            trials_max: search.settings().trials,
            complete,
            baseline: search.baseline().and_then(loss),
            best: search.best().and_then(loss),
            study: record.study,
            model: record.model,
            why: record.why,
            metric: record.metric.into(),
            then: record.then.map(Into::into),
            applied: record.applied.map(|applied| StudyApplied {
                trial: applied.trial,
                job: applied.job,
                at: applied.at.0,
            }),
            error: record.error,
            created: record.created.0,
            finished: record.finished.map(|finished| finished.0),
        }
    }
}

impl From<StudyRecord> for StudyDescription {
    fn from(record: StudyRecord) -> Self {
        let settings = record.search.settings().clone();
        let specs: BTreeMap<String, AxisSpec> = settings.space.into();
        let axis = |AxisSpec { int, float, choice, log }| Axis { int, float, choice, log };
        Self {
            space: specs.into_iter().map(|(name, spec)| (name, axis(spec))).collect(),
            sampler: settings.sampler.into(),
            workers: settings.workers,
            remote_workers: settings.remote_workers,
            lease_seconds: settings.lease_seconds,
            collaborative: settings.collaborative.is_some(),
            patience: settings.patience,
            seconds: settings.seconds,
            importance: record.search.importance(),
            trials: record.search.trials().iter().map(StudyTrial::from).collect(),
            summary: record.into(),
        }
    }
}

impl From<&study::Trial> for StudyTrial {
    fn from(trial: &study::Trial) -> Self {
        Self {
            trial: trial.number,
            state: trial.state.into(),
            params: trial.params.clone(),
            value: trial.outcome.map(|outcome| outcome.value),
            standard_error: trial.outcome.and_then(|outcome| outcome.standard_error),
            difference_error: trial.outcome.and_then(|outcome| outcome.difference_error),
            warm_from: match trial.start {
                Start::Nothing => None,
                Start::Trial(from) => Some(from),
            },
            attempts: trial.attempts,
            worker: trial.remote.then(|| trial.worker.clone()),
            seconds: trial.seconds(),
            error: trial.error.clone(),
        }
    }
}
