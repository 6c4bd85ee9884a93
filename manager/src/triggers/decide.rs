//! Decides whether a trigger fires. Pure.

use std::collections::BTreeMap;

use celeris_model::{Timestamp, VersionId};

use crate::monitoring::TriggerFacts;
use crate::settings::{Engine, Schedule, Signal, Threshold};
use crate::training::{Job, JobState};

/// Further input of the triggers, from the log and the jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Records that the newest trained version was not trained on.
    pub(crate) unseen: u64,
    /// Records up to the end of its training data.
    pub(crate) seen: u64,
    /// The newest trained version.
    pub(crate) trained: Option<VersionId>,
    /// Seconds since the last training began, or since the model was created.
    pub(crate) since_training_seconds: f64,
}

/// Reason for a retraining.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reason {
    /// The trigger: `threshold`, `drift`, `volume`, `schedule`, `popularity` or `study`.
    pub(crate) trigger: &'static str,
    /// Text of the reason, beginning with the trigger.
    pub(crate) why: String,
    pub(crate) figures: BTreeMap<String, f64>,
}

/// The reason of the first trigger that fires, in the order drift, threshold, volume, schedule: the
/// most informative first. A pure function of figures that the API also reports.
pub(crate) fn decide(facts: &TriggerFacts, progress: &Progress) -> Option<Reason> {
    drift(facts).or_else(|| threshold(facts)).or_else(|| volume(facts, progress)).or_else(|| schedule(facts, progress))
}

fn reason<const N: usize>(trigger: &'static str, why: &str, figures: [(&str, f64); N]) -> Reason {
    let figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    Reason { trigger, why: format!("{trigger}: {why}"), figures }
}

