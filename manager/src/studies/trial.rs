//! One trial on this node: a training with its settings, and the loss of its posteriors.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use celeris_study::{Outcome, Params};

use super::parameters;
use super::record::StudyRecord;
use crate::comparison::HeldOutLoss;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::registry::Registry;
use crate::training::{Training, TrialPlan};

/// Held-out observations below which a loss says nothing.
const OBSERVATIONS_MIN: u64 = 20;

/// A trial that this node runs.
pub(super) struct LocalTrial {
    pub(super) record: StudyRecord,
    pub(super) number: u32,
    pub(super) params: Params,
    /// Where its result is kept while others may continue from it.
    pub(super) dir: PathBuf,
    /// The file of the losses of trial 0.
    pub(super) baseline: PathBuf,
    /// The result that it continues from.
    pub(super) warm_start: Option<PathBuf>,
    /// Number of trials at a time, which share the processors.
    pub(super) workers: u32,
    /// Stops it.
    pub(super) stop: Arc<AtomicBool>,
}

/// Trains with the settings of a trial and evaluates the result. The result stays in the folder.
///
/// # Errors
/// If the training fails, as for any job; `Trainer` if too few observations were held out.
pub(super) async fn run_trial(
    registry: &Registry,
    training: &Arc<Training>,
    trial: LocalTrial,
    term: &Term,
) -> Result<Outcome, ManagerError> {
    let LocalTrial { record: study, number, params, dir, baseline, warm_start, workers, stop } = trial;
    let mut record = registry.model(&study.model)?;
    if record.id != study.model_id {
        return Err(ManagerError::UnknownModel { model: study.model.clone() });
    }
    // Settings that are searched have their values of the start, also if the model was configured since.
    record.config = parameters::with(&record.config, &study.present)?;
    record.config = parameters::with(&record.config, &params)?;
    record.config.trainer.engine = study.engine.clone();
    let threads = celeris_retrain::spare_threads().get() / workers.max(1) as usize;
    let plan = TrialPlan {
        holdout: study.holdout(),
        dir,
        warm_start,
        threads: NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN),
        stop,
    };
    let loss = training.try_settings(&record, &plan, term).await?;
    if loss.observations < OBSERVATIONS_MIN {
        let reason = format!(
            "only {} observations were held out, too few to judge settings; send more, or raise gate.holdout_share",
            loss.observations
        );
        return Err(ManagerError::Trainer { reason });
    }
    let value = loss.value.ok_or_else(|| ManagerError::Trainer {
        reason: "the version predicts values that are not finite numbers".to_owned(),
    })?;
    let difference_error = compared(&baseline, &loss, &study, number)?;
    Ok(Outcome { value, standard_error: loss.standard_error, difference_error })
}

/// Keeps the losses of trial 0 in a file, and compares those of others with them. Without the file,
/// which a node that leads since has not, there is no comparison.
fn compared(file: &Path, loss: &HeldOutLoss, study: &StudyRecord, number: u32) -> Result<Option<f64>, ManagerError> {
    if number == 0 {
        let text = serde_json::to_vec(loss).expect("losses are finite numbers");
        fs::write(file, text).map_err(ManagerError::io(file))?;
        return Ok(None);
    }
    let baseline: Option<HeldOutLoss> = fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    Ok(baseline.and_then(|baseline| loss.difference_error(&baseline, study.metric)))
}
