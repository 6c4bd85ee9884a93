//! Triggers: automatic retraining, and the reasons reported for it.
//!
//! Every trigger is off until it is configured. At most one job runs per model; after a job has ended, successfully or
//! not, all triggers wait for the cool-down. Their input comes from [`crate::quality`]; the decision is pure
//! (`decide`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{ModelName, Timestamp, VersionId};
use celeris_storage::RegistryBatch;
use serde::{Deserialize, Serialize};

use crate::decisions::default_rewards;
use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind};
use crate::jobs::{Job, JobState};
use crate::manager::Manager;
use crate::quality::{Baseline, DriftSettings, MeanLoss, Metric, Rise, WINDOW, WINDOW_MAX};
use crate::records::{ModelConfig, ModelRecord, model_key};
use crate::retraining::TrainRequest;

/// Seconds of a year: the longest interval of a trigger.
const YEAR_SECONDS: f64 = 366.0 * 86_400.0;

/// Settings of automatic retraining. All triggers are off by default, so that no node trains unless configured to.
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
    /// Seconds between the end of a job and the next trigger; 600 by default, and at least 60 after a failed job.
    pub cool_down: f64,
}

impl Default for Triggers {
    fn default() -> Self {
        Self { threshold: None, drift: None, schedule: None, volume: None, cool_down: 600.0 }
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

/// Retrain once the log holds this many records that the newest trained version was not trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    pub observations: u64,
}

impl Triggers {
    /// Whether any trigger is set.
    pub(crate) fn any(&self) -> bool {
        self.threshold.is_some() || self.drift.is_some() || self.schedule.is_some() || self.volume.is_some()
    }

    /// Length of the window of the recent loss.
    pub(crate) fn window(&self) -> usize {
        self.threshold.map_or(WINDOW, |threshold| threshold.window)
    }

    pub(crate) fn baseline_observations(&self) -> u64 {
        self.window() as u64
    }

    /// Settings of the drift test, which runs even if it triggers nothing, so that it can be observed before it is
    /// enabled.
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
        if let Some(Volume { observations }) = self.volume {
            checks.push(("triggers.volume.observations", observations as f64, 1.0, 1e12, "from 1 to 1e12"));
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

/// Quality figures that triggers evaluate.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) triggers: Triggers,
    pub(crate) metric: Metric,
    pub(crate) version: VersionId,
    pub(crate) baseline: Option<Baseline>,
    /// Over a full window since the last training.
    pub(crate) recent: Option<MeanLoss>,
    /// Baseline and recent loss of the validation pool.
    pub(crate) pool_baseline: Option<Baseline>,
    pub(crate) pool: Option<MeanLoss>,
    pub(crate) rise: Option<Rise>,
    pub(crate) created: Timestamp,
}

/// Further input of the triggers, from the log and the jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Records that the newest trained version was not trained on.
    pub(crate) unseen: u64,
    /// The newest trained version.
    pub(crate) trained: Option<VersionId>,
    /// Seconds since the last training began, or since the model was created.
    pub(crate) since_training_seconds: f64,
}

/// Reason for a retraining.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reason {
    /// The trigger: `threshold`, `drift`, `volume` or `schedule`.
    pub(crate) trigger: &'static str,
    /// Text of the reason, beginning with the trigger.
    pub(crate) why: String,
    pub(crate) figures: BTreeMap<String, f64>,
}

/// The reason of the first trigger that fires, in the order drift, threshold, volume, schedule: the most informative
/// first. A pure function of figures that the API also reports.
pub(crate) fn decide(facts: &Facts, progress: &Progress) -> Option<Reason> {
    drift(facts).or_else(|| threshold(facts)).or_else(|| volume(facts, progress)).or_else(|| schedule(facts, progress))
}

fn reason<const N: usize>(trigger: &'static str, why: &str, figures: [(&str, f64); N]) -> Reason {
    let figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    Reason { trigger, why: format!("{trigger}: {why}"), figures }
}

fn drift(facts: &Facts) -> Option<Reason> {
    let settings = facts.triggers.drift?;
    let rise = facts.rise?;
    let (before, after) = (facts.metric.value(rise.mean_before), facts.metric.value(rise.mean_after));
    let why = format!(
        "{} rose from {before:.3} over {} observations under version {} to {after:.3} over the {} since \
         (Page-Hinkley statistic {:.1}, threshold {})",
        facts.metric.name(),
        rise.before,
        facts.version,
        rise.after,
        rise.statistic,
        settings.threshold,
    );
    let figures = [("before", before), ("after", after), ("statistic", rise.statistic)];
    Some(reason("drift", &why, figures))
}

