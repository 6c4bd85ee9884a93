//! Triggers: automatic retraining, and the reasons reported for it.
//!
//! Triggers belong to a model ([`crate::settings::Triggers`]). At most one job
//! runs per model; after a job has ended, successfully or not, all triggers wait for the cool-down.
//! Their input comes from [`crate::monitoring`]; the decision is pure (`decide.rs`).

mod decide;

use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{ModelName, Timestamp};
use celeris_storage::Storage;

use self::decide::{Progress, decide, rests, seconds_between};
use crate::error::ManagerError;
use crate::monitoring::{Monitoring, TriggerFacts};
use crate::registry::{Actor, Event, EventKind, ModelRecord, Registry};
use crate::settings::Triggers;
use crate::training::{Cause, TrainRequest, Training};

/// Starts the trainings of triggers that fire.
pub(crate) struct AutomaticRetraining {
    pub(crate) storage: Storage,
    pub(crate) registry: Arc<Registry>,
    pub(crate) monitoring: Arc<Monitoring>,
    pub(crate) training: Arc<Training>,
}

impl AutomaticRetraining {
    /// Starts the jobs of triggers that fire. Blocks the thread; must run within a tokio runtime.
    pub(crate) fn check_triggers(&self) {
        for (model, facts) in self.monitoring.triggered() {
            if let Err(error) = self.check(&model, &facts) {
                tracing::warn!(%model, %error, "a trigger could not start a retraining; retrying");
            }
        }
    }

    /// Starts a job if a trigger of the model fires.
    fn check(&self, model: &ModelName, facts: &TriggerFacts) -> Result<(), ManagerError> {
        let now = Timestamp::from(SystemTime::now());
        let record = self.registry.model(model)?;
        let latest = self.training.jobs().latest(record.id);
        if rests(latest.as_ref(), facts.triggers.cool_down, now) {
            return Ok(());
        }
        let began = latest.map_or(facts.created, |job| job.created);
        let progress = self.progress(&record, &facts.triggers, seconds_between(began, now))?;
        let Some(reason) = decide(facts, &progress) else { return Ok(()) };
        let mut event = Event::now(record.identity(), EventKind::Triggered, Actor::Trigger, reason.why)
            .with("trigger", reason.trigger);
        event.before = Some(facts.version);
        for (name, figure) in &reason.figures {
            event = event.with(name, *figure);
        }
        match self.training.retrain(&record, TrainRequest::default(), Cause::Trigger(event)) {
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
        record: &ModelRecord,
        triggers: &Triggers,
        since_training_seconds: f64,
    ) -> Result<Progress, ManagerError> {
        let mut progress = Progress { since_training_seconds, ..Progress::default() };
        if triggers.volume.is_some() || triggers.schedule.is_some() {
            let versions = self.registry.versions(&record.config.name)?;
            let newest = versions.into_iter().find_map(|version| Some((version.version, version.watermark?)));
            let seen = newest.as_ref().map_or(0, |(_, watermark)| watermark.records());
            progress.unseen = self.storage.log().watermark(&record.config.stream).records().saturating_sub(seen);
            progress.seen = seen;
            progress.trained = newest.map(|(version, _)| version);
        }
        Ok(progress)
    }
}
