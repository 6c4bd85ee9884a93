//! A training that tries settings: its version is evaluated, and not registered.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use celeris_model::VersionId;
use celeris_storage::SPANS;
use tracing::Instrument;

use super::attempt::{Candidate, Work};
use super::{TrainFrom, TrainPlan, Training, blocking};
use crate::comparison::HeldOutLoss;
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::job_id::JobId;
use crate::leadership::Term;
use crate::low_priority::at_low_priority;
use crate::promotion::Holdout;
use crate::registry::{ModelRecord, serving};

/// A training that tries settings.
#[derive(Debug, Clone)]
pub(crate) struct TrialPlan {
    /// The part of the log that is read, and the records that are left out of it.
    pub(crate) holdout: Holdout,
    /// Where the version is written; what is there is replaced.
    pub(crate) dir: PathBuf,
    /// The folder of an earlier trial to continue from; from nothing if it is not there.
    pub(crate) warm_start: Option<PathBuf>,
    /// Number of training threads.
    pub(crate) threads: NonZeroUsize,
    /// Stops the training.
    pub(crate) stop: Arc<AtomicBool>,
}

impl TrialPlan {
    fn check(&self) -> Result<(), ManagerError> {
        if self.stop.load(Ordering::Acquire) {
            return Err(ManagerError::Trainer { reason: "its study was stopped".to_owned() });
        }
        Ok(())
    }
}

impl Training {
    /// Trains with the settings of `record` and evaluates the posteriors that the version would
    /// serve on the held-out records. Starts again if users are erased whose events it has read, as often as it takes.
    ///
    /// # Errors
    /// As a retrain job; `Trainer` if it was stopped. Its folder is removed then.
    pub(crate) async fn try_settings(
        self: &Arc<Self>,
        record: &ModelRecord,
        plan: &TrialPlan,
        term: &Term,
    ) -> Result<HeldOutLoss, ManagerError> {
        let id = JobId::new();
        let train = TrainPlan {
            engine: record.config.trainer.engine.clone(),
            from: TrainFrom::Nothing,
            trial: Some(plan.clone()),
        };
        let outcome = loop {
            remove_dir(&plan.dir)?;
            let attempted = async {
                plan.check()?;
                // Never the last attempt of a job, which is completed in spite of erasures.
                let work = Work { job: &id, attempt: 1, term, dir: &plan.dir };
                let candidate = self.train(record, &train, work).await?;
                let (training, record) = (Arc::clone(self), record.clone());
                let evaluating = tracing::info_span!(target: SPANS, "study.evaluate");
                blocking(move || training.loss_of(&record, &candidate)).instrument(evaluating).await
            };
            match attempted.await {
                _ if term.is_over() => break term.check().map(|()| HeldOutLoss::default()),
                Err(ManagerError::Outdated) => {}
                outcome => break outcome,
            }
        };
        if outcome.is_err() {
            remove_dir(&plan.dir)?;
        }
        outcome
    }

    /// Reads a version back and evaluates it. Blocks the thread.
    fn loss_of(&self, record: &ModelRecord, candidate: &Candidate) -> Result<HeldOutLoss, ManagerError> {
        let config = &record.config;
        let loaded = self.uses.versions.read_candidate(config, &candidate.dir)?;
        // A number that no version has, so that nothing is cached for it.
        let evaluated = serving(record, (VersionId(u64::MAX), config.half_life), loaded)?;
        let promotion = &self.uses.promotion;
        let loss = at_low_priority("celeris-study", || promotion.loss_of(config, &candidate.holdout, &evaluated))??;
        candidate.reading.check()?;
        Ok(loss)
    }
}
