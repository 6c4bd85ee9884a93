//! Activation of versions and rollback, always with warm caches.
//!
//! A switch first computes the hot users, features and predictions under the new version, on a
//! thread of low priority and within a time limit. Then one atomic write activates it in the
//! registry together with the event, and a pointer is swapped. Switches of a node are serialised,
//! so only one is prepared at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_model::{ModelName, VersionId};
use celeris_predictor::{ServingVersion, Warmed};
use celeris_storage::{RegistryBatch, faults};

use super::Promotion;
use super::guard::begin_guard;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::low_priority::at_low_priority;
use crate::registry::{Actor, Event, EventKind, ModelRecord, model_key};

/// Time limit of the preparation; the switch then proceeds with the entries that are warm.
pub(crate) const WARMING_MAX: Duration = Duration::from_secs(20);

/// What the audit log records of a switch.
struct Reason {
    kind: EventKind,
    by: Actor,
    why: String,
}

impl Promotion {
    /// Activates a version. Online learning is kept: user states are rebuilt under the version from
    /// the log, those of the most recently active users before the switch. Ends a guard in
    /// progress.
    ///
    /// Blocks during the preparation, for slightly more than twenty seconds at most.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownVersion`, `Features` for a damaged version, or `Storage`.
    pub fn activate(&self, model: &ModelName, version: VersionId) -> Result<ModelRecord, ManagerError> {
        let term = self.registry.term()?;
        let _switching = self.switching.lock();
        let record = self.registry.model(model)?;
        self.registry.version(model, version)?;
        let activating = |record: ModelRecord| Ok(ModelRecord { guarding: None, ..record.activating(version) });
        let reason = Reason { kind: EventKind::Activated, by: Actor::Operator, why: "on request".to_owned() };
        self.switch((&record, &term), (version, || self.registry.load(&record, version)), activating, reason)
    }

    /// Activates a version that has passed the gate, and starts its guard.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownVersion` if it was pruned meanwhile, or `Storage`.
    pub(crate) fn promote(
        self: &Arc<Self>,
        (record, term): (&ModelRecord, &Term),
        candidate: ServingVersion,
        why: String,
    ) -> Result<(), ManagerError> {
        let version = candidate.id;
        let activating = |record: ModelRecord| {
            let guarding = begin_guard(&record, version);
            Ok(ModelRecord { guarding, ..record.activating(version) })
        };
        let reason = Reason { kind: EventKind::Activated, by: Actor::Job, why };
        let switching = self.switching.lock();
        let record = self.switch((record, term), (version, || Ok(candidate)), activating, reason)?;
        drop(switching);
        self.guard(&record, term);
        Ok(())
    }

    /// Activates the previously active version again, on request.
    ///
    /// # Errors
    /// Same as [`Promotion::activate`], and `NothingToRollBackTo`.
    pub fn roll_back(&self, model: &ModelName) -> Result<ModelRecord, ManagerError> {
        self.roll_back_from(model, None, (Actor::Operator, "on request".to_owned()))
    }

    /// Rolls back from the active version of the record `from`, within its term, or from any active
    /// version if `None`.
    pub(super) fn roll_back_from(
        &self,
        model: &ModelName,
        from: Option<(&ModelRecord, &Term)>,
        (by, why): (Actor, String),
    ) -> Result<ModelRecord, ManagerError> {
        let term = from.map_or_else(|| self.registry.term(), |(_, term)| Ok(term.clone()))?;
        let _switching = self.switching.lock();
        let record = self.registry.model(model)?;
        let nothing =
            |record: &ModelRecord| ManagerError::NothingToRollBackTo { model: model.clone(), version: record.active };
        if from.is_some_and(|(from, _)| (from.id, from.active) != (record.id, record.active)) {
            return Err(nothing(&record));
        }
        let version = *record.served.last().ok_or_else(|| nothing(&record))?;
        self.registry.version(model, version)?;
        let going_back = |mut record: ModelRecord| {
            record.active = record.served.pop().ok_or_else(|| nothing(&record))?;
            record.guarding = None;
            Ok(record)
        };
        let reason = Reason { kind: EventKind::RolledBack, by, why };
        self.switch((&record, &term), (version, || self.registry.load(&record, version)), going_back, reason)
    }