fn threshold(facts: &Facts) -> Option<Reason> {
    let Threshold { margin, window: _, on } = facts.triggers.threshold?;
    let (recent, baseline, of) = match on {
        Signal::Observations => (facts.recent?, facts.baseline?, "observations"),
        Signal::Pool => (facts.pool?, facts.pool_baseline?, "observations of the validation pool"),
    };
    let (now, then) = (facts.metric.value(recent.mean), facts.metric.value(baseline.mean));
    if now <= then * (1.0 + margin) {
        return None;
    }
    let excess = if then > 0.0 { format!("{:.0} % above", (now / then - 1.0) * 100.0) } else { "above".to_owned() };
    let why = format!(
        "{} {now:.3} over the last {} {of} is {excess} {then:.3}, the baseline of version {} (margin {:.0} %)",
        facts.metric.name(),
        recent.count,
        facts.version,
        margin * 100.0,
    );
    Some(reason("threshold", &why, [("recent", now), ("baseline", then), ("margin", margin)]))
}

fn volume(facts: &Facts, progress: &Progress) -> Option<Reason> {
    let Volume { observations } = facts.triggers.volume?;
    let Progress { unseen, trained, .. } = *progress;
    if unseen < observations {
        return None;
    }
    let since =
        trained.map_or("and no version was trained yet".to_owned(), |it| format!("since version {it} was trained"));
    let why = format!("{unseen} new observations {since} (every {observations})");
    Some(reason("volume", &why, [("new", unseen as f64)]))
}

fn schedule(facts: &Facts, progress: &Progress) -> Option<Reason> {
    let Schedule { every } = facts.triggers.schedule?;
    let passed = progress.since_training_seconds;
    if passed < every || progress.unseen == 0 {
        return None;
    }
    let why = format!(
        "{passed:.0} seconds have passed since the last training began (every {every}), with {} new observations",
        progress.unseen
    );
    Some(reason("schedule", &why, [("passed_seconds", passed), ("new", progress.unseen as f64)]))
}

fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.0.saturating_sub(earlier.0) as f64 / 1000.0
}

impl Manager {
    /// Starts the jobs of triggers that fire. Blocks the thread; must run within a tokio runtime.
    pub(crate) fn pull_triggers(self: &Arc<Self>) {
        for (model, facts) in self.monitors.triggered() {
            if let Err(error) = self.pull(&model, &facts) {
                tracing::warn!(%model, %error, "a trigger could not start a retraining; retrying");
            }
        }
    }

    /// Starts a job if a trigger of the model fires.
    fn pull(self: &Arc<Self>, model: &ModelName, facts: &Facts) -> Result<(), ManagerError> {
        let now = Timestamp::from(SystemTime::now());
        let record = self.model(model)?;
        let latest = self.jobs.latest(record.id);
        if rests(latest.as_ref(), facts.triggers.cool_down, now) {
            return Ok(());
        }
        let began = latest.map_or(facts.created, |job| job.created);
        let progress = self.progress(model, &facts.triggers, seconds_between(began, now))?;
        let Some(reason) = decide(facts, &progress) else { return Ok(()) };
        let mut event = Event::now(record.identity(), EventKind::Triggered, Actor::Trigger, reason.why.as_str())
            .with("trigger", reason.trigger);
        event.before = Some(facts.version);
        for (name, figure) in &reason.figures {
            event = event.with(name, *figure);
        }
        match self.begin_training(&record, TrainRequest::default(), (Actor::Trigger, &reason.why), Some(event)) {
            // Another job has started; the triggers are evaluated again after it.
            Err(ManagerError::JobRunning { .. }) => return Ok(()),
            other => other?,
        };
        metrics::counter!("celeris_triggers_total", "model" => model.to_string(), "trigger" => reason.trigger)
            .increment(1);
        Ok(())
    }

