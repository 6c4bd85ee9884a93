//! The monitor of one model.

use celeris_model::{LabelRange, Loss, ModelName, StreamName, Timestamp, UserId, VersionId};
use celeris_storage::Watermark;

use super::baseline::{StoredBaseline, VersionBaseline};
use super::curve::{Curve, Place};
use super::drift::{PageHinkley, Rise};
use super::quality::{Quality, RecentLoss, TriggerFacts};
use super::users::Users;
use super::windows::{Lately, Latest, MeanLoss};
use crate::metric::Metric;
use crate::registry::ModelRecord;
use crate::settings::{Triggers, WINDOW, WINDOW_MAX};

/// Lengths of the reported windows by count.
const WINDOWS: [usize; 3] = [100, WINDOW, WINDOW_MAX];

/// Slot of the window of an hour, in milliseconds: a minute.
const MINUTE_MS: i64 = 60_000;
const HOUR_MINUTES: usize = 60;
const DAY_HOURS: usize = 24;

/// A scored observation, live or read back from the log.
pub(super) struct Scored<'a> {
    pub(super) version: VersionId,
    pub(super) user: &'a UserId,
    pub(super) predicted: f32,
    pub(super) label: f32,
    /// Timestamp of the observation.
    pub(super) timestamp: Timestamp,
    pub(super) pool: bool,
    /// Whether the version predicted it since it last began to serve.
    pub(super) current: bool,
    /// Whether it came after the last training, so that triggers evaluate it.
    pub(super) armed: bool,
    pub(super) place: Place,
}

pub(super) struct Monitor {
    pub(super) model: ModelName,
    pub(super) stream: StreamName,
    loss: Loss,
    pub(super) triggers: Triggers,
    created: Timestamp,
    pub(super) version: VersionId,
    /// The limits of labels in losses.
    labels: Option<LabelRange>,
    first_served: Watermark,
    pub(super) since: Watermark,
    pub(super) armed: Watermark,
    served_at: Timestamp,
    baseline: StoredBaseline,
    pool_baseline: StoredBaseline,
    /// Whether the registry has the current [`Monitor::version_baseline`].
    pub(super) is_kept: bool,
    pub(super) observations: u64,
    /// Number of observations under the version since the last training ended.
    since_training: u64,
    latest: Latest,
    /// Over the latest observations under any version.
    recent: Latest,
    hour: Lately,
    day: Lately,
    pool: Latest,
    pool_observations: u64,
    /// Number of observations of the pool under the version since the last training ended.
    pool_since_training: u64,
    pub(super) users: Users,
    curve: Curve,
    pub(super) drift: PageHinkley,
    pub(super) rise: Option<Rise>,
    /// Number of records in the stream's log up to the last processed observation, as far as known.
    pub(super) position: u64,
}

impl Monitor {
    pub(super) fn new(record: &ModelRecord) -> Self {
        let ModelRecord { config, created, active: version, .. } = record;
        let (created, version) = (*created, *version);
        Self {
            model: config.name.clone(),
            stream: config.stream.clone(),
            loss: config.loss,
            triggers: config.triggers.clone(),
            created,
            version,
            labels: None,
            first_served: Watermark::start(),
            since: Watermark::start(),
            armed: Watermark::start(),
            served_at: created,
            baseline: StoredBaseline::default(),
            pool_baseline: StoredBaseline::default(),
            is_kept: true,
            observations: 0,
            since_training: 0,
            latest: Latest::new(WINDOW_MAX),
            recent: Latest::new(WINDOW),
            hour: Lately::new(MINUTE_MS, HOUR_MINUTES),
            day: Lately::new(MINUTE_MS * HOUR_MINUTES as i64, DAY_HOURS),
            pool: Latest::new(WINDOW),
            pool_observations: 0,
            pool_since_training: 0,
            users: Users::default(),
            curve: Curve::default(),
            drift: PageHinkley::new(config.triggers.drift_settings()),
            rise: None,
            position: 0,
        }
    }

    pub(super) fn add(&mut self, scored: &Scored<'_>, now: Timestamp) {
        let label = self.labels.map_or(scored.label, |labels| labels.nearest(scored.label));
        let loss = self.loss.prediction_loss(scored.predicted, label);
        self.hour.add(scored.timestamp, now, loss);
        self.day.add(scored.timestamp, now, loss);
        self.users.add(scored.user, loss);
        self.curve.add(scored.place, scored.version, loss);
        self.recent.add(loss);
        if scored.pool {
            self.pool.add(loss);
            self.pool_observations += 1;
        }
        if scored.current {
            self.add_current(loss, scored);
        }
    }