fn drift(facts: &TriggerFacts) -> Option<Reason> {
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

fn threshold(facts: &TriggerFacts) -> Option<Reason> {
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

fn volume(facts: &TriggerFacts, progress: &Progress) -> Option<Reason> {
    let Progress { unseen, seen, trained, .. } = *progress;
    let wanted = facts.triggers.volume?.after(seen);
    if unseen < wanted {
        return None;
    }
    let since =
        trained.map_or("and no version was trained yet".to_owned(), |it| format!("since version {it} was trained"));
    let why = format!("{unseen} new observations {since} (after {wanted})");
    Some(reason("volume", &why, [("new", unseen as f64)]))
}

/// Whether offsets are due, for a log of `records` records, `fitted` of which the last ones have seen.
pub(super) fn popularity(facts: &TriggerFacts, records: u64, fitted: u64) -> Option<Reason> {
    if !facts.triggers.popularity?.is_due(records, fitted) {
        return None;
    }
    let why = format!("{} observations since offsets were fitted to {fitted}", records - fitted);
    Some(reason("popularity", &why, [("new", (records - fitted) as f64)]))
}

fn schedule(facts: &TriggerFacts, progress: &Progress) -> Option<Reason> {
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

/// The latest study of a model: when it began, and the number of records that it read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LastStudy {
    pub(super) began: Timestamp,
    pub(super) records: u64,
}

/// Whether a study is due, for a log of `records` records.
pub(super) fn study(facts: &TriggerFacts, last: Option<LastStudy>, (records, now): (u64, Timestamp)) -> Option<Reason> {
    let every = facts.triggers.study.as_ref()?.every;
    let passed = seconds_between(last.map_or(facts.created, |last| last.began), now);
    let new = records.saturating_sub(last.map_or(0, |last| last.records));
    if passed < every || new == 0 {
        return None;
    }
    let since = if last.is_some() { "the last study began" } else { "the model was created" };
    let why = format!("{passed:.0} seconds have passed since {since} (every {every}), with {new} new observations");
    Some(reason("study", &why, [("passed_seconds", passed), ("new", new as f64)]))
}

pub(super) fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.0.saturating_sub(earlier.0) as f64 / 1000.0
}

/// Minimum cool-down in seconds after a failed job: the cause of the failure seldom disappears at
/// once, and the trigger would fire again.
pub(super) const REST_AFTER_FAILURE: f64 = 60.0;

/// Whether triggers have to wait, for a running job or for the cool-down after one.
pub(super) fn rests(latest: Option<&Job>, cool_down: f64, now: Timestamp) -> bool {
    let Some(job) = latest else { return false };
    let cool_down = if job.state == JobState::Failed { cool_down.max(REST_AFTER_FAILURE) } else { cool_down };
    job.finished.is_none_or(|finished| seconds_between(finished, now) < cool_down)
}

/// Whether offsets have to wait: for a running job, or for the cool-down after they could not be fitted.
pub(super) fn offsets_rest(latest: Option<&Job>, cool_down: f64, now: Timestamp) -> bool {
    let failed = |job: &Job| job.state == JobState::Failed && job.engine == Engine::Popularity;
    rests(latest, if latest.is_some_and(failed) { cool_down } else { 0.0 }, now)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::monitoring::{Baseline, MeanLoss, Rise};
    use crate::settings::{DriftSettings, Triggers, Volume};

    fn facts(triggers: Triggers) -> TriggerFacts {
        TriggerFacts {
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
        let decided = |facts: &TriggerFacts| decide(facts, &Progress::default());
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
    fn a_study_is_due_after_a_time_with_new_observations() {
        let space = serde_json::json!({"dim": {"int": [8, 64]}});
        let scheduled = serde_json::json!({"every": 100.0, "space": space, "trials": 9, "workers": 1});
        let triggers = Triggers { study: Some(serde_json::from_value(scheduled).unwrap()), ..Triggers::default() };
        let facts = facts(triggers);
        let at = |seconds: i64| Timestamp(seconds * 1000);
        assert_eq!(study(&facts, None, (50, at(99))), None);
        let first = study(&facts, None, (50, at(101))).unwrap();
        let why = "study: 101 seconds have passed since the model was created (every 100), with 50 new observations";
        assert_eq!((first.why.as_str(), first.trigger), (why, "study"));
        let last = Some(LastStudy { began: at(101), records: 50 });
        assert_eq!(study(&facts, last, (60, at(200))), None);
        assert_eq!(study(&facts, last, (50, at(900))), None, "a study of the same observations would find the same");
        let next = study(&facts, last, (60, at(201))).unwrap();
        assert!(next.why.contains("since the last study began") && next.figures["new"] == 10.0, "{}", next.why);
        assert_eq!(study(&self::facts(Triggers::default()), None, (50, at(900))), None);
    }

    #[test]
    fn volume_and_schedule_require_new_observations() {
        let both = Triggers {
            volume: Some(Volume { observations: 500, growth: 0.0 }),
            schedule: Some(Schedule { every: 60.0 }),
            ..Triggers::default()
        };
        let facts = facts(both);
        let decided = |unseen, since_training_seconds| {
            decide(&facts, &Progress { unseen, seen: 800, trained: Some(VersionId(2)), since_training_seconds })
        };
        assert_eq!(decided(499, 59.0), None);
        assert_eq!(decided(0, 1e6), None, "a training on the same data would make the same version");
        let reason = decided(500, 0.0).unwrap();
        assert_eq!(reason.why, "volume: 500 new observations since version 2 was trained (after 500)");
        let mut growing = facts.clone();
        growing.triggers.volume = Some(Volume { observations: 500, growth: 0.75 });
        growing.triggers.schedule = None;
        let decided_by_growth = |unseen| {
            let progress = Progress { unseen, seen: 800, trained: Some(VersionId(2)), since_training_seconds: 0.0 };
            decide(&growing, &progress)
        };
        assert_eq!(decided_by_growth(599), None, "the log grows by three quarters of 800");
        assert!(decided_by_growth(600).unwrap().why.contains("(after 600)"));
        let reason = decided(1, 61.0).unwrap();
        assert_eq!(reason.trigger, "schedule");
        assert!(reason.why.contains("61 seconds") && reason.why.contains("every 60"), "{}", reason.why);
    }

    #[test]
    fn disabled_triggers_do_not_fire_and_drift_comes_first() {
        let rise = Rise { before: 4000, mean_before: 0.36, after: 150, mean_after: 1.0, statistic: 101.0 };
        let mut facts = facts(Triggers::default());
        (facts.rise, facts.recent) = (Some(rise), squared(5.0, 1000));
        let progress = Progress { unseen: 1_000_000, seen: 0, trained: None, since_training_seconds: 1e9 };
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

    fn job(engine: &str, state: &str) -> Job {
        let job = serde_json::json!({
            "job": "1", "model": "films", "model_id": 1, "state": state, "engine": engine, "why": "", "phase": "",
            "progress": 0.0, "metrics": {}, "version": null, "error": null, "created": 0, "finished": 1_000,
        });
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn offsets_wait_for_the_cool_down_only_after_they_have_failed() {
        let rest = |engine, state, now| offsets_rest(Some(&job(engine, state)), 120.0, Timestamp(now));
        assert!(!rest("popularity", "succeeded", 1_000) && !rest("svd", "succeeded", 1_000));
        assert!(rest("popularity", "failed", 120_999) && !rest("popularity", "failed", 121_000));
        assert!(rest("svd", "failed", 60_999) && !rest("svd", "failed", 61_000), "of the model's own trainer");
    }

    #[test]
    fn triggers_wait_after_a_failure_even_without_a_cool_down() {
        let rests = |state, cool_down, now| rests(Some(&job("svd", state)), cool_down, Timestamp(now));
        assert!(!rests("succeeded", 0.0, 1_000) && rests("failed", 0.0, 1_000));
        assert!(rests("failed", 0.0, 60_999) && !rests("failed", 0.0, 61_000));
        assert!(rests("failed", 120.0, 120_999) && rests("rejected", 120.0, 120_999));
    }
}
