//! The last step of a job: from a candidate to a registered version, which serves if it passes the
//! gate.

use std::sync::Arc;

use celeris_model::VersionId;
use celeris_retrain::POPULARITY;
use celeris_storage::faults;

use super::attempt::Candidate;
use super::{Training, Uses};
use crate::error::ManagerError;
use crate::job_id::JobId;
use crate::leadership::Term;
use crate::low_priority::at_low_priority;
use crate::promotion::{Promotion, gate_event};
use crate::registry::{ModelRecord, VersionRecord, serving};

/// The outcome for a candidate.
pub(super) struct Concluded {
    pub(super) version: VersionRecord,
    /// Whether it was activated.
    pub(super) serves: bool,
}

impl Training {
    /// Evaluates the candidate of a job, registers it, and activates it if the gate passes it.
    /// Blocks the thread.
    ///
    /// # Errors
    /// `Outdated` if a user that it was trained on was erased meanwhile; `Features` or
    /// `WrongVersion` for an invalid candidate; `Storage(NotOwner)` once the term is over; or the
    /// errors of registration and activation.
    pub(super) fn conclude(
        self: &Arc<Self>,
        (record, term): (&ModelRecord, &Term),
        candidate: &Candidate,
        job: &JobId,
    ) -> Result<Concluded, ManagerError> {
        let Candidate { dir, holdout, reading } = candidate;
        let Uses { registry, versions, promotion, .. } = &self.uses;
        let progress = |share| self.jobs.progress(job, "validate", share);
        progress(0.0);
        let record = registry.current(record)?;
        let config = &record.config;
        let loaded = versions.read_candidate(config, dir)?;
        faults::reach("validation");
        // A number that no version has, so that nothing is cached for it.
        let unregistered = VersionId(u64::MAX);
        let evaluated = serving(&record, (unregistered, config.half_life), loaded.clone())?;
        let report = at_low_priority("celeris-gate", || promotion.evaluate(config, holdout, &evaluated, progress))??;
        drop(evaluated);
        term.check()?;
        let mut passed = report.lets_pass();
        self.jobs.set_gate_report(job, &report);
        let (mut version, serving) = reading.conclude(|| {
            versions.admit((&record, term), dir, loaded, |active, registered| {
                let event = gate_event(&record, active, registered.version, &report);
                registered.gate = Some(report);
                registered.holdout_from = Some(holdout.from.clone());
                Some(event)
            })
        })?;
        let has_shadow = config.gate.shadow_seconds > 0 && version.algorithm != POPULARITY;
        if passed && has_shadow && Promotion::compares_live(config.loss) {
            let progress = |share| self.jobs.progress(job, "shadow", share);
            passed = promotion.shadow((&record, term), &serving, &mut version, progress)?;
            if let Some(report) = &version.gate {
                self.jobs.set_gate_report(job, report);
            }
        }
        if passed {
            self.jobs.progress(job, "activate", 0.0);
            let why = version.gate.as_ref().map(|report| report.why.clone()).unwrap_or_default();
            promotion.promote((&record, term), serving, why)?;
        }
        versions.prune(&record, term)?;
        Ok(Concluded { version, serves: passed })
    }
}