    /// Updates the figures that are about the active version only.
    fn add_current(&mut self, loss: f64, scored: &Scored<'_>) {
        self.observations += 1;
        self.latest.add(loss);
        let wanted = self.triggers.baseline_observations();
        self.is_kept &= !self.baseline.completed_by(loss, scored.place.at, wanted);
        if scored.pool {
            self.is_kept &= !self.pool_baseline.completed_by(loss, scored.place.at, wanted);
        }
        if !scored.armed {
            return;
        }
        self.since_training += 1;
        self.pool_since_training += u64::from(scored.pool);
        if let Some(rise) = self.drift.add(loss)
            && self.rise.is_none()
        {
            self.rise = Some(rise);
        }
    }

    pub(super) fn serve(&mut self, version_baseline: VersionBaseline) {
        self.version = version_baseline.version;
        self.labels = version_baseline.labels;
        self.first_served = version_baseline.first;
        self.position = self.position.max(version_baseline.since.records());
        self.since = version_baseline.since;
        self.armed = version_baseline.armed;
        self.served_at = version_baseline.at;
        self.is_kept = true;
        self.baseline = version_baseline.baseline.into();
        self.pool_baseline = version_baseline.pool_baseline.into();
        self.observations = 0;
        self.latest.clear();
        self.rearm();
    }

    /// Takes over what another node has stored of the active version.
    pub(super) fn bring_in_line(&mut self, kept: VersionBaseline) {
        if (kept.version, &kept.since) != (self.version, &self.since) {
            return self.serve(kept);
        }
        if kept.armed != self.armed {
            self.armed = kept.armed.clone();
            self.rearm();
        }
        self.labels = kept.labels;
        self.first_served = kept.first.clone();
        self.served_at = kept.at;
        // Each node computes the baselines; those that are stored count.
        for (own, stored) in [(&mut self.baseline, kept.baseline), (&mut self.pool_baseline, kept.pool_baseline)] {
            if stored.is_some() {
                *own = stored.into();
            }
        }
        self.is_kept = self.version_baseline() == kept;
    }

    /// Resets the figures that triggers evaluate.
    pub(super) fn rearm(&mut self) {
        self.since_training = 0;
        self.pool_since_training = 0;
        self.drift = PageHinkley::new(self.triggers.drift_settings());
        self.rise = None;
    }

    pub(super) fn version_baseline(&self) -> VersionBaseline {
        VersionBaseline {
            version: self.version,
            labels: self.labels,
            first: self.first_served.clone(),
            since: self.since.clone(),
            at: self.served_at,
            armed: self.armed.clone(),
            baseline: self.baseline.known,
            pool_baseline: self.pool_baseline.known,
        }
    }

    pub(super) fn recent_loss(&self) -> Option<RecentLoss> {
        let MeanLoss { mean, count } = self.recent.mean(WINDOW)?;
        let metric = Metric::of(self.loss);
        Some(RecentLoss { metric, value: metric.value(mean), count })
    }

    pub(super) fn describe(&self, now: Timestamp) -> Quality {
        let windows = WINDOWS.into_iter().filter_map(|window| Some((window, self.latest.mean(window)?)));
        Quality {
            loss: self.loss,
            metric: Metric::of(self.loss),
            version: self.version,
            observations: self.observations,
            baseline: self.baseline.known,
            baseline_observations: self.triggers.baseline_observations(),
            windows: windows.collect(),
            hour: self.hour.mean(now),
            day: self.day.mean(now),
            pool: self.pool.mean(WINDOW),
            pool_baseline: self.pool_baseline.known,
            pool_observations: self.pool_observations,
            users: self.users.summary(),
            drift_statistic: self.drift.statistic(),
            drift_observations: self.drift.count(),
            drift_settings: *self.drift.settings(),
            rise: self.rise,
            curve: self.curve.points().to_vec(),
        }
    }

    /// Input of the triggers.
    pub(super) fn facts(&self) -> TriggerFacts {
        let window = self.triggers.window();
        let full = |since_training: u64| since_training >= window as u64;
        TriggerFacts {
            triggers: self.triggers.clone(),
            metric: Metric::of(self.loss),
            version: self.version,
            baseline: self.baseline.known,
            recent: self.latest.mean(window).filter(|_| full(self.since_training)),
            pool_baseline: self.pool_baseline.known,
            pool: self.pool.mean(window).filter(|_| full(self.pool_since_training)),
            rise: self.rise,
            created: self.created,
        }
    }
}
