//! Trials on another machine than the node that leads their study, over a store made of the study's data.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use celeris_study::{Outcome, Params};

use super::data::TrialData;
use super::trial::{outcome, run_trial, with_settings};
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::registry::ModelRecord;
use crate::training::{Training, TrialPlan};

/// A trial for [`TrialWorker::run`].
pub struct RemoteTrial {
    pub params: Params,
    /// Number of training threads, on which the loss does not depend.
    pub threads: NonZeroUsize,
    /// Stops it.
    pub stop: Arc<AtomicBool>,
}

/// Runs trials of one study as the node that leads it does: by the same trainer, on the same records, and evaluated
/// on the same held-out ones. On one instruction set the losses are equal to the bit.
pub struct TrialWorker {
    training: Arc<Training>,
    /// The model of the study in this store, with the settings of the start.
    record: ModelRecord,
    data: TrialData,
    /// Where trials are trained.
    dir: PathBuf,
    term: Term,
}

impl TrialWorker {
    /// A worker whose store has the records of `data`, and its model as `record`.
    pub(crate) fn new(
        training: Arc<Training>,
        record: ModelRecord,
        data: TrialData,
        (dir, term): (PathBuf, Term),
    ) -> Self {
        let record = ModelRecord { config: data.record.config.clone(), ..record };
        Self { training, record, data, dir, term }
    }

    /// Which data it has.
    #[must_use]
    pub fn data(&self) -> u64 {
        self.data.number
    }

    /// Runs a trial.
    ///
    /// # Errors
    /// If the training fails, as for any job; `Trainer` if it was stopped, or too few observations were held out.
    pub async fn run(&self, trial: RemoteTrial) -> Result<Outcome, ManagerError> {
        let RemoteTrial { params, threads, stop } = trial;
        let record = with_settings(&self.record, &params)?;
        let plan = TrialPlan { holdout: self.data.holdout(), dir: self.dir.clone(), warm_start: None, threads, stop };
        let ended = run_trial(&self.training, &record, &plan, &self.term).await;
        remove_dir(&self.dir)?;
        Ok(outcome(&ended?, self.data.baseline.as_ref(), self.data.metric))
    }
}
