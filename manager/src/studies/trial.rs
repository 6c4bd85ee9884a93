//! One trial: a training with its settings, and the loss of its posteriors.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use celeris_study::{Outcome, Params};

use super::parameters;
use super::record::StudyRecord;
use crate::comparison::HeldOutLoss;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::metric::Metric;
use crate::registry::{ModelRecord, Registry};
use crate::training::{Training, TrialPlan};

/// Held-out observations below which a loss says nothing.
const OBSERVATIONS_MIN: u64 = 20;

/// The model as the trials of a study have it, without the settings of a trial: settings that are searched have
/// the values of the start, also if the model was configured since.
///
/// # Errors
/// `UnknownModel` if it was deleted.
pub(super) fn model_of(registry: &Registry, study: &StudyRecord) -> Result<ModelRecord, ManagerError> {
    let mut record = registry.model(&study.model)?;
    if record.id != study.model_id {
        return Err(ManagerError::UnknownModel { model: study.model.clone() });
    }
    record.config = parameters::with(&record.config, &study.present)?;
    record.config.trainer.engine = study.engine.clone();
    Ok(record)
}

/// The same with the settings of a trial.
///
/// # Errors
/// `Study`, which does not happen for settings of a space that was checked.
pub(super) fn with_settings(record: &ModelRecord, params: &Params) -> Result<ModelRecord, ManagerError> {
    Ok(ModelRecord { config: parameters::with(&record.config, params)?, ..record.clone() })
}

/// Trains with the settings of a trial and evaluates the result, which stays in the folder of the plan.
///
/// # Errors
/// If the training fails, as for any job; `Trainer` if too few observations were held out.
pub(super) async fn run_trial(
    training: &Arc<Training>,
    record: &ModelRecord,
    plan: &TrialPlan,
    term: &Term,
) -> Result<HeldOutLoss, ManagerError> {
    judged(training.try_settings(record, plan, term).await?)
}

/// A loss that says something.
fn judged(loss: HeldOutLoss) -> Result<HeldOutLoss, ManagerError> {
    if loss.observations < OBSERVATIONS_MIN {
        let reason = format!(
            "only {} observations were held out, too few to judge settings; send more, or raise gate.holdout_share",
            loss.observations
        );
        return Err(ManagerError::Trainer { reason });
    }
    if loss.value.is_none() {
        let reason = "the version predicts values that are not finite numbers".to_owned();
        return Err(ManagerError::Trainer { reason });
    }
    Ok(loss)
}

/// The outcome of a trial, compared with the losses of trial 0, as far as there are any.
pub(super) fn outcome(loss: &HeldOutLoss, baseline: Option<&HeldOutLoss>, metric: Metric) -> Outcome {
    Outcome {
        value: loss.value.unwrap_or(f64::NAN),
        standard_error: loss.standard_error,
        difference_error: baseline.and_then(|baseline| loss.difference_error(baseline, metric)),
    }
}

/// Keeps the losses of trial 0 in a file.
///
/// # Errors
/// `Io`.
pub(super) fn keep_baseline(file: &Path, loss: &HeldOutLoss) -> Result<(), ManagerError> {
    let text = serde_json::to_vec(loss).expect("losses are finite numbers");
    fs::write(file, text).map_err(ManagerError::io(file))
}

/// The losses of trial 0; `None` without their file, which a node that leads since then has not.
pub(super) fn read_baseline(file: &Path) -> Option<HeldOutLoss> {
    fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok())
}
