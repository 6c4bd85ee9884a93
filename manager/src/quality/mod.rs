//! Quality monitors: how well each model predicts what it then learns (Velox §2.4).
//!
//! Every observation is predicted before it is learnt (progressive validation; Blum, Kalai & Langford, COLT 1999), and the
//! prediction is in its record. The losses of these predictions are kept as running aggregates by model and by user
//! ([`users`]), in windows by count and by time ([`windows`]), apart for the validation pool of rankings that were drawn
//! uniformly, as a curve over the model's life ([`curve`]), and are tested for drift ([`drift`]).
//!
//! Of every version, the position in the log at which it began to serve and its *baseline*, the mean loss of its first
//! observations, are in the registry. All else is a view of the log: at start it is rebuilt from the recorded predictions
//! (`replay.rs`).

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

/// Observations that the recent loss is taken over.
pub const WINDOW: usize = 1000;

/// The windows by count that are told.
const WINDOWS: [usize; 3] = [100, WINDOW, WINDOW_MAX];

/// A slot of the last hour, in milliseconds: a minute.
const MINUTE_MS: i64 = 60_000;
const HOUR_MINUTES: usize = 60;
const DAY_HOURS: usize = 24;

/// The error of the latest predictions, each made before its observation was learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecentLoss {
    /// Root of the mean squared difference of prediction and outcome ([`Loss::outcome`]).
    pub rmse: f64,
    /// Observations it is taken over, at most [`WINDOW`].
    pub count: usize,
}

/// The mean loss of a version's first observations, which later losses are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The mean loss.
    pub mean: f64,
    /// Of so many observations.
    pub count: u64,
    /// When the last of them was taken in.
    pub at: Timestamp,
}

/// A baseline, or the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct StoredBaseline {
    known: Option<Baseline>,
    /// The first losses, until there are enough.
    first: Running,
}

impl From<Option<Baseline>> for StoredBaseline {
    fn from(known: Option<Baseline>) -> Self {
        Self { known, first: Running::default() }
    }
}

impl StoredBaseline {
    /// Takes in a loss; whether it is the last of those `wanted`.
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

/// What the registry keeps of the quality of one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionBaseline {
    version: VersionId,
    /// Where the log stood when the version first began to serve.
    first: Watermark,
    /// Where the log stood when the version last began to serve.
    since: Watermark,
    /// When that was.
    at: Timestamp,
    /// Where the log stood when the last training ended: triggers look at what came later, so that none fires twice
    /// for the same losses.
    armed: Watermark,
    /// `None` until the version has seen enough.
    baseline: Option<Baseline>,
    /// The same on the validation pool, whose items are harder: the model did not choose them.
    #[serde(default)]
    pool_baseline: Option<Baseline>,
}

impl VersionBaseline {
    pub(crate) fn put(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        batch.put(birth_key(model, self.version)?, self)?;
        Ok(())
    }
}

/// What is known of the quality of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// The loss that the model minimises.
    pub loss: Loss,
    /// How means of losses are told.
    pub metric: Metric,
    /// The version that serves.
    pub version: VersionId,
    /// Observations predicted by it since it last began to serve, as far as they are remembered.
    pub observations: u64,
    /// The loss at its birth; `None` until it has seen enough.
    pub baseline: Option<Baseline>,
    /// Observations that a baseline is taken over.
    pub baseline_observations: u64,
    /// The mean losses over windows by count: at most so many of the latest observations that this version predicted.
    pub windows: Vec<(usize, MeanLoss)>,
    /// The mean loss of observations whose own time lies within the last hour, under whatever version.
    pub hour: Option<MeanLoss>,
    /// The same of the last day.
    pub day: Option<MeanLoss>,
    /// The mean loss on the validation pool: at most the latest [`WINDOW`] observations of uniformly drawn rankings.
    pub pool: Option<MeanLoss>,
    /// The loss on the validation pool at the version's birth.
    pub pool_baseline: Option<Baseline>,
    /// Observations of the validation pool that are remembered.
    pub pool_observations: u64,
    /// By user.
    pub users: UsersLoss,
    /// The Page–Hinkley statistic, in standard deviations of the loss.
    pub drift_statistic: f64,
    /// Observations that the drift test has seen since it began anew.
    pub drift_observations: u64,
    /// What the drift test was told.
    pub drift_settings: DriftSettings,
    /// The rise that it has found, if it has.
    pub rise: Option<Rise>,
    /// The loss over the model's life, oldest first.
    pub curve: Vec<CurvePoint>,
}

