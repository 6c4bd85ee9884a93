//! Quality monitors: how well each model predicts the observations that it then learns from (Velox
//! §2.4).
//!
//! Every observation is predicted before it is learnt (progressive validation; Blum, Kalai &
//! Langford, COLT 1999), and the prediction is stored in its record. The losses of these
//! predictions are aggregated per model and per user ([`users`]), in windows by count and by time
//! ([`windows`]), separately for the validation pool of uniformly drawn rankings, as a curve over
//! the model's lifetime ([`curve`]), and are tested for drift ([`drift`]).
//!
//! The registry stores for every version the log position at which it began to serve and its
//! *baseline*, the mean loss of its first observations. Everything else is derived from the log: at
//! start it is rebuilt from the recorded predictions (`replay.rs`).

mod baseline;
pub mod curve;
pub mod drift;
mod monitor;
mod quality;
mod replay;
#[cfg(test)]
mod tests;
pub mod users;
pub mod windows;

use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;

use celeris_model::{LabelRange, ModelId, ModelName, Record, StreamName, Timestamp, UserEpoch, UserId, VersionId};
use celeris_predictor::LossEvent;
use celeris_storage::{ErasedUsers, RegistryBatch, Storage, StorageError};
use parking_lot::Mutex;

pub use self::baseline::Baseline;
pub(crate) use self::baseline::VersionBaseline;
pub use self::curve::CurvePoint;
pub use self::drift::{PageHinkley, Rise};
pub(crate) use self::quality::TriggerFacts;
pub use self::quality::{Quality, RecentLoss};
pub use self::users::{UserLoss, UsersLoss};
pub use self::windows::MeanLoss;

use self::baseline::{baseline_key, baselines_key};
use self::curve::Place;
use self::monitor::{Monitor, Scored};
use crate::registry::ModelRecord;
use crate::settings::Triggers;

/// Whether more loss events are queued behind the current batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// More events are queued.
    Events,
    /// The queue is empty.
    Nothing,
}

/// Monitors of all models in service.
pub struct Monitoring {
    storage: Storage,
    by_model: Mutex<HashMap<ModelId, Monitor>>,
    /// Recently erased users: their losses wait in a bounded channel, for less than a second.
    erased: ErasedUsers<StreamName>,
}

impl Monitoring {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, by_model: Mutex::default(), erased: ErasedUsers::default() }
    }

    /// Starts to monitor a new model.
    pub(crate) fn start(&self, record: &ModelRecord) {
        self.by_model.lock().insert(record.id, Monitor::new(record));
    }

    /// Monitors a model of the registry again, from the stored quality of its active version. Does
    /// not read its log.
    pub(crate) fn resume(&self, record: &ModelRecord) -> Result<(), StorageError> {
        let mut monitor = Monitor::new(record);
        if let Some(version_baseline) = self.kept(record.id, record.active)? {
            monitor.serve(version_baseline);
        }
        self.by_model.lock().insert(record.id, monitor);
        Ok(())
    }

    /// Brings the monitor of a model in line with the registry, which another node has written. The
    /// losses that it has processed stay.
    pub(crate) fn bring_in_line(&self, record: &ModelRecord) -> Result<(), StorageError> {
        let kept = self.kept(record.id, record.active)?;
        let mut monitors = self.by_model.lock();
        match (monitors.get_mut(&record.id), kept) {
            (Some(monitor), Some(kept)) => monitor.bring_in_line(kept),
            (Some(_), None) => {}
            (None, kept) => {
                let mut monitor = Monitor::new(record);
                kept.into_iter().for_each(|kept| monitor.serve(kept));
                monitors.insert(record.id, monitor);
            }
        }
        Ok(())
    }

    /// The name of a model that is monitored.
    pub(crate) fn name_of(&self, model: ModelId) -> Option<ModelName> {
        self.by_model.lock().get(&model).map(|monitor| monitor.model.clone())
    }

    /// Stops monitoring the models that are not among these.
    pub(crate) fn retain(&self, models: &BTreeSet<ModelId>) {
        self.by_model.lock().retain(|model, _| models.contains(model));
    }

    /// Reads the stored quality of a version. An unreadable document is discarded, since nothing
    /// else depends on it.
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

    /// Processes loss events. `now` is the current time. If no event is queued behind these, the
    /// monitors have reached the end of the log, and the position is advanced over corrections and
    /// dropped losses.
    pub(crate) fn add(&self, events: &[LossEvent], now: Timestamp, behind: Behind) {
        let mut monitors = self.by_model.lock();
        // An event is sent after its record is written, so the log is never behind, and often
        // ahead.
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
                // Predictions that the previous version made during the switch do not count for
                // this one.
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

    /// Adds to `batch`, the write that activates a version with these limits of labels, the quality
    /// data with which it begins to serve. The result is for [`Monitoring::serve`] after the write; `None` for an unknown
    /// model, or if the version is already active.
    pub(crate) fn begin_version(
        &self,
        model: ModelId,
        (version, labels): (VersionId, Option<LabelRange>),
        batch: &mut RegistryBatch,
    ) -> Result<Option<VersionBaseline>, StorageError> {
        let stream = match self.by_model.lock().get(&model) {
            Some(monitor) if monitor.version != version || monitor.observations == 0 => monitor.stream.clone(),
            _ => return Ok(None),
        };
        let before = self.kept(model, version)?;
        let since = self.storage.log().watermark(&stream);
        let version_baseline = VersionBaseline {
            version,
            labels,
            first: before.as_ref().map_or_else(|| since.clone(), |version_baseline| version_baseline.first.clone()),
            armed: since.clone(),
            since,
            at: SystemTime::now().into(),
            // A version that is activated again keeps its first baseline.
            baseline: before.as_ref().and_then(|version_baseline| version_baseline.baseline),
            pool_baseline: before.and_then(|version_baseline| version_baseline.pool_baseline),
        };
        version_baseline.put(model, batch)?;
        Ok(Some(version_baseline))
    }

    /// Restarts the figures of a model whose active version has changed.
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

    /// Stops monitoring a model.
    pub(crate) fn forget(&self, model: ModelId) {
        self.by_model.lock().remove(&model);
    }

    /// Removes a user who was erased by the event of this epoch. Losses of earlier events may still
    /// be queued, and are dropped on arrival.
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

    /// The model's recent loss.
    #[must_use]
    pub fn recent_loss(&self, model: ModelId) -> Option<RecentLoss> {
        self.by_model.lock().get(&model)?.recent_loss()
    }

    /// All quality figures of a model; `None` if it is not monitored.
    #[must_use]
    pub fn quality(&self, model: ModelId, now: Timestamp) -> Option<Quality> {
        self.by_model.lock().get(&model).map(|monitor| monitor.describe(now))
    }

    /// Mean loss of one user's observations; `None` if the user is not among the most recently
    /// active users.
    #[must_use]
    pub fn user_loss(&self, model: ModelId, user: &UserId) -> Option<MeanLoss> {
        self.by_model.lock().get(&model)?.users.get(user)
    }

    /// The models with a trigger, and the input of their triggers.
    pub(crate) fn triggered(&self) -> Vec<(ModelName, TriggerFacts)> {
        let monitors = self.by_model.lock();
        let set = monitors.iter().filter(|(_, monitor)| monitor.triggers.any());
        set.map(|(_, monitor)| (monitor.model.clone(), monitor.facts())).collect()
    }
}
