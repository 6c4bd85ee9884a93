//! Settings of automatic retraining and of the drift test.

use serde::{Deserialize, Serialize};

use super::ScheduledStudy;
use crate::error::ManagerError;

/// Default number of observations in a window and in a baseline.
pub const WINDOW: usize = 1000;

/// Longest window, in observations.
pub const WINDOW_MAX: usize = 10_000;

/// Seconds of a year: the longest interval of a trigger.
const YEAR_SECONDS: f64 = 366.0 * 86_400.0;

/// Settings of automatic retraining. Each trigger that is not set is off;
/// [`Triggers::of_new_models`] are those of a model that is created without any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Triggers {
    /// Retrain if the recent loss exceeds the version's baseline.
    pub threshold: Option<Threshold>,
    /// Retrain if the drift test finds a rise of the loss.
    pub drift: Option<DriftSettings>,
    /// Retrain after a time.
    pub schedule: Option<Schedule>,
    /// Retrain after a number of observations.
    pub volume: Option<Volume>,
    /// Fit offsets of items before the first training.
    pub popularity: Option<Popularity>,
    /// Search for better settings after a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub study: Option<ScheduledStudy>,
    /// Seconds between the end of a job and the next trigger; 600 by default, and at least 60 after
    /// a failed job.
    pub cool_down: f64,
}

impl Default for Triggers {
    fn default() -> Self {
        Self {
            threshold: None,
            drift: None,
            schedule: None,
            volume: None,
            popularity: None,
            study: None,
            cool_down: 600.0,
        }
    }
}

/// Retrain if the mean loss over a window exceeds the version's baseline by a margin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Threshold {
    /// Margin as a share of the metric (RMSE, or mean log loss); 0.1 by default.
    pub margin: f64,
    /// Number of observations in the window and in the baseline; 1000 by default.
    pub window: usize,
    /// Which observations; all by default.
    pub on: Signal,
}

impl Default for Threshold {
    fn default() -> Self {
        Self { margin: 0.1, window: WINDOW, on: Signal::Observations }
    }
}

/// The losses that a threshold evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// All observations.
    #[default]
    Observations,
    /// Observations of the validation pool, whose items the model did not choose.
    Pool,
}

/// Retrain once this time has passed since the last training began, if there are new observations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// In seconds.
    pub every: f64,
}

/// Retrain once the log holds enough records that the newest trained version was not trained on:
/// `observations`, and at least the share `growth` of those that it was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    pub observations: u64,
    /// With 0.5, the log grows by half between two trainings, and the time spent on training by
    /// three times that of the last one. 0 by default: after equal numbers of observations.
    #[serde(default)]
    pub growth: f64,
}

/// Fit offsets of items (the trainer `popularity`) while a model was not trained otherwise: whenever
/// the log has grown by `observations` records and by the share `growth`, up to `until` records.
///
/// The version of a first training is evaluated on records that the active one has not seen, so that
/// `until` should leave some to the first training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Popularity {
    /// 10 by default.
    pub observations: u64,
    /// 0.1 by default: some thirty versions up to a thousand observations, each as cheap as reading
    /// the log.
    pub growth: f64,
    /// 800 by default. A longer log is read once, if no offsets were fitted before.
    pub until: u64,
}

impl Default for Popularity {
    fn default() -> Self {
        Self { observations: 10, growth: 0.1, until: 800 }
    }
}

impl Popularity {
    /// Whether offsets are due for a log of this many records, `fitted` of which were seen by the
    /// last ones.
    pub(crate) fn is_due(&self, records: u64, fitted: u64) -> bool {
        let grown = Volume { observations: self.observations, growth: self.growth }.after(fitted);
        records.saturating_sub(fitted) >= grown && (records <= self.until || fitted == 0)
    }
}

