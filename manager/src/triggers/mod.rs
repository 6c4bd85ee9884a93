//! Triggers: automatic retraining and studies, and the reasons reported for them.
//!
//! Triggers belong to a model ([`crate::settings::Triggers`]). At most one job
//! runs per model; after a job has ended, successfully or not, all triggers wait for the cool-down.
//! Their input comes from [`crate::monitoring`]; the decision is pure (`decide.rs`).

mod decide;
mod scheduled_study;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::{ModelId, ModelName, Timestamp, VersionId};
use celeris_retrain::POPULARITY;
use celeris_storage::Storage;
use parking_lot::Mutex;

use self::decide::{Progress, Reason, decide, offsets_rest, popularity, rests, seconds_between};
pub(crate) use self::scheduled_study::Rest;
use crate::error::ManagerError;
use crate::monitoring::{Monitoring, TriggerFacts};
use crate::registry::{Actor, Event, EventKind, ModelRecord, Registry, UNTRAINED, VersionRecord};
use crate::settings::Engine;
use crate::studies::Studies;
use crate::training::{Cause, TrainRequest, Training};

/// Starts the trainings and studies of triggers that fire.
pub(crate) struct AutomaticRetraining {
    pub(crate) storage: Storage,
    pub(crate) registry: Arc<Registry>,
    pub(crate) monitoring: Arc<Monitoring>,
    pub(crate) training: Arc<Training>,
    pub(crate) studies: Arc<Studies>,
    /// Until when no study of a model is due.
    pub(crate) rests_until: Mutex<HashMap<ModelId, Rest>>,
}

impl AutomaticRetraining {
    /// Starts the jobs and studies of triggers that fire. Blocks the thread; must run within a tokio runtime.
    pub(crate) fn check_triggers(&self) {
        for (model, facts) in self.monitoring.triggered() {
            let checked = self.check(&model, &facts).and_then(|()| self.check_study(&model, &facts));
            let Err(error) = checked else { continue };
            if error.is_of_other_node() {
                tracing::info!(%model, %error, "a trigger is left to the node that leads");
            } else {
                tracing::warn!(%model, %error, "a trigger could not start a retraining or a study; retrying");
            }
        }
    }

    /// Starts a job if a trigger of the model fires.
    fn check(&self, model: &ModelName, facts: &TriggerFacts) -> Result<(), ManagerError> {
        let now = Timestamp::from(SystemTime::now());
        let record = self.registry.model(model)?;
        let Some((reason, request)) = self.due(&record, facts, now)? else { return Ok(()) };
        let event = event_of(&record, facts, &reason);
        match self.training.retrain(&record, request, Cause::Trigger(event)) {
            // Another job has started; the triggers are evaluated again after it.
            Err(ManagerError::JobRunning { .. }) => return Ok(()),
            other => other?,
        };
        count_fired(model, &reason);
        Ok(())
    }

    /// The training that is due, if any. The cool-down separates trainings of the model's own
    /// trainer; offsets are fitted meanwhile.
    fn due(
        &self,
        record: &ModelRecord,
        facts: &TriggerFacts,
        now: Timestamp,
    ) -> Result<Option<(Reason, TrainRequest)>, ManagerError> {
        let triggers = &facts.triggers;
        let wants_records = triggers.volume.is_some() || triggers.schedule.is_some() || triggers.popularity.is_some();
        // The log and the versions are read only if a trigger needs the number of new records.
        let versions = if wants_records { self.registry.versions(&record.config.name)? } else { Vec::new() };
        let records = self.storage.log().watermark(&record.config.stream).records();
        let latest = self.training.jobs().latest(record.id, |job| job.engine != Engine::Popularity);
        if !rests(latest.as_ref(), triggers.cool_down, now) {
            let began = latest.map_or(facts.created, |job| job.created);
            let progress = progress(&versions, records, seconds_between(began, now));
            if let Some(reason) = decide(facts, &progress) {
                return Ok(Some((reason, TrainRequest::default())));
            }
        }
        // Also after a rollback, offsets do not follow a version that was trained otherwise.
        let is_untrained = |version: &VersionRecord| [UNTRAINED, POPULARITY].contains(&version.algorithm.as_str());
        if !versions.iter().all(is_untrained)
            || offsets_rest(self.training.jobs().latest(record.id, |_| true).as_ref(), triggers.cool_down, now)
        {
            return Ok(None);
        }
        let fitted = seen(&versions, |version| version.algorithm == POPULARITY).map_or(0, |(_, records)| records);
        let request = TrainRequest { engine: Some(Engine::Popularity), ..TrainRequest::default() };
        Ok(popularity(facts, records, fitted).map(|reason| (reason, request)))
    }
}

/// The event of a trigger that fires.
fn event_of(record: &ModelRecord, facts: &TriggerFacts, reason: &Reason) -> Event {
    let mut event = Event::now(record.identity(), EventKind::Triggered, Actor::Trigger, reason.why.as_str())
        .with("trigger", reason.trigger);
    event.before = Some(facts.version);
    for (name, figure) in &reason.figures {
        event = event.with(name, *figure);
    }
    event
}

fn count_fired(model: &ModelName, reason: &Reason) {
    metrics::counter!("celeris_triggers_total", "model" => model.to_string(), "trigger" => reason.trigger).increment(1);
}

/// The newest of the versions that count and were trained on the log, with the number of records up
/// to the end of its training data.
fn seen(versions: &[VersionRecord], counts: impl Fn(&VersionRecord) -> bool) -> Option<(VersionId, u64)> {
    let trained = versions.iter().filter(|version| counts(version));
    trained.filter_map(|version| Some((version.version, version.watermark.as_ref()?.records()))).next()
}

fn progress(versions: &[VersionRecord], records: u64, since_training_seconds: f64) -> Progress {
    let newest = seen(versions, |version| version.algorithm != POPULARITY);
    let seen = newest.map_or(0, |(_, seen)| seen);
    let trained = newest.map(|(version, _)| version);
    Progress { unseen: records.saturating_sub(seen), seen, trained, since_training_seconds }
}