    /// Loads a version, warms the caches for it at low priority, and activates it in the registry
    /// and in the predictor. `change` is applied to the current record of the model. In a cluster the
    /// other nodes do the same at the same time, and are waited for.
    ///
    /// The caller guarantees that it holds `switching`.
    fn switch(
        &self,
        (record, term): (&ModelRecord, &Term),
        (version, load): (VersionId, impl FnOnce() -> Result<ServingVersion, ManagerError> + Send),
        change: impl FnOnce(ModelRecord) -> Result<ModelRecord, ManagerError>,
        Reason { kind, by, why }: Reason,
    ) -> Result<ModelRecord, ManagerError> {
        let (model, id) = record.identity();
        let preparing = self.begin_preparing((record, term), version)?;
        let hot = self.predictor.activation().hot(model)?;
        let prepared = at_low_priority("celeris-warm", || {
            faults::reach("warming");
            let version = load()?;
            Ok::<_, ManagerError>(self.predictor.activation().prepare(hot, version, Instant::now() + WARMING_MAX)?)
        })??;
        let warmed = prepared.warmed;
        let labels = prepared.version().learning.labels();
        report(model, version, &warmed);
        preparing.wait()?;
        let record = {
            let _changing = self.registry.lock_changes_in(term)?;
            let before = self.registry.current(record)?;
            // It may have been pruned meanwhile.
            self.registry.version(model, version)?;
            let event = Event::now(before.identity(), kind, by, why)
                .between(Some(before.active), Some(version))
                .with("users_prepared", warmed.users.prepared)
                .with("users_hot", warmed.users.of)
                .with("seconds_preparing", warmed.took.as_secs_f64());
            let record = change(before)?;
            let mut batch = RegistryBatch::new();
            batch.put(model_key(model)?, &record)?;
            preparing.end_with(&mut batch)?;
            let baseline = self.monitoring.begin_version(id, (version, labels), &mut batch)?;
            self.registry.audit().commit(batch, &[event])?;
            if let Some(baseline) = baseline {
                self.monitoring.serve(id, baseline);
            }
            preparing.ended();
            faults::reach("flip");
            self.predictor.activation().switch(record.config.serving(), prepared);
            record
        };
        tracing::info!(%model, %version, "version serves");
        let name = model.to_string();
        metrics::counter!("celeris_switches_total", "model" => name, "kind" => kind.name()).increment(1);
        let mut kept = vec![record.active];
        kept.extend(record.guarding.as_ref().map(|guarding| guarding.against));
        self.predictor.activation().release((model, id), &kept);
        Ok(record)
    }
}

/// Reports how much of the caches is warm, in the log and as metrics.
fn report(model: &ModelName, version: VersionId, warmed: &Warmed) {
    let Warmed { users, features, predictions, took } = warmed;
    tracing::info!(
        %model, %version, ?took,
        users = users.prepared, users_hot = users.of,
        features = features.prepared, features_hot = features.of,
        predictions = predictions.prepared, predictions_hot = predictions.of,
        "caches are warm"
    );
    for (what, share) in [("users", users), ("features", features), ("predictions", predictions)] {
        let name = model.to_string();
        metrics::gauge!("celeris_switch_prepared", "model" => name.clone(), "what" => what).set(share.prepared as f64);
        metrics::gauge!("celeris_switch_hot", "model" => name, "what" => what).set(share.of as f64);
    }
    metrics::gauge!("celeris_switch_preparing_seconds", "model" => model.to_string()).set(took.as_secs_f64());
}
