//! Progress of open studies: asks for trials, runs them, tells their results, and closes studies
//! that have ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use celeris_model::Timestamp;
use celeris_storage::ROOTS;
use celeris_study::{Asked, Assignment, Ended, Outcome, Start};
use tracing::Instrument;

use super::record::{Applied, StudyRecord, Then};
use super::trial::{LocalTrial, run_trial};
use super::{Studies, parameters};
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::registry::{ErasedSpan, ModelRecord, trained_on_erased};
use crate::settings::ModelConfig;
use crate::study_id::StudyId;
use crate::training::{Cause, Job, TrainFrom, TrainRequest};

/// File of the losses of trial 0 in the folder of a study.
const BASELINE: &str = "baseline.json";

/// Name of this node's workers, in the record of a trial.
const WORKER: &str = "node";

/// A change of a model's settings.
type Change<'a> = &'a dyn Fn(&mut ModelConfig) -> Result<(), ManagerError>;

fn now() -> i64 {
    Timestamp::from(SystemTime::now()).0
}

impl Studies {
    /// Advances all open studies on a thread for blocking work of the current runtime.
    pub(super) fn advance_soon(self: &Arc<Self>) {
        let studies = Arc::clone(self);
        tokio::task::spawn_blocking(move || studies.advance());
    }

    /// Starts the trials that open studies have room for, and finishes studies that have ended. Blocks
    /// the thread; must run within a tokio runtime. What fails is tried again at the next call.
    pub(crate) fn advance(self: &Arc<Self>) {
        let Ok(term) = self.registry.term() else { return };
        let open: Vec<(StudyId, Arc<AtomicBool>)> =
            self.open.lock().iter().map(|(study, flag)| (study.clone(), Arc::clone(flag))).collect();
        let has_erased = self.has_erased.swap(false, Ordering::AcqRel);
        for (study, flag) in open {
            let advanced = || {
                if has_erased {
                    self.drop_kept_of_erased(&study, &term)?;
                }
                self.start_trials(&study, &flag, &term)?;
                self.finish_if_over(&study, &term)
            };
            let Err(error) = advanced() else { continue };
            if error.is_of_other_node() {
                tracing::info!(%study, "a study is left to the node that leads");
                return;
            }
            if has_erased {
                self.has_erased.store(true, Ordering::Release);
            }
            tracing::warn!(%study, %error, "a study could not go on; retrying");
        }
    }

    fn start_trials(
        self: &Arc<Self>,
        study: &StudyId,
        flag: &Arc<AtomicBool>,
        term: &Term,
    ) -> Result<(), ManagerError> {
        loop {
            let (record, asked) = self.update(study, term, |study| Ok(study.search.ask(WORKER, now())))?;
            let Asked::Trial(assignment) = asked else { return Ok(()) };
            self.start_trial(record, assignment, (Arc::clone(flag), term.clone()));
        }
    }

    fn start_trial(
        self: &Arc<Self>,
        record: StudyRecord,
        assignment: Assignment,
        (flag, term): (Arc<AtomicBool>, Term),
    ) {
        let (studies, workers) = (Arc::clone(self), record.search.settings().workers);
        let dir = self.dir_of(&record.study, assignment.trial);
        let warm_start = match assignment.start {
            Start::Nothing => None,
            Start::Trial(from) => Some(self.dir_of(&record.study, from)),
        };
        let of = (assignment.trial, assignment.attempt);
        let local = LocalTrial {
            baseline: self.studies_dir().join(record.study.as_str()).join(BASELINE),
            record,
            number: assignment.trial,
            params: assignment.params,
            dir,
            warm_start,
            workers,
            stop: Arc::clone(&flag),
        };
        let span = tracing::info_span!(
            target: ROOTS,
            parent: None,
            "study.trial",
            celeris.model = local.record.model.as_str(),
            celeris.study = local.record.study.as_str(),
            celeris.trial = local.number,
        );
        let run = async move {
            let study = local.record.study.clone();
            let outcome = run_trial(&studies.registry, &studies.training, local, &term).await;
            // The next term abandons it.
            if term.is_over() {
                return;
            }
            let told = tokio::task::spawn_blocking(move || {
                studies.told(&study, of, outcome, (&flag, &term));
                studies.advance();
            });
            if let Err(panic) = told.await {
                tracing::error!(%panic, "the result of a trial was lost; the next start of the node repeats it");
            }
        };
        tokio::spawn(run.instrument(span));
    }

    /// Records the result of a trial of this node.
    fn told(
        &self,
        study: &StudyId,
        of: (u32, u32),
        outcome: Result<Outcome, ManagerError>,
        (flag, term): (&AtomicBool, &Term),
    ) {
        let is_stopped = flag.load(Ordering::Acquire);
        let state = match &outcome {
            Ok(_) => "complete",
            Err(_) if is_stopped => "abandoned",
            Err(_) => "failed",
        };
        let outcome = outcome.map_err(|error| error.to_string());
        if let Err(error) = &outcome {
            tracing::info!(%study, trial = of.0, error, "a trial has no loss");
        }
        let recorded = self.update(study, term, |study| {
            match outcome {
                // It did not fail: it was stopped with its study.
                Err(_) if is_stopped => study.search.abandon(of, now())?,
                outcome => study.search.tell(of, outcome, now())?,
            }
            Ok(study.search.needed())
        });
        match recorded {
            Ok((record, needed)) => {
                let model = record.model.to_string();
                metrics::counter!("celeris_study_trials_total", "model" => model, "state" => state).increment(1);
                self.remove_results_except(&record, &needed);
            }
            Err(error) => tracing::warn!(%study, trial = of.0, %error, "the result of a trial was not recorded"),
        }
    }