impl Volume {
    /// Number of records that start a training after one on `trained` records.
    pub(crate) fn after(&self, trained: u64) -> u64 {
        // A count of records times at most `GROWTH_MAX` is a number that u64 can hold, rounded.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let share = (self.growth * trained as f64).ceil() as u64;
        self.observations.max(share)
    }
}

/// The largest growth between trainings.
const GROWTH_MAX: f64 = 100.0;

impl Triggers {
    /// The triggers of a model that is created without any, on a node that trains automatically:
    /// offsets from 10 observations on, the first training at 1000, the next ones whenever the log has
    /// grown by half, and by 1000 observations at least.
    #[must_use]
    pub fn of_new_models() -> Self {
        let volume = Some(Volume { observations: 1000, growth: 0.5 });
        Self { volume, popularity: Some(Popularity::default()), ..Self::default() }
    }

    /// Whether any trigger is set.
    pub(crate) fn any(&self) -> bool {
        self.threshold.is_some()
            || self.drift.is_some()
            || self.schedule.is_some()
            || self.volume.is_some()
            || self.popularity.is_some()
            || self.study.is_some()
    }

    /// Length of the window of the recent loss.
    pub(crate) fn window(&self) -> usize {
        self.threshold.map_or(WINDOW, |threshold| threshold.window)
    }

    pub(crate) fn baseline_observations(&self) -> u64 {
        self.window() as u64
    }

    /// Settings of the drift test, which runs even if it triggers nothing, so that it can be
    /// observed before it is enabled.
    pub(crate) fn drift_settings(&self) -> DriftSettings {
        self.drift.unwrap_or_default()
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// `Setting` with the name and the range.
    pub fn check(&self) -> Result<(), ManagerError> {
        let mut checks = vec![("triggers.cool_down", self.cool_down, 0.0, YEAR_SECONDS, "from 0 seconds to 366 days")];
        if let Some(Threshold { margin, window, on: _ }) = self.threshold {
            checks.push(("triggers.threshold.margin", margin, 0.001, 10.0, "from 0.001 to 10"));
            checks.push(("triggers.threshold.window", window as f64, 50.0, WINDOW_MAX as f64, "from 50 to 10000"));
            if self.threshold.is_some_and(|threshold| threshold.on == Signal::Pool) {
                let range = "from 50 to 1000 where it is on the pool";
                checks.push(("triggers.threshold.window", window as f64, 50.0, WINDOW as f64, range));
            }
        }
        if let Some(DriftSettings { tolerance, threshold, warm_up }) = self.drift {
            checks.push(("triggers.drift.tolerance", tolerance, 0.0, 10.0, "from 0 to 10"));
            checks.push(("triggers.drift.threshold", threshold, 1.0, 1e6, "from 1 to 1000000"));
            checks.push(("triggers.drift.warm_up", warm_up as f64, 30.0, 1e6, "from 30 to 1000000"));
        }
        if let Some(Schedule { every }) = self.schedule {
            checks.push(("triggers.schedule.every", every, 1.0, YEAR_SECONDS, "from 1 second to 366 days"));
        }
        if let Some(study) = &self.study {
            checks.push(("triggers.study.every", study.every, 1.0, YEAR_SECONDS, "from 1 second to 366 days"));
        }
        if let Some(Volume { observations, growth }) = self.volume {
            checks.push(("triggers.volume.observations", observations as f64, 1.0, 1e12, "from 1 to 1e12"));
            checks.push(("triggers.volume.growth", growth, 0.0, GROWTH_MAX, "from 0 to 100"));
        }
        if let Some(Popularity { observations, growth, until }) = self.popularity {
            checks.push(("triggers.popularity.observations", observations as f64, 1.0, 1e12, "from 1 to 1e12"));
            checks.push(("triggers.popularity.growth", growth, 0.0, GROWTH_MAX, "from 0 to 100"));
            checks.push(("triggers.popularity.until", until as f64, 1.0, 1e12, "from 1 to 1e12"));
        }
        for (setting, received, least, most, range) in checks {
            // A NaN is in no range.
            if !(least..=most).contains(&received) {
                return Err(ManagerError::Setting { setting, range, received });
            }
        }
        Ok(())
    }
}

/// Settings of the drift test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriftSettings {
    /// `delta`: rises up to this size are ignored, in standard deviations of the loss. 0.1 by
    /// default.
    pub tolerance: f64,
    /// `lambda`: the alarm threshold for the cumulative sum above its minimum, in standard
    /// deviations. 100 by default.
    pub threshold: f64,
    /// Number of observations used to estimate mean and standard deviation before the test begins.
    /// 500 by default.
    pub warm_up: u64,
}

