//! Quality monitors: how well each model predicts the observations that it then learns from (Velox §2.4).
//!
//! Every observation is predicted before it is learnt (progressive validation; Blum, Kalai & Langford, COLT 1999), and
//! the prediction is stored in its record. The losses of these predictions are aggregated per model and per user
//! ([`users`]), in windows by count and by time ([`windows`]), separately for the validation pool of uniformly drawn
//! rankings, as a curve over the model's lifetime ([`curve`]), and are tested for drift ([`drift`]).
//!
//! The registry stores for every version the log position at which it began to serve and its *baseline*, the mean loss
//! of its first observations. Everything else is derived from the log: at start it is rebuilt from the recorded
//! predictions (`replay.rs`).

pub mod curve;
pub mod drift;
mod metric;
mod replay;
#[cfg(test)]
mod tests;
pub mod users;
pub mod windows;

use std::collections::HashMap;
use std::time::SystemTime;

use celeris_model::{Loss, ModelId, ModelName, Record, StreamName, Timestamp, UserEpoch, UserId, VersionId};
use celeris_predictor::LossEvent;
use celeris_storage::{ErasedUsers, RegistryBatch, RegistryKey, Storage, StorageError, Watermark};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use curve::CurvePoint;
pub use drift::{DriftSettings, PageHinkley, Rise};
pub use metric::Metric;
pub use users::{UserLoss, UsersLoss};
pub use windows::{MeanLoss, WINDOW_MAX};

use crate::records::ModelRecord;
use crate::triggers::{Facts, Triggers};
use curve::{Curve, Place};
use users::Users;
use windows::{Lately, Latest, Running};

/// Number of observations in the recent loss.
pub const WINDOW: usize = 1000;

/// Lengths of the reported windows by count.
const WINDOWS: [usize; 3] = [100, WINDOW, WINDOW_MAX];

/// Slot of the window of an hour, in milliseconds: a minute.
const MINUTE_MS: i64 = 60_000;
const HOUR_MINUTES: usize = 60;
const DAY_HOURS: usize = 24;

/// Error of the latest predictions, each made before its observation was learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecentLoss {
    /// Root mean squared difference of prediction and outcome ([`Loss::outcome`]).
    pub rmse: f64,
    /// Number of observations, at most [`WINDOW`].
    pub count: usize,
}

/// Mean loss of a version's first observations, with which later losses are compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub mean: f64,
    /// Number of observations.
    pub count: u64,
    /// Time at which the last of them was processed.
    pub at: Timestamp,
}

/// A baseline, or the losses collected for it so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct StoredBaseline {
    known: Option<Baseline>,
    /// The first losses, until there are enough of them.
    first: Running,
}

impl From<Option<Baseline>> for StoredBaseline {
    fn from(known: Option<Baseline>) -> Self {
        Self { known, first: Running::default() }
    }
}

impl StoredBaseline {
    /// Adds a loss. Returns whether it completes a baseline of `wanted` observations.
    fn completed_by(&mut self, loss: f64, at: Timestamp, wanted: u64) -> bool {
        if self.known.is_some() {
            return false;
        }
        self.first.add(loss);
        let complete = self.first.mean().filter(|mean| mean.count >= wanted);
        self.known = complete.map(|MeanLoss { mean, count }| Baseline { mean, count, at });
        self.known.is_some()
    }
}

/// The quality data of one version that is stored in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionBaseline {
    version: VersionId,
    /// Log position at which the version first began to serve.
    first: Watermark,
    /// Log position at which the version last began to serve.
    since: Watermark,
    /// Time of that moment.
    at: Timestamp,
    /// Log position at which the last training ended: triggers evaluate only later observations, so that none fires
    /// twice for the same losses.
    armed: Watermark,
    /// `None` until there are enough observations.
    baseline: Option<Baseline>,
    /// Baseline on the validation pool, whose loss is higher since the model did not choose its items.
    #[serde(default)]
    pool_baseline: Option<Baseline>,
}

impl VersionBaseline {
    pub(crate) fn put(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        batch.put(baseline_key(model, self.version)?, self)?;
        Ok(())
    }
}