    fn dir_of(&self, study: &StudyId, trial: u32) -> PathBuf {
        self.studies_dir().join(study.as_str()).join(format!("trial-{trial}"))
    }

    /// Removes the results of complete trials from which no other will continue.
    fn remove_results_except(&self, record: &StudyRecord, needed: &[u32]) {
        for trial in record.search.trials() {
            if trial.ended.is_some() && !needed.contains(&trial.number) {
                let dir = self.dir_of(&record.study, trial.number);
                if let Err(error) = remove_dir(&dir) {
                    tracing::warn!(study = %record.study, %error, "cannot remove the files of a trial; retried at start");
                }
            }
        }
    }

    /// Drops the result that is kept for warm starts if users were erased whose events it may have
    /// been trained on: all users erased since the study began, which is on the safe side.
    fn drop_kept_of_erased(&self, study: &StudyId, term: &Term) -> Result<(), ManagerError> {
        let record = self.get(study.as_str())?;
        if record.search.needed().is_empty() {
            return Ok(());
        }
        let erasures = self.storage.log().erasures(&record.stream)?;
        if !erasures.iter().any(|erasure| trained_on_erased(&record.watermark, ErasedSpan::from(erasure))) {
            return Ok(());
        }
        let (record, needed) = self.update(study, term, |study| {
            study.search.drop_kept();
            Ok(study.search.needed())
        })?;
        // Trials that continue from it are running; they start again without the users.
        self.remove_results_except(&record, &needed);
        Ok(())
    }

    /// Finishes a study that has ended; closes it unless its settings are still to be applied.
    fn finish_if_over(&self, study: &StudyId, term: &Term) -> Result<(), ManagerError> {
        let (record, ()) = self.update(study, term, |study| {
            if !study.search.is_over() || study.finished.is_some() {
                return Ok(());
            }
            study.finished = Some(Timestamp(now()));
            study.closed = study.then.is_none() || study.improvement().is_none();
            let first_error = || study.search.trials().iter().find_map(|trial| trial.error.clone());
            if study.search.ended() == Some(Ended::Failures) {
                study.error = first_error();
            }
            Ok(())
        })?;
        if record.finished.is_some() {
            remove_dir(&self.studies_dir().join(study.as_str()))?;
        }
        if record.closed {
            self.open.lock().remove(study);
        }
        Ok(())
    }

    /// Studies that have ended with better settings, which their models are to get.
    pub(crate) fn to_apply(&self) -> Vec<StudyRecord> {
        let open: Vec<StudyId> = self.open.lock().keys().cloned().collect();
        let records = open.iter().filter_map(|study| self.get(study.as_str()).ok());
        records.filter(|study| study.finished.is_some() && !study.closed && study.then == Some(Then::Retrain)).collect()
    }

    /// Gives a model the best settings of a study, by `configure`, and trains it with them from
    /// nothing.
    ///
    /// # Errors
    /// `StudyWithoutResult` unless the study has found settings with a lower loss; `JobRunning`; or
    /// the errors of `configure` and of a training.
    pub(crate) fn apply(
        &self,
        study: &str,
        configure: impl FnOnce(&StudyRecord, Change<'_>) -> Result<ModelRecord, ManagerError>,
    ) -> Result<StudyRecord, ManagerError> {
        let term = self.registry.term()?;
        let record = self.get(study)?;
        let Some(best) = record.improvement() else {
            return Err(ManagerError::StudyWithoutResult { study: study.to_owned() });
        };
        if record.finished.is_none() {
            return Err(ManagerError::StudyRunning { model: record.model.clone(), study: record.study.clone() });
        }
        self.training.jobs().check_idle(&record.model)?;
        let (trial, params) = (best.number, best.params.clone());
        let model = configure(&record, &|config| {
            *config = parameters::with(config, &params)?;
            Ok(())
        })?;
        let why = format!("settings of trial {trial} of study {}", record.study);
        let request = TrainRequest { engine: None, from: TrainFrom::Nothing };
        let Job { job, .. } = self.training.retrain(&model, request, Cause::Request(why))?;
        let (record, ()) = self.update(&record.study, &term, |study| {
            study.applied = Some(Applied { trial, job, at: Timestamp(now()) });
            study.closed = true;
            Ok(())
        })?;
        self.open.lock().remove(&record.study);
        Ok(record)
    }

    /// Notes why the settings of a study could not be applied, and closes it.
    pub(crate) fn give_up(&self, study: &StudyId, error: &ManagerError) -> Result<(), ManagerError> {
        let term = self.registry.term()?;
        self.update(study, &term, |study| {
            study.error = Some(format!("its settings were not applied: {error}"));
            study.closed = true;
            Ok(())
        })?;
        self.open.lock().remove(study);
        Ok(())
    }
}