impl Default for DriftSettings {
    fn default() -> Self {
        Self { tolerance: 0.1, threshold: 100.0, warm_up: 500 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_rejected_by_name() {
        let refused = |triggers: Triggers| match triggers.check() {
            Err(ManagerError::Setting { setting, .. }) => Some(setting),
            _ => None,
        };
        let off = Triggers::default;
        assert_eq!(refused(off()), None);
        assert_eq!(refused(Triggers { cool_down: f64::NAN, ..off() }), Some("triggers.cool_down"));
        let threshold = |margin, window| Some(Threshold { margin, window, ..Threshold::default() });
        assert_eq!(refused(Triggers { threshold: threshold(-0.1, 100), ..off() }), Some("triggers.threshold.margin"));
        assert_eq!(refused(Triggers { threshold: threshold(0.1, 10), ..off() }), Some("triggers.threshold.window"));
        assert_eq!(refused(Triggers { threshold: threshold(0.1, 50), ..off() }), None);
        let drift = DriftSettings { threshold: 0.0, ..DriftSettings::default() };
        assert_eq!(refused(Triggers { drift: Some(drift), ..off() }), Some("triggers.drift.threshold"));
        let schedule = Some(Schedule { every: 0.5 });
        assert_eq!(refused(Triggers { schedule, ..off() }), Some("triggers.schedule.every"));
        let volume = |observations, growth| Triggers { volume: Some(Volume { observations, growth }), ..off() };
        assert_eq!(refused(volume(0, 0.0)), Some("triggers.volume.observations"));
        assert_eq!(refused(volume(1, -0.5)), Some("triggers.volume.growth"));
        assert_eq!(refused(volume(1, f64::INFINITY)), Some("triggers.volume.growth"));
        assert_eq!(refused(Triggers::of_new_models()), None);
    }

    #[test]
    fn offsets_are_fitted_ever_more_seldom_and_once_for_a_log_that_came_whole() {
        let popularity = Popularity::default();
        let mut fitted = 0;
        let mut at = Vec::new();
        for records in 0..5000 {
            if popularity.is_due(records, fitted) {
                fitted = records;
                at.push(records);
            }
        }
        assert_eq!(at[..3], [10, 20, 30]);
        assert_eq!(at[9..12], [100, 110, 121]);
        assert!(at.len() < 40 && at.iter().all(|records| *records <= 800), "{at:?}");
        assert!(popularity.is_due(5000, 0) && !popularity.is_due(6000, 5000));
        let refused = Triggers { popularity: Some(Popularity { until: 0, ..popularity }), ..Triggers::default() };
        assert!(matches!(refused.check(), Err(ManagerError::Setting { setting: "triggers.popularity.until", .. })));
    }

    #[test]
    fn the_log_grows_by_a_share_and_a_minimum_between_trainings() {
        let volume = Triggers::of_new_models().volume.unwrap();
        let mut trained = 0;
        let at: Vec<u64> = std::iter::from_fn(|| {
            trained += volume.after(trained);
            Some(trained)
        })
        .take(6)
        .collect();
        assert_eq!(at, [1000, 2000, 3000, 4500, 6750, 10_125]);
        assert_eq!(Volume { growth: 0.0, ..volume }.after(u64::MAX), 1000);
    }
}