    /// Reads the log only if a trigger needs the number of new records.
    fn progress(
        &self,
        model: &ModelName,
        triggers: &Triggers,
        since_training_seconds: f64,
    ) -> Result<Progress, ManagerError> {
        let mut progress = Progress { since_training_seconds, ..Progress::default() };
        if triggers.volume.is_some() || triggers.schedule.is_some() {
            let newest =
                self.versions(model)?.into_iter().find_map(|version| Some((version.version, version.watermark?)));
            let seen = newest.as_ref().map_or(0, |(_, watermark)| watermark.records());
            let stream = self.model(model)?.config.stream;
            progress.unseen = self.storage.log().watermark(&stream).records().saturating_sub(seen);
            progress.trained = newest.map(|(version, _)| version);
        }
        Ok(progress)
    }

    /// Changes settings of a model: `change` is applied to a copy, which is checked, written and audited.
    ///
    /// # Errors
    /// `UnknownModel`, an error of `change` or of a check, or `Storage`; nothing is changed then.
    pub fn configure(
        &self,
        model: &ModelName,
        change: impl FnOnce(&mut ModelConfig) -> Result<(), ManagerError>,
    ) -> Result<ModelRecord, ManagerError> {
        let _changing = self.changing.lock();
        let mut record = self.model(model)?;
        let before = record.config.clone();
        change(&mut record.config)?;
        record.config.check()?;
        if record.config.trainer != before.trainer {
            record.config.trainer.check(&record.config.trainer.engine, &self.options.training)?;
        }
        if record.config == before {
            return Ok(record);
        }
        let mut event = Event::now(record.identity(), EventKind::Configured, Actor::Operator, "on request")
            .between(Some(record.active), Some(record.active));
        for (setting, from, to) in differences(&before, &record.config) {
            event = event.with(&setting, serde_json::json!({ "from": from, "to": to }));
        }
        let mut batch = RegistryBatch::new();
        batch.put(model_key(model)?, &record)?;
        if before.default_reward.is_none() && record.config.default_reward.is_some() {
            default_rewards::begin(record.id, &mut batch)?;
        }
        self.commit_noting(batch, &[event])?;
        self.monitors.configure(record.id, &record.config.triggers);
        Ok(record)
    }
}

/// The settings that differ, each with its old and new value.
fn differences(before: &ModelConfig, after: &ModelConfig) -> Vec<(String, serde_json::Value, serde_json::Value)> {
    let as_json = |config: &ModelConfig| serde_json::to_value(config).expect("a configuration is plain data");
    let (before, after) = (as_json(before), as_json(after));
    // An unset setting is absent.
    let names: BTreeSet<&String> =
        [&before, &after].into_iter().filter_map(|one| one.as_object()).flat_map(|one| one.keys()).collect();
    let value = |config: &serde_json::Value, name: &String| config.get(name).cloned().unwrap_or_default();
    let settings = names.into_iter().map(|name| (name.clone(), value(&before, name), value(&after, name)));
    settings.filter(|(_, from, to)| from != to).collect()
}

/// Minimum cool-down in seconds after a failed job: the cause of the failure seldom disappears at once, and the trigger
/// would fire again.
const REST_AFTER_FAILURE: f64 = 60.0;

