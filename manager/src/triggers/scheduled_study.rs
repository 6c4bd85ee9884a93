//! The trigger that starts studies.

use std::time::SystemTime;

use celeris_model::{ModelName, Timestamp};

use super::decide::{LastStudy, REST_AFTER_FAILURE, study};
use super::{AutomaticRetraining, count_fired, event_of};
use crate::error::ManagerError;
use crate::monitoring::TriggerFacts;
use crate::studies::NewStudy;

/// Until when no study of a model is due, as long as its trigger has this interval: the studies are not read again
/// before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rest {
    every: f64,
    until: Timestamp,
}

impl AutomaticRetraining {
    /// Starts a study if that of the model is due and no training of it is running.
    pub(super) fn check_study(&self, model: &ModelName, facts: &TriggerFacts) -> Result<(), ManagerError> {
        let Some(scheduled) = &facts.triggers.study else { return Ok(()) };
        let now = Timestamp::from(SystemTime::now());
        let record = self.registry.model(model)?;
        let rest = self.rests_until.lock().get(&record.id).copied();
        let rests = rest.is_some_and(|rest| rest.every == scheduled.every && now < rest.until);
        if rests || self.training.jobs().check_idle(model).is_err() {
            return Ok(());
        }
        let rest_for = |seconds: f64| {
            #[expect(clippy::cast_possible_truncation, reason = "at most a year")]
            let until = Timestamp(now.0.saturating_add((seconds * 1000.0) as i64));
            self.rests_until.lock().insert(record.id, Rest { every: scheduled.every, until });
        };
        // Whatever follows, not at every look.
        rest_for(scheduled.every.min(REST_AFTER_FAILURE));
        let last = self.studies.of_model(model)?.into_iter().next();
        if last.as_ref().is_some_and(|last| last.finished.is_none()) {
            return Ok(());
        }
        let last = last.map(|last| LastStudy { began: last.created, records: last.records() });
        let records = self.storage.log().watermark(&record.config.stream).records();
        let Some(reason) = study(facts, last, (records, now)) else { return Ok(()) };
        // The seed of another study would propose the same first trials.
        let new = NewStudy { why: reason.why.clone(), ..NewStudy::scheduled(scheduled, now.0.unsigned_abs()) };
        match self.studies.start(model, new, Some(event_of(&record, facts, &reason))) {
            // Others are running; tried again later.
            Err(ManagerError::StudyRunning { .. } | ManagerError::TooManyStudies { .. }) => return Ok(()),
            other => other?,
        };
        rest_for(scheduled.every);
        count_fired(model, &reason);
        Ok(())
    }
}
