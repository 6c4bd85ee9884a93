//! Triggers, which retrain a model automatically.

use celeris_manager::{self as manager, DriftSettings};
use celeris_study::Space;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::nullable;
use super::studies::{Axis, Sampler, Then, trials_default, workers_default};

/// Triggers that retrain a model automatically, or search for settings of it. A trigger that is missing or null is
/// off; without any, a model is retrained on request only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Triggers {
    /// Retrain if the loss exceeds the baseline of the version.
    pub threshold: Option<ThresholdTrigger>,
    /// Retrain if the drift test finds a rise of the loss.
    pub drift: Option<DriftTrigger>,
    /// Retrain after a time.
    pub schedule: Option<ScheduleTrigger>,
    /// Retrain after a number of observations.
    pub volume: Option<VolumeTrigger>,
    /// Fit offsets of items while the model was not trained otherwise.
    pub popularity: Option<PopularityTrigger>,
    /// Search for better settings after a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub study: Option<StudyTrigger>,
    /// Seconds for which the other triggers are suspended after a training; at least 60 after a
    /// failed one.
    #[schema(minimum = 0, maximum = 31_622_400)]
    pub cool_down: f64,
}

/// Retrain if the mean loss over a window exceeds the baseline: that of the version's first
/// observations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct ThresholdTrigger {
    /// The share of the metric (RMSE, or mean log loss) by which the baseline must be exceeded.
    #[schema(minimum = 0.001, maximum = 10)]
    pub margin: f64,
    /// Number of observations of the window, and of the baseline that it is compared with; at most
    /// 1000 on the pool.
    #[schema(minimum = 50, maximum = 10_000)]
    pub window: usize,
    /// The observations whose loss is compared.
    pub on: Signal,
}

mirror_enum! {
    /// The observations that a threshold trigger uses.
    Signal = manager::Signal {
        /// All observations.
        Observations,
        /// Observations of the validation pool, whose items were not chosen by the model.
        Pool,
    }
}

/// The Page–Hinkley test on the loss of the active version.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct DriftTrigger {
    /// The rise that is tolerated, in standard deviations of the loss.
    #[schema(minimum = 0, maximum = 10)]
    pub tolerance: f64,
    /// How far the cumulative sum of the loss may rise above its minimum, in standard deviations.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub threshold: f64,
    /// Number of observations for estimating mean and deviation before the test starts.
    #[schema(minimum = 30, maximum = 1_000_000)]
    pub warm_up: u64,
}

/// Retrain once this time has passed since the last training started and there are new
/// observations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ScheduleTrigger {
    /// The time, in seconds.
    #[schema(minimum = 1, maximum = 31_622_400, example = 86_400)]
    pub every: f64,
}

/// Retrain once the log contains enough records that the latest trained version was not trained on:
/// `observations`, and at least the share `growth` of those that it was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct VolumeTrigger {
    /// Number of records.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64, example = 100_000)]
    pub observations: u64,
    /// 0 by default. With 0.5, the log grows by half between two trainings.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 100, example = 0.5)]
    pub growth: f64,
}

/// Fit offsets of items, by the trainer `popularity`, while the model was not trained otherwise:
/// whenever the log has grown by `observations` records and by the share `growth`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct PopularityTrigger {
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub observations: u64,
    #[schema(minimum = 0, maximum = 100)]
    pub growth: f64,
    /// Number of records up to which offsets are fitted again; a longer log is read once.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_u64)]
    pub until: u64,
}

/// Start a study once this time has passed since the last one started and there are new observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct StudyTrigger {
    /// The time, in seconds.
    #[schema(minimum = 1, maximum = 31_622_400, example = 604_800)]
    pub every: f64,
    /// What is searched, as of a study that is started on request.
    #[schema(value_type = BTreeMap<String, Axis>)]
    pub space: Space,
    /// Number of trials besides that of the present settings; 30 by default.
    #[serde(default = "trials_default")]
    #[schema(minimum = 1, maximum = 500)]
    pub trials: u32,
    /// Seconds after which no trial begins; no limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 604_800)]
    pub seconds: Option<u64>,
    /// Number of trials at a time of the node; 1 by default.
    #[serde(default = "workers_default")]
    #[schema(minimum = 0, maximum = 32)]
    pub workers: u32,
    /// Number of trials at a time of workers on other machines; 0 by default.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 32)]
    pub remote_workers: u32,
    #[serde(default)]
    pub sampler: Sampler,
    /// Whether trials continue from what the best one so far has learnt.
    #[serde(default)]
    pub collaborative: bool,
    /// Ends the study after this many trials in a row without a lower loss; never by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 500)]
    pub patience: Option<u32>,
    /// What follows if better settings were found; nothing by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Then>,
}