/// All quality figures of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// The loss that the model minimises.
    pub loss: Loss,
    /// The metric of all mean losses.
    pub metric: Metric,
    /// The active version.
    pub version: VersionId,
    /// Number of observations predicted by it since it last began to serve, as far as they are in memory.
    pub observations: u64,
    /// The baseline loss; `None` until there are enough observations.
    pub baseline: Option<Baseline>,
    /// Number of observations in a baseline.
    pub baseline_observations: u64,
    /// Window length and mean loss for each window by count, over the latest observations that this version predicted.
    pub windows: Vec<(usize, MeanLoss)>,
    /// Mean loss of the observations with a timestamp within the last hour, under any version.
    pub hour: Option<MeanLoss>,
    /// The same for the last day.
    pub day: Option<MeanLoss>,
    /// Mean loss on the validation pool: at most the latest [`WINDOW`] observations of uniformly drawn rankings.
    pub pool: Option<MeanLoss>,
    /// Baseline loss on the validation pool.
    pub pool_baseline: Option<Baseline>,
    /// Number of observations of the validation pool in memory.
    pub pool_observations: u64,
    pub users: UsersLoss,
    /// Page–Hinkley statistic, in standard deviations of the loss.
    pub drift_statistic: f64,
    /// Number of observations of the drift test since its last restart.
    pub drift_observations: u64,
    pub drift_settings: DriftSettings,
    /// The rise that the drift test has detected, if any.
    pub rise: Option<Rise>,
    /// Loss over the model's lifetime, oldest point first.
    pub curve: Vec<CurvePoint>,
}

/// A scored observation, live or read back from the log.
struct Scored<'a> {
    version: VersionId,
    user: &'a UserId,
    predicted: f32,
    label: f32,
    /// Timestamp of the observation.
    timestamp: Timestamp,
    pool: bool,
    /// Whether the version predicted it since it last began to serve.
    current: bool,
    /// Whether it came after the last training, so that triggers evaluate it.
    armed: bool,
    place: Place,
}

pub(crate) struct Monitor {
    model: ModelName,
    stream: StreamName,
    loss: Loss,
    triggers: Triggers,
    created: Timestamp,
    version: VersionId,
    first_served: Watermark,
    since: Watermark,
    armed: Watermark,
    served_at: Timestamp,
    baseline: StoredBaseline,
    pool_baseline: StoredBaseline,
    /// Whether the registry has the current [`Monitor::version_baseline`].
    is_kept: bool,
    observations: u64,
    /// Number of observations under the version since the last training ended.
    since_training: u64,
    latest: Latest,
    latest_squared_errors: Latest,
    hour: Lately,
    day: Lately,
    pool: Latest,
    pool_observations: u64,
    /// Number of observations of the pool under the version since the last training ended.
    pool_since_training: u64,
    users: Users,
    curve: Curve,
    drift: PageHinkley,
    rise: Option<Rise>,
    /// Number of records in the stream's log up to the last processed observation, as far as known.
    position: u64,
}