/// Whether triggers have to wait, for a running job or for the cool-down after one.
fn rests(latest: Option<&Job>, cool_down: f64, now: Timestamp) -> bool {
    let Some(job) = latest else { return false };
    let cool_down = if job.state == JobState::Failed { cool_down.max(REST_AFTER_FAILURE) } else { cool_down };
    job.finished.is_none_or(|finished| seconds_between(finished, now) < cool_down)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn facts(triggers: Triggers) -> Facts {
        Facts {
            triggers,
            metric: Metric::Rmse,
            version: VersionId(3),
            baseline: Some(Baseline { mean: 1.1025, count: 1000, at: Timestamp(0) }),
            recent: None,
            pool_baseline: None,
            pool: None,
            rise: None,
            created: Timestamp(0),
        }
    }

    fn squared(rmse: f64, count: u64) -> Option<MeanLoss> {
        Some(MeanLoss { mean: rmse * rmse, count })
    }

    #[test]
    fn a_threshold_compares_with_the_baseline_and_reports_it() {
        let triggers = Triggers { threshold: Some(Threshold::default()), ..Triggers::default() };
        let mut facts = facts(triggers.clone());
        let decided = |facts: &Facts| decide(facts, &Progress::default());
        assert_eq!(decided(&facts), None, "nothing is known yet");
        facts.recent = squared(1.154, 1000);
        assert_eq!(decided(&facts), None, "within the margin");
        facts.recent = squared(1.21, 1000);
        let reason = decided(&facts).unwrap();
        assert_eq!(
            reason.why,
            "threshold: rmse 1.210 over the last 1000 observations is 15 % above 1.050, the baseline of version 3 (margin \
             10 %)"
        );
        facts.baseline = None;
        assert_eq!(decided(&facts), None, "there is no baseline");

        let on_pool = Threshold { on: Signal::Pool, window: 100, ..Threshold::default() };
        let mut facts = self::facts(Triggers { threshold: Some(on_pool), ..triggers });
        facts.recent = squared(9.0, 1000);
        assert_eq!(decided(&facts), None, "the pool has no observations");
        facts.pool = squared(1.5, 100);
        assert_eq!(decided(&facts), None, "the pool needs its own baseline");
        facts.pool_baseline = Some(Baseline { mean: 1.96, count: 100, at: Timestamp(0) });
        assert_eq!(decided(&facts), None, "1.5 is within the margin of 1.4");
        facts.pool = squared(2.1, 100);
        let reason = decided(&facts).unwrap();
        assert!(reason.why.contains("100 observations of the validation pool is 50 % above 1.400"), "{}", reason.why);
    }

    #[test]
    fn volume_and_schedule_require_new_observations() {
        let both = Triggers {
            volume: Some(Volume { observations: 500 }),
            schedule: Some(Schedule { every: 60.0 }),
            ..Triggers::default()
        };
        let facts = facts(both);
        let decided = |unseen, since_training_seconds| {
            decide(&facts, &Progress { unseen, trained: Some(VersionId(2)), since_training_seconds })
        };
        assert_eq!(decided(499, 59.0), None);
        assert_eq!(decided(0, 1e6), None, "a training on the same data would make the same version");
        let reason = decided(500, 0.0).unwrap();
        assert_eq!(reason.why, "volume: 500 new observations since version 2 was trained (every 500)");
        let reason = decided(1, 61.0).unwrap();
        assert_eq!(reason.trigger, "schedule");
        assert!(reason.why.contains("61 seconds") && reason.why.contains("every 60"), "{}", reason.why);
    }

    #[test]
    fn disabled_triggers_do_not_fire_and_drift_comes_first() {
        let rise = Rise { before: 4000, mean_before: 0.36, after: 150, mean_after: 1.0, statistic: 101.0 };
        let mut facts = facts(Triggers::default());
        (facts.rise, facts.recent) = (Some(rise), squared(5.0, 1000));
        let progress = Progress { unseen: 1_000_000, trained: None, since_training_seconds: 1e9 };
        assert_eq!(decide(&facts, &progress), None, "everything is off by default");
        facts.triggers.threshold = Some(Threshold::default());
        facts.triggers.drift = Some(DriftSettings::default());
        let reason = decide(&facts, &progress).unwrap();
        assert_eq!(
            reason.why,
            "drift: rmse rose from 0.600 over 4000 observations under version 3 to 1.000 over the 150 since \
             (Page-Hinkley statistic 101.0, threshold 100)"
        );
    }

    #[test]
    fn triggers_wait_after_a_failure_even_without_a_cool_down() {
        let job = |state: &str| -> Job {
            let job = serde_json::json!({
                "job": "1", "model": "films", "model_id": 1, "state": state, "engine": "svd", "why": "", "phase": "", "progress": 0.0,
                "metrics": {}, "version": null, "error": null, "created": 0, "finished": 1_000,
            });
            serde_json::from_value(job).unwrap()
        };
        let rests = |state, cool_down, now| rests(Some(&job(state)), cool_down, Timestamp(now));
        assert!(!rests("succeeded", 0.0, 1_000) && rests("failed", 0.0, 1_000));
        assert!(rests("failed", 0.0, 60_999) && !rests("failed", 0.0, 61_000));
        assert!(rests("failed", 120.0, 120_999) && rests("rejected", 120.0, 120_999));
    }

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
        let volume = Some(Volume { observations: 0 });
        assert_eq!(refused(Triggers { volume, ..off() }), Some("triggers.volume.observations"));
    }
}