impl From<StudyTrigger> for manager::ScheduledStudy {
    fn from(trigger: StudyTrigger) -> Self {
        let StudyTrigger { every, space, trials, seconds, workers, remote_workers, .. } = trigger;
        let StudyTrigger { sampler, collaborative, patience, then, .. } = trigger;
        let (sampler, then) = (sampler.into(), then.map(Into::into));
        Self { every, space, trials, seconds, workers, remote_workers, sampler, collaborative, patience, then }
    }
}

impl From<manager::ScheduledStudy> for StudyTrigger {
    fn from(scheduled: manager::ScheduledStudy) -> Self {
        let manager::ScheduledStudy { every, space, trials, seconds, workers, remote_workers, .. } = scheduled;
        let manager::ScheduledStudy { sampler, collaborative, patience, then, .. } = scheduled;
        let (sampler, then) = (sampler.into(), then.map(Into::into));
        Self { every, space, trials, seconds, workers, remote_workers, sampler, collaborative, patience, then }
    }
}

impl Default for PopularityTrigger {
    fn default() -> Self {
        manager::Popularity::default().into()
    }
}

same_fields!(PopularityTrigger = manager::Popularity { observations, growth, until });
objects!(Triggers, ThresholdTrigger, DriftTrigger, ScheduleTrigger, VolumeTrigger, PopularityTrigger);
objects!(StudyTrigger, TriggersChange);
serialized_objects!(Triggers, ThresholdTrigger, DriftTrigger, ScheduleTrigger, VolumeTrigger, PopularityTrigger);
serialized_objects!(StudyTrigger);

same_fields!(ThresholdTrigger = manager::Threshold { margin, window, on });
same_fields!(DriftTrigger = DriftSettings { tolerance, threshold, warm_up });
same_fields!(ScheduleTrigger = manager::Schedule { every });
same_fields!(VolumeTrigger = manager::Volume { observations, growth });

impl From<manager::Triggers> for Triggers {
    fn from(triggers: manager::Triggers) -> Self {
        let manager::Triggers { threshold, drift, schedule, volume, popularity, study, cool_down } = triggers;
        Self {
            threshold: threshold.map(Into::into),
            drift: drift.map(Into::into),
            schedule: schedule.map(Into::into),
            volume: volume.map(Into::into),
            popularity: popularity.map(Into::into),
            study: study.map(Into::into),
            cool_down,
        }
    }
}

impl From<Triggers> for manager::Triggers {
    fn from(triggers: Triggers) -> Self {
        let Triggers { threshold, drift, schedule, volume, popularity, study, cool_down } = triggers;
        Self {
            threshold: threshold.map(Into::into),
            drift: drift.map(Into::into),
            schedule: schedule.map(Into::into),
            volume: volume.map(Into::into),
            popularity: popularity.map(Into::into),
            study: study.map(Into::into),
            cool_down,
        }
    }
}

impl Default for Triggers {
    fn default() -> Self {
        manager::Triggers::default().into()
    }
}

impl Default for ThresholdTrigger {
    fn default() -> Self {
        manager::Threshold::default().into()
    }
}

impl Default for DriftTrigger {
    fn default() -> Self {
        DriftSettings::default().into()
    }
}

/// Triggers to set, or to turn off by null; missing fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct TriggersChange {
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<ThresholdTrigger>)]
    threshold: Option<Option<ThresholdTrigger>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<DriftTrigger>)]
    drift: Option<Option<DriftTrigger>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<ScheduleTrigger>)]
    schedule: Option<Option<ScheduleTrigger>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<VolumeTrigger>)]
    volume: Option<Option<VolumeTrigger>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<PopularityTrigger>)]
    popularity: Option<Option<PopularityTrigger>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<StudyTrigger>)]
    study: Option<Option<StudyTrigger>>,
    /// Seconds for which all triggers are suspended after a training.
    #[schema(minimum = 0, maximum = 31_622_400)]
    cool_down: Option<f64>,
}

impl TriggersChange {
    pub fn apply(self, triggers: &mut manager::Triggers) {
        let Self { threshold, drift, schedule, volume, popularity, study, cool_down } = self;
        triggers.threshold = threshold.map_or(triggers.threshold, |set| set.map(Into::into));
        triggers.drift = drift.map_or(triggers.drift, |set| set.map(Into::into));
        triggers.schedule = schedule.map_or(triggers.schedule, |set| set.map(Into::into));
        triggers.volume = volume.map_or(triggers.volume, |set| set.map(Into::into));
        triggers.popularity = popularity.map_or(triggers.popularity, |set| set.map(Into::into));
        if let Some(study) = study {
            triggers.study = study.map(Into::into);
        }
        triggers.cool_down = cool_down.unwrap_or(triggers.cool_down);
    }
}