impl Monitor {
    fn new(record: &ModelRecord) -> Self {
        let ModelRecord { config, created, active: version, .. } = record;
        let (created, version) = (*created, *version);
        Self {
            model: config.name.clone(),
            stream: config.stream.clone(),
            loss: config.loss,
            triggers: config.triggers.clone(),
            created,
            version,
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
            latest_squared_errors: Latest::new(WINDOW),
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

    fn add(&mut self, scored: &Scored<'_>, now: Timestamp) {
        let loss = self.loss.prediction_loss(scored.predicted, scored.label);
        self.hour.add(scored.timestamp, now, loss);
        self.day.add(scored.timestamp, now, loss);
        self.users.add(scored.user, loss);
        self.curve.add(scored.place, scored.version, loss);
        self.latest_squared_errors.add(self.loss.squared_error(scored.predicted, scored.label));
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

    fn serve(&mut self, version_baseline: VersionBaseline) {
        self.version = version_baseline.version;
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

    /// Resets the figures that triggers evaluate.
    fn rearm(&mut self) {
        self.since_training = 0;
        self.pool_since_training = 0;
        self.drift = PageHinkley::new(self.triggers.drift_settings());
        self.rise = None;
    }

    fn version_baseline(&self) -> VersionBaseline {
        VersionBaseline {
            version: self.version,
            first: self.first_served.clone(),
            since: self.since.clone(),
            at: self.served_at,
            armed: self.armed.clone(),
            baseline: self.baseline.known,
            pool_baseline: self.pool_baseline.known,
        }
    }

    fn describe(&self, now: Timestamp) -> Quality {
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
    fn facts(&self) -> Facts {
        let window = self.triggers.window();
        let full = |since_training: u64| since_training >= window as u64;
        Facts {
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

/// Whether more loss events are queued behind the current batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// More events are queued.
    Events,
    /// The queue is empty.
    Nothing,
}

pub(crate) struct Monitors {
    storage: Storage,
    by_model: Mutex<HashMap<ModelId, Monitor>>,
    /// Recently erased users: their losses wait in a bounded channel, for less than a second.
    erased: ErasedUsers<StreamName>,
}

impl Monitors {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, by_model: Mutex::default(), erased: ErasedUsers::default() }
    }

    /// Starts to monitor a model without reading its log.
    pub(crate) fn start(&self, record: &ModelRecord) {
        self.by_model.lock().insert(record.id, Monitor::new(record));
    }

    /// Loads the stored quality of the active version from the registry.
    pub(crate) fn resume(&self, model: ModelId) -> Result<(), StorageError> {
        let mut monitors = self.by_model.lock();
        let Some(monitor) = monitors.get_mut(&model) else { return Ok(()) };
        if let Some(version_baseline) = self.kept(model, monitor.version)? {
            monitor.serve(version_baseline);
        }
        Ok(())
    }

    /// Reads the stored quality of a version. An unreadable document is discarded, since nothing else depends on it.
    fn kept(&self, model: ModelId, version: VersionId) -> Result<Option<VersionBaseline>, StorageError> {
        match self.storage.registry().get::<VersionBaseline>(&baseline_key(model, version)?) {
            Err(error @ StorageError::Document { .. }) => {
                tracing::error!(%version, %error, "unreadable quality of a version; monitoring restarts");
                Ok(None)
            }
            kept => kept,
        }
    }

    /// Rebuilds all windows from the end of the logs.
    pub(crate) fn rebuild(&self, now: Timestamp) -> Result<(), StorageError> {
        let mut monitors = self.by_model.lock();
        let mut streams: Vec<StreamName> = monitors.values().map(|monitor| monitor.stream.clone()).collect();
        streams.sort();
        streams.dedup();
        for stream in streams {
            let tail = replay::tail(&self.storage, &stream)?;
            let end = self.storage.log().watermark(&stream).records();
            let behind = end.saturating_sub(tail.len() as u64);
            for (number, entry) in (1..).zip(&tail) {
                let Record { user, label, timestamp, decision, predictions, .. } = &entry.record;
                for prediction in predictions {
                    let Some(monitor) = monitors.get_mut(&prediction.model) else { continue };
                    if monitor.stream != stream {
                        continue;
                    }
                    let is_later = entry.sequence > monitor.since.get(entry.partition);
                    let scored = Scored {
                        version: prediction.version,
                        user,
                        predicted: prediction.predicted,
                        label: *label,
                        timestamp: *timestamp,
                        pool: decision.as_ref().is_some_and(|facts| facts.pool),
                        current: prediction.version == monitor.version && is_later,
                        armed: entry.sequence > monitor.armed.get(entry.partition),
                        place: Place { position: behind + number, at: *timestamp },
                    };
                    monitor.add(&scored, now);
                }
            }
            for monitor in monitors.values_mut().filter(|monitor| monitor.stream == stream) {
                monitor.position = end;
            }
        }
        Ok(())
    }

    /// Processes loss events. `now` is the current time. If no event is queued behind these, the monitors have reached
    /// the end of the log, and the position is advanced over corrections and dropped losses.
    pub(crate) fn add(&self, events: &[LossEvent], now: Timestamp, behind: Behind) {
        let mut monitors = self.by_model.lock();
        // An event is sent after its record is written, so the log is never behind, and often ahead.
        let mut ends: HashMap<ModelId, u64> = HashMap::new();
        for event in events {
            let Some(monitor) = monitors.get_mut(&event.model) else { continue };
            let end =
                ends.entry(event.model).or_insert_with(|| self.storage.log().watermark(&monitor.stream).records());
            let position = monitor.position.saturating_add(1).min(*end).max(monitor.position);
            monitor.position = position;
            // The event of an observation before an erasure may arrive after it.
            if self.erased.holds(&monitor.stream, &event.user, event.user_epoch) {
                continue;
            }
            let scored = Scored {
                version: event.version,
                user: &event.user,
                predicted: event.predicted,
                label: event.label,
                timestamp: event.timestamp,
                pool: event.pool,
                // Predictions that the previous version made during the switch do not count for this one.
                current: event.version == monitor.version,
                armed: true,
                place: Place { position, at: now },
            };
            monitor.add(&scored, now);
        }
        if behind == Behind::Nothing
            && let Some(monitor) = events.last().and_then(|event| monitors.get_mut(&event.model))
        {
            monitor.position = monitor.position.max(self.storage.log().watermark(&monitor.stream).records());
        }
    }

    /// The registry entry of a version that begins to serve; `None` for an unknown model, or if the version is already
    /// active.
    pub(crate) fn version_baseline(
        &self,
        model: ModelId,
        version: VersionId,
    ) -> Result<Option<VersionBaseline>, StorageError> {
        let stream = match self.by_model.lock().get(&model) {
            Some(monitor) if monitor.version != version || monitor.observations == 0 => monitor.stream.clone(),
            _ => return Ok(None),
        };
        let before = self.kept(model, version)?;
        let since = self.storage.log().watermark(&stream);
        Ok(Some(VersionBaseline {
            version,
            first: before.as_ref().map_or_else(|| since.clone(), |version_baseline| version_baseline.first.clone()),
            armed: since.clone(),
            since,
            at: SystemTime::now().into(),
            // A version that is activated again keeps its first baseline.
            baseline: before.as_ref().and_then(|version_baseline| version_baseline.baseline),
            pool_baseline: before.and_then(|version_baseline| version_baseline.pool_baseline),
        }))
    }

    pub(crate) fn serve(&self, model: ModelId, version_baseline: VersionBaseline) {
        if let Some(monitor) = self.by_model.lock().get_mut(&model) {
            monitor.serve(version_baseline);
        }
    }

    /// Called when a training of the model has ended, with or without success.
    pub(crate) fn trained(&self, model: ModelId) {
        if let Some(monitor) = self.by_model.lock().get_mut(&model) {
            monitor.armed = self.storage.log().watermark(&monitor.stream);
            monitor.is_kept = false;
            monitor.rearm();
        }
    }

    /// Applies changed settings; restarts the drift test if its settings changed.
    pub(crate) fn configure(&self, model: ModelId, triggers: &Triggers) {
        if let Some(monitor) = self.by_model.lock().get_mut(&model) {
            let changed = monitor.triggers.drift_settings() != triggers.drift_settings();
            monitor.triggers = triggers.clone();
            if changed {
                monitor.drift = PageHinkley::new(triggers.drift_settings());
                monitor.rise = None;
            }
        }
    }

    /// Adds the removal of a model's quality data to the write that deletes the model.
    pub(crate) fn delete(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        for key in self.storage.registry().keys(&baselines_key(model)?)? {
            batch.delete(key);
        }
        Ok(())
    }

    pub(crate) fn forget(&self, model: ModelId) {
        self.by_model.lock().remove(&model);
    }

    /// Removes a user who was erased by the event of this epoch. Losses of earlier events may still be queued, and are
    /// dropped on arrival.
    pub(crate) fn forget_user(&self, stream: &StreamName, user: &UserId, erased: UserEpoch) {
        self.erased.add(stream, user, erased);
        for monitor in self.by_model.lock().values_mut().filter(|monitor| monitor.stream == *stream) {
            monitor.users.forget(user);
        }
    }

    /// Writes the unsaved baselines to the registry.
    pub(crate) fn keep(&self) -> Result<(), StorageError> {
        let mut unkept = Vec::new();
        for (model, monitor) in self.by_model.lock().iter().filter(|(_, monitor)| !monitor.is_kept) {
            unkept.push((*model, monitor.version_baseline()));
        }
        for (model, version_baseline) in unkept {
            let mut batch = RegistryBatch::new();
            version_baseline.put(model, &mut batch)?;
            self.storage.registry().commit(&batch)?;
            if let Some(monitor) = self.by_model.lock().get_mut(&model)
                && monitor.version_baseline() == version_baseline
            {
                monitor.is_kept = true;
            }
        }
        Ok(())
    }

    pub(crate) fn recent(&self, model: ModelId) -> Option<RecentLoss> {
        let mean = self.by_model.lock().get(&model)?.latest_squared_errors.mean(WINDOW)?;
        Some(RecentLoss { rmse: mean.mean.sqrt(), count: usize::try_from(mean.count).unwrap_or(WINDOW) })
    }

    pub(crate) fn describe(&self, model: ModelId, now: Timestamp) -> Option<Quality> {
        self.by_model.lock().get(&model).map(|monitor| monitor.describe(now))
    }

    pub(crate) fn user(&self, model: ModelId, user: &UserId) -> Option<MeanLoss> {
        self.by_model.lock().get(&model)?.users.get(user)
    }

    /// Number of records in the log of the model's stream.
    pub(crate) fn position(&self, model: ModelId) -> Option<u64> {
        let stream = self.by_model.lock().get(&model)?.stream.clone();
        Some(self.storage.log().watermark(&stream).records())
    }

    /// The models with a trigger, and the input of their triggers.
    pub(crate) fn triggered(&self) -> Vec<(ModelName, Facts)> {
        let monitors = self.by_model.lock();
        let set = monitors.iter().filter(|(_, monitor)| monitor.triggers.any());
        set.map(|(_, monitor)| (monitor.model.clone(), monitor.facts())).collect()
    }
}

/// The key prefix of the quality data of all versions of a model.
fn baselines_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["quality".to_owned(), model.to_string()])
}

/// The number is padded, so that keys sort numerically.
fn baseline_key(model: ModelId, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["quality".to_owned(), model.to_string(), format!("{version:020}", version = version.0)])
}
