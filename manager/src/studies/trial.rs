//! One trial: a training with its settings, and the loss of its posteriors.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use celeris_study::{Outcome, Params, Report, Verdict};

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

/// Iterations of the *sketch* of a trial, by which it is decided whether it is worth its end.
///
/// Of 14 trials of `dim` and `regularization` on ml-latest-small, the losses of sketches and of whole trainings, of about
/// 20 iterations, had a rank correlation of 0.34 with 4, 0.59 with 6 and 0.80 with 8, where the best trial was the best
/// sketch too.
const SKETCH_ITERATIONS: u32 = 8;

/// Takes the reports of a trial and says whether it goes on. May block the thread.
pub type Reporter = Arc<dyn Fn(Report) -> Result<Verdict, ManagerError> + Send + Sync>;

/// A trial to run.
pub(super) struct TrialRun {
    /// The model with the settings of the trial.
    pub(super) record: ModelRecord,
    pub(super) plan: TrialPlan,
    /// Where it reports, if its study stops trials early.
    pub(super) reporter: Option<Reporter>,
}

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

/// Trains with the settings of a trial and evaluates the result. The result stays in the folder of the plan.
///
/// If the study stops trials early, a *sketch* comes first, which is the same training of a few iterations: the loss
/// of its posteriors is of the same kind as that of the trial, whatever the trainer. A trial that continues from
/// another has no sketch, which could not be compared, and takes little longer than one.
///
/// # Errors
/// If the training fails, as for any job; `Trainer` if too few observations were held out.
pub(super) async fn run_trial(
    training: &Arc<Training>,
    run: TrialRun,
    term: &Term,
) -> Result<HeldOutLoss, ManagerError> {
    let TrialRun { record, plan, reporter } = run;
    let iterations = record.config.trainer.iterations.unwrap_or(u32::MAX);
    if let Some(reporter) = reporter.filter(|_| plan.warm_start.is_none() && iterations > SKETCH_ITERATIONS) {
        let mut sketch = record.clone();
        sketch.config.trainer.iterations = Some(SKETCH_ITERATIONS);
        let (loss, value) = judged(training.try_settings(&sketch, &plan, term).await?)?;
        let report = Report { epoch: SKETCH_ITERATIONS, value };
        let verdict = tokio::task::spawn_blocking(move || reporter(report)).await;
        // A panic fails the trial; its message is in the node's log.
        let verdict = verdict.map_err(|panic| ManagerError::Trainer { reason: panic.to_string() })??;
        if verdict == Verdict::Stop {
            return Ok(loss);
        }
    }
    judged(training.try_settings(&record, &plan, term).await?).map(|(loss, _)| loss)
}

/// A loss that says something, with its value.
fn judged(loss: HeldOutLoss) -> Result<(HeldOutLoss, f64), ManagerError> {
    if loss.observations < OBSERVATIONS_MIN {
        let reason = format!(
            "only {} observations were held out, too few to judge settings; send more, or raise gate.holdout_share",
            loss.observations
        );
        return Err(ManagerError::Trainer { reason });
    }
    match loss.value {
        Some(value) => Ok((loss, value)),
        None => {
            let reason = "the version predicts values that are not finite numbers".to_owned();
            Err(ManagerError::Trainer { reason })
        }
    }
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
