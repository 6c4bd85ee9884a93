//! Progress of open studies: asks for trials, runs them, tells their results, and closes studies
//! that have ended.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use celeris_model::Timestamp;
use celeris_storage::ROOTS;
use celeris_study::{Asked, Assignment, Ended, Start, TrialState, Worker};
use tracing::Instrument;

use super::record::{Applied, StudyRecord};
use super::trial::{keep_baseline, model_of, outcome, read_baseline, run_trial, with_settings};
use super::{BASELINE, Studies, parameters};
use crate::comparison::HeldOutLoss;
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::registry::ModelRecord;
use crate::settings::{ModelConfig, Then};
use crate::study_id::StudyId;
use crate::training::{Cause, Job, TrainFrom, TrainRequest, TrialPlan};

/// A change of a model's settings.
type Change<'a> = &'a dyn Fn(&mut ModelConfig) -> Result<(), ManagerError>;

/// The time, in Unix milliseconds.
pub(super) fn now() -> i64 {
    Timestamp::from(SystemTime::now()).0
}

/// The name of how a trial has ended, in metrics.
pub(super) fn outcome_name(state: TrialState) -> &'static str {
    match state {
        TrialState::Complete => "complete",
        TrialState::Failed => "failed",
        TrialState::Running | TrialState::Abandoned => "abandoned",
    }
}

/// A trial that this node has, with what stops it.
#[derive(Clone)]
struct Assigned {
    study: StudyId,
    assignment: Assignment,
    /// Number of users erased by then ([`StudyRecord::erased_users`]).
    erased_users: u64,
    flag: Arc<AtomicBool>,
    term: Term,
}

impl Assigned {
    fn of(&self) -> (u32, u32) {
        (self.assignment.trial, self.assignment.attempt)
    }
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
                    self.forget_erased(&study, &term)?;
                }
                self.expire(&study, &term)?;
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
            let (record, asked) = self.update(study, term, |study| Ok(study.search.ask(Worker::Local, now())?))?;
            let Asked::Trial(assignment) = asked else { return Ok(()) };
            let (study, flag, term) = (study.clone(), Arc::clone(flag), term.clone());
            let erased_users = record.erased_users;
            self.start_trial(record, Assigned { study, assignment, erased_users, flag, term });
        }
    }

    fn start_trial(self: &Arc<Self>, record: StudyRecord, assigned: Assigned) {
        let span = tracing::info_span!(
            target: ROOTS,
            parent: None,
            "study.trial",
            celeris.model = record.model.as_str(),
            celeris.study = record.study.as_str(),
            celeris.trial = assigned.assignment.trial,
        );
        let studies = Arc::clone(self);
        let run = async move {
            let loss = studies.run_local(&record, &assigned).await;
            // The next term abandons it.
            if assigned.term.is_over() {
                return;
            }
            let told = tokio::task::spawn_blocking(move || {
                studies.told(&record, &assigned, loss);
                studies.advance();
            });
            if let Err(panic) = told.await {
                tracing::error!(%panic, "the result of a trial was lost; the next start of the node repeats it");
            }
        };
        tokio::spawn(run.instrument(span));
    }

    async fn run_local(
        self: &Arc<Self>,
        study: &StudyRecord,
        assigned: &Assigned,
    ) -> Result<HeldOutLoss, ManagerError> {
        let Assignment { trial, params, start, .. } = &assigned.assignment;
        let (trial, settings) = (*trial, study.search.settings());
        let warm_start = match *start {
            Start::Nothing => None,
            Start::Trial(from) => Some(self.dir_of(&study.study, from)),
        };
        let threads = celeris_retrain::spare_threads().get() / settings.workers.max(1) as usize;
        let plan = TrialPlan {
            holdout: study.holdout(),
            dir: self.dir_of(&study.study, trial),
            warm_start,
            threads: NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN),
            stop: Arc::clone(&assigned.flag),
        };
        let record = with_settings(&model_of(&self.registry, study)?, params)?;
        run_trial(&self.training, &record, &plan, &assigned.term).await
    }

    /// Records the result of a trial of this node.
    fn told(&self, study: &StudyRecord, assigned: &Assigned, loss: Result<HeldOutLoss, ManagerError>) {
        let (id, trial) = (&assigned.study, assigned.assignment.trial);
        let is_stopped = assigned.flag.load(Ordering::Acquire);
        let file = self.studies_dir().join(id.as_str()).join(BASELINE);
        let kept = |loss: HeldOutLoss| {
            if trial == 0 {
                keep_baseline(&file, &loss)?;
                return Ok(outcome(&loss, None, study.metric));
            }
            Ok(outcome(&loss, read_baseline(&file).as_ref(), study.metric))
        };
        let result = loss.and_then(kept).map_err(|error: ManagerError| error.to_string());
        if let Err(error) = &result {
            tracing::info!(study = %id, trial, error, "a trial has no loss");
        }
        let recorded = self.update(id, &assigned.term, |study| {
            match result {
                // It did not fail: it was stopped with its study.
                Err(_) if is_stopped => study.search.abandon(assigned.of(), now())?,
                result => study.search.tell(assigned.of(), result, now())?,
            }
            if study.erased_users > assigned.erased_users {
                // Users were erased whose events its result may have.
                study.search.drop_kept();
            }
            Ok(study.search.needed())
        });
        match recorded {
            Ok((record, needed)) => {
                let state = record.search.trials().get(trial as usize).map(|trial| trial.state);
                self.count_trials(&record, state.map_or("failed", outcome_name), 1);
                self.remove_results_except(&record, &needed);
            }
            Err(error) => tracing::warn!(study = %id, trial, %error, "the result of a trial was not recorded"),
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

    /// Drops the result that is kept for warm starts, and takes the trials of other machines back, if more users were
    /// erased since: all of the stream count whose events these may have read, which is on the safe side.
    pub(super) fn forget_erased(&self, study: &StudyId, term: &Term) -> Result<(), ManagerError> {
        let record = self.get(study.as_str())?;
        let erased_users = self.erased_users(&record)?;
        if erased_users <= record.erased_users {
            return Ok(());
        }
        let (record, needed) = self.update(study, term, |study| {
            study.erased_users = erased_users;
            study.search.drop_kept();
            study.search.recall_remote();
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