/// One scored observation, live or read back from the log.
struct Scored<'a> {
    version: VersionId,
    user: &'a UserId,
    predicted: f32,
    label: f32,
    /// The observation's own time.
    timestamp: Timestamp,
    pool: bool,
    /// Whether the version predicted it since it last began to serve.
    current: bool,
    /// Whether it came after the last training, so that triggers look at it.
    armed: bool,
    place: Place,
}

/// One model's monitors.
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
    born: Timestamp,
    baseline: StoredBaseline,
    pool_baseline: StoredBaseline,
    /// Whether the registry has [`Monitor::birth`] as it is.
    is_kept: bool,
    observations: u64,
    /// Observations under the version since the last training ended.
    since_training: u64,
    latest: Latest,
    latest_squared_errors: Latest,
    hour: Lately,
    day: Lately,
    pool: Latest,
    pool_observations: u64,
    /// Observations of the pool under the version since the last training ended.
    pool_since_training: u64,
    users: Users,
    curve: Curve,
    drift: PageHinkley,
    rise: Option<Rise>,
    /// Records of the stream's log up to the last observation taken in, as far as is known.
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
            born: created,
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

    /// What is about the version that serves only.
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

    fn serve(&mut self, birth: VersionBaseline) {
        self.version = birth.version;
        self.first_served = birth.first;
        self.position = self.position.max(birth.since.records());
        self.since = birth.since;
        self.armed = birth.armed;
        self.born = birth.at;
        self.is_kept = true;
        self.baseline = birth.baseline.into();
        self.pool_baseline = birth.pool_baseline.into();
        self.observations = 0;
        self.latest.clear();
        self.rearm();
    }

    /// Begins anew to look for a reason to train.
    fn rearm(&mut self) {
        self.since_training = 0;
        self.pool_since_training = 0;
        self.drift = PageHinkley::new(self.triggers.drift_settings());
        self.rise = None;
    }

    fn birth(&self) -> VersionBaseline {
        VersionBaseline {
            version: self.version,
            first: self.first_served.clone(),
            since: self.since.clone(),
            at: self.born,
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

    /// What triggers decide on.
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

/// What waits behind the loss events that are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// More of them.
    Events,
    /// Nothing.
    Nothing,
}

/// The monitors of all models.
pub(crate) struct Monitors {
    storage: Storage,
    by_model: Mutex<HashMap<ModelId, Monitor>>,
    /// Users who were erased lately: losses of their events wait in a bounded channel, for less than a second.
    erased: ErasedUsers<StreamName>,
}

impl Monitors {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, by_model: Mutex::default(), erased: ErasedUsers::default() }
    }

    /// Begins to monitor a model, whose log is not read.
    pub(crate) fn start(&self, record: &ModelRecord) {
        self.by_model.lock().insert(record.id, Monitor::new(record));
    }

    /// Takes over what the registry knows of the version that serves.
    pub(crate) fn resume(&self, model: ModelId) -> Result<(), StorageError> {
        let mut monitors = self.by_model.lock();
        let Some(monitor) = monitors.get_mut(&model) else { return Ok(()) };
        if let Some(birth) = self.kept(model, monitor.version)? {
            monitor.serve(birth);
        }
        Ok(())
    }

    /// What the registry keeps of a version's quality. What cannot be read of it is begun again, since nothing else depends
    /// on it.
    fn kept(&self, model: ModelId, version: VersionId) -> Result<Option<VersionBaseline>, StorageError> {
        match self.storage.registry::<VersionBaseline>(&birth_key(model, version)?) {
            Err(error @ StorageError::Document { .. }) => {
                tracing::error!(%version, %error, "a version's quality is monitored from now on only");
                Ok(None)
            }
            kept => kept,
        }
    }

    /// Rebuilds all windows from the tail of the logs.
    pub(crate) fn rebuild(&self, now: Timestamp) -> Result<(), StorageError> {
        let mut monitors = self.by_model.lock();
        let mut streams: Vec<StreamName> = monitors.values().map(|monitor| monitor.stream.clone()).collect();
        streams.sort();
        streams.dedup();
        for stream in streams {
            let tail = replay::tail(&self.storage, &stream)?;
            let end = self.storage.watermark(&stream).records();
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

    /// Takes in what happened since. `now` is the time; where no event waits behind these, the monitors have come to the
    /// log's end, and corrections and losses that were dropped are counted in.
    pub(crate) fn add(&self, events: &[LossEvent], now: Timestamp, behind: Behind) {
        let mut monitors = self.by_model.lock();
        // An event comes after its record, so the log is never behind, and often ahead.
        let mut ends: HashMap<ModelId, u64> = HashMap::new();
        for event in events {
            let Some(monitor) = monitors.get_mut(&event.model) else { continue };
            let end = ends.entry(event.model).or_insert_with(|| self.storage.watermark(&monitor.stream).records());
            let position = monitor.position.saturating_add(1).min(*end).max(monitor.position);
            monitor.position = position;
            // An observation from before an erasure may be told of behind it.
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
                // What the version before predicted while it was replaced says nothing about this one.
                current: event.version == monitor.version,
                armed: true,
                place: Place { position, at: now },
            };
            monitor.add(&scored, now);
        }
        if behind == Behind::Nothing
            && let Some(monitor) = events.last().and_then(|event| monitors.get_mut(&event.model))
        {
            monitor.position = monitor.position.max(self.storage.watermark(&monitor.stream).records());
        }
    }

    /// What the registry is to know of a version that begins to serve; `None` for an unknown model, or where it serves.
    pub(crate) fn birth(&self, model: ModelId, version: VersionId) -> Result<Option<VersionBaseline>, StorageError> {
        let stream = match self.by_model.lock().get(&model) {
            Some(monitor) if monitor.version != version || monitor.observations == 0 => monitor.stream.clone(),
            _ => return Ok(None),
        };
        let before = self.kept(model, version)?;
        let since = self.storage.watermark(&stream);
        Ok(Some(VersionBaseline {
            version,
            first: before.as_ref().map_or_else(|| since.clone(), |birth| birth.first.clone()),
            armed: since.clone(),
            since,
            at: SystemTime::now().into(),
            // A version that serves again is measured by what it was at first.
            baseline: before.as_ref().and_then(|birth| birth.baseline),
            pool_baseline: before.and_then(|birth| birth.pool_baseline),
        }))
    }

    pub(crate) fn serve(&self, model: ModelId, birth: VersionBaseline) {
        if let Some(monitor) = self.by_model.lock().get_mut(&model) {
            monitor.serve(birth);
        }
    }

    /// A training of the model has ended, however it did.
    pub(crate) fn trained(&self, model: ModelId) {
        if let Some(monitor) = self.by_model.lock().get_mut(&model) {
            monitor.armed = self.storage.watermark(&monitor.stream);
            monitor.is_kept = false;
            monitor.rearm();
        }
    }

    /// Changed settings hold from now on; a drift test that they change begins anew.
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

    /// Adds the removal of what is kept of a model to the write that deletes the model.
    pub(crate) fn delete(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        for key in self.storage.registry_keys(&births_key(model)?)? {
            batch.delete(key);
        }
        Ok(())
    }

    pub(crate) fn forget(&self, model: ModelId) {
        self.by_model.lock().remove(&model);
    }

    /// Forgets a user who was erased by the event of this epoch. Losses of earlier events may still be on their way, and
    /// are dropped when they come.
    pub(crate) fn forget_user(&self, stream: &StreamName, user: &UserId, erased: UserEpoch) {
        self.erased.add(stream, user, erased);
        for monitor in self.by_model.lock().values_mut().filter(|monitor| monitor.stream == *stream) {
            monitor.users.forget(user);
        }
    }

    /// Writes what has become known of versions since they were born.
    pub(crate) fn keep(&self) -> Result<(), StorageError> {
        let mut unkept = Vec::new();
        for (model, monitor) in self.by_model.lock().iter().filter(|(_, monitor)| !monitor.is_kept) {
            unkept.push((*model, monitor.birth()));
        }
        for (model, birth) in unkept {
            let mut batch = RegistryBatch::new();
            birth.put(model, &mut batch)?;
            self.storage.commit_registry(&batch)?;
            if let Some(monitor) = self.by_model.lock().get_mut(&model)
                && monitor.birth() == birth
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

    /// Records in the log of the model's stream.
    pub(crate) fn position(&self, model: ModelId) -> Option<u64> {
        let stream = self.by_model.lock().get(&model)?.stream.clone();
        Some(self.storage.watermark(&stream).records())
    }

    /// The models that have a trigger set, with what it decides on.
    pub(crate) fn triggered(&self) -> Vec<(ModelName, Facts)> {
        let monitors = self.by_model.lock();
        let set = monitors.iter().filter(|(_, monitor)| monitor.triggers.any());
        set.map(|(_, monitor)| (monitor.model.clone(), monitor.facts())).collect()
    }
}

/// The births of all versions of a model.
fn births_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["quality".to_owned(), model.to_string()])
}

/// The number is padded so that the registry's order is theirs.
fn birth_key(model: ModelId, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["quality".to_owned(), model.to_string(), format!("{version:020}", version = version.0)])
}
