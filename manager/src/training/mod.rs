//! Retrain jobs, from the request to the switch: trains a version on the log, validates it, and
//! promotes it.
//!
//! `attempt.rs` exports the log and runs the trainers in child processes (`celeris_sandbox`),
//! `candidate.rs` validates and registers the version. Serving continues meanwhile. A training that
//! has read the events of a user who is erased starts again (`reading.rs`).

mod attempt;
mod candidate;
mod export;
mod jobs;
mod process;
mod reading;
mod trial;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use celeris_storage::{ROOTS, SPANS, Storage};
use tracing::field::Empty;
use tracing::{Instrument, Span};

pub use self::jobs::{Job, JobState, Jobs};
pub use self::reading::{ReadingTraining, Readings};
pub(crate) use self::trial::TrialPlan;

use self::attempt::Work;
use self::candidate::Concluded;
use self::reading::ATTEMPTS_MAX;
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::job_id::JobId;
use crate::leadership::Term;
use crate::monitoring::Monitoring;
use crate::pipelines::Pipelines;
use crate::promotion::Promotion;
use crate::registry::{Actor, Event, ModelRecord, Registry, VersionStore};
use crate::settings::{Engine, TrainingOptions, Triggers};

/// Starting point of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrainFrom {
    /// The factors and settings of the active version, if the trainer supports a warm start.
    #[default]
    Active,
    /// Cold start: all settings are chosen again, and the version depends only on the current
    /// contents of the log.
    Nothing,
}

/// Overrides of the model's training settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrainRequest {
    /// Another trainer than the model's own.
    pub engine: Option<Engine>,
    /// Starting point.
    pub from: TrainFrom,
}

/// Cause of a training.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// A request of an operator, with its reason.
    Request(String),
    /// A trigger. The event, which has the reason, is recorded only if the job starts.
    Trigger(Event),
}

impl Cause {
    fn actor(&self) -> Actor {
        match self {
            Self::Request(_) => Actor::Operator,
            Self::Trigger(_) => Actor::Trigger,
        }
    }

    fn why(&self) -> &str {
        match self {
            Self::Request(why) => why,
            Self::Trigger(event) => &event.why,
        }
    }

    /// The same with a further reason.
    fn and(self, further: &str) -> Self {
        let with = |why: &str| format!("{why}; {further}");
        match self {
            Self::Request(why) => Self::Request(with(&why)),
            Self::Trigger(event) => Self::Trigger(Event { why: with(&event.why), ..event }),
        }
    }

    fn into_event(self) -> Option<Event> {
        match self {
            Self::Request(_) => None,
            Self::Trigger(event) => Some(event),
        }
    }
}

/// A resolved training request.
#[derive(Debug, Clone)]
struct TrainPlan {
    engine: Engine,
    from: TrainFrom,
    /// What else a trial of a study fixes; `None` for a job.
    trial: Option<TrialPlan>,
}

impl TrainPlan {
    /// Whether the training continues from the factors of the active version, if they may be used.
    fn starts_warm(&self) -> bool {
        self.from != TrainFrom::Nothing && self.engine == Engine::Als
    }
}

/// The components that trainings use.
pub(crate) struct Uses {
    pub(crate) registry: Arc<Registry>,
    pub(crate) versions: Arc<VersionStore>,
    pub(crate) monitoring: Arc<Monitoring>,
    pub(crate) promotion: Arc<Promotion>,
    pub(crate) pipelines: Arc<Pipelines>,
}

/// Trainings of a node.
pub struct Training {
    storage: Storage,
    uses: Uses,
    /// Program that trains and supervises trainers.
    trainer: PathBuf,
    options: TrainingOptions,
    jobs: Jobs,
    readings: Arc<Readings>,
}

impl Training {
    /// Reads the jobs of the registry, and removes the files that those of a stopped node left.
    ///
    /// # Errors
    /// `Storage`, or `Io` if the folder of jobs cannot be removed.
    pub(crate) fn open(
        storage: Storage,
        uses: Uses,
        (trainer, options): (PathBuf, TrainingOptions),
    ) -> Result<Arc<Self>, ManagerError> {
        let jobs = Jobs::open(storage.clone(), Arc::clone(&uses.registry))?;
        let readings = Readings::new(storage.clone());
        let training = Self { storage, uses, trainer, options, jobs, readings };
        remove_dir(&training.jobs_dir())?;
        Ok(Arc::new(training))
    }

    /// Declares failed the jobs that a stopped node, or one that led before, left unfinished.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn interrupt(&self) -> Result<(), ManagerError> {
        self.jobs.interrupt()
    }

    /// The retrain jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The parts of the log that running trainings have read.
    #[must_use]
    pub fn readings(&self) -> &Readings {
        &self.readings
    }

    /// The triggers of a model that is created without any.
    #[must_use]
    pub fn triggers_of_new_models(&self) -> Triggers {
        if self.options.automatic { Triggers::of_new_models() } else { Triggers::default() }
    }

    /// Trainers and limits of the node.
    pub(crate) fn options(&self) -> &TrainingOptions {
        &self.options
    }

    /// Starts a retrain job and returns immediately; the job runs on the current tokio runtime.
    ///
    /// Whether the node can run a training that a trigger has started is checked inside the job: if
    /// not, the job fails with a reason, and triggers back off as after any failed job.
    ///
    /// # Errors
    /// `JobRunning`, `TrainerSetting` if the settings of the model or the node do not allow the
    /// engine of a request, or `Storage`.
    pub fn retrain(
        self: &Arc<Self>,
        record: &ModelRecord,
        request: TrainRequest,
        cause: Cause,
    ) -> Result<Job, ManagerError> {
        let term = self.uses.registry.term()?;
        let settings = &record.config.trainer;
        let engine = request.engine.unwrap_or_else(|| settings.engine.clone());
        if matches!(cause, Cause::Request(_)) {
            settings.check(&engine, &self.options)?;
        }
        let plan = TrainPlan { engine, from: request.from, trial: None };
        let cause = if self.begins_with_erased(record, &plan)? {
            let why = format!("from nothing, since version {} was trained on users who were erased", record.active);
            cause.and(&why)
        } else {
            cause
        };
        let job = self.jobs.begin((record, &term), &plan.engine, cause)?;
        let (training, id, record) = (Arc::clone(self), job.job.clone(), record.clone());
        let span = job_span(&record, &id);
        let run = async move {
            let outcome = training.run(&record, &plan, (&id, &term)).await;
            training.finish((&id, &term), outcome);
        };
        tokio::spawn(run.instrument(span));
        Ok(job)
    }

    /// Trains and promotes a version, and starts again if users are erased whose events the
    /// training has read. Stops once the term is over.
    async fn run(
        self: &Arc<Self>,
        record: &ModelRecord,
        plan: &TrainPlan,
        (id, term): (&JobId, &Term),
    ) -> Result<Concluded, ManagerError> {
        let dir = self.jobs_dir().join(id.as_str());
        let mut attempt = 1;
        loop {
            let attempted = async {
                let candidate = self.train(record, plan, Work { job: id, attempt, term, dir: &dir }).await?;
                let (training, record, id, dir) = (Arc::clone(self), record.clone(), id.clone(), dir.clone());
                let term = term.clone();
                let validating = tracing::info_span!(target: SPANS, "retrain.conclude");
                blocking(move || {
                    let concluded = training.conclude((&record, &term), &candidate, &id)?;
                    remove_dir(&dir)?;
                    Ok(concluded)
                })
                .instrument(validating)
                .await
            };
            match attempted.await {
                _ if term.is_over() => {
                    remove_dir(&dir)?;
                    term.check()?;
                }
                Err(ManagerError::Outdated) if attempt < ATTEMPTS_MAX => {
                    tracing::info!(job = %id, attempt, "users were erased that the training had read; it starts again");
                    remove_dir(&dir)?;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Records the outcome of a job.
    fn finish(&self, (id, term): (&JobId, &Term), outcome: Result<Concluded, ManagerError>) {
        if let Err(error) = &outcome {
            if term.is_over() || error.is_of_other_node() {
                tracing::info!(job = %id, "retraining was stopped: another node leads");
            } else {
                tracing::warn!(job = %id, %error, "retraining failed; the active version keeps serving");
            }
            let _ = remove_dir(&self.jobs_dir().join(id.as_str()))
                .inspect_err(|error| tracing::warn!(job = %id, %error, "cannot remove the job's files"));
        }
        note_outcome(&outcome);
        let ended = self.jobs.finish(id, term, |job| {
            job.finished = Some(SystemTime::now().into());
            match outcome {
                Ok(Concluded { version, serves }) => {
                    job.state = if serves { JobState::Succeeded } else { JobState::Rejected };
                    job.progress = 1.0;
                    job.version = Some(version.version);
                    job.metrics = version.metrics;
                }
                Err(error) => {
                    job.state = JobState::Failed;
                    job.error = Some(error.to_string());
                }
            }
        });
        if let Some(job) = ended {
            self.uses.monitoring.trained(job.model_id);
        }
    }

    fn jobs_dir(&self) -> PathBuf {
        self.storage.dir().join("jobs")
    }
}

/// The span of a job, the beginning of a trace; it refers to the request that has started the job.
fn job_span(record: &ModelRecord, id: &JobId) -> Span {
    let span = tracing::info_span!(
        target: ROOTS,
        parent: None,
        "retrain",
        celeris.model = record.config.name.as_str(),
        celeris.job = id.as_str(),
        celeris.outcome = Empty,
        otel.status_code = Empty,
    );
    span.follows_from(Span::current());
    span
}

/// Notes the outcome of a job in its span.
fn note_outcome(outcome: &Result<Concluded, ManagerError>) {
    let (name, is_error) = match outcome {
        Ok(Concluded { serves: true, .. }) => ("succeeded", false),
        Ok(Concluded { serves: false, .. }) => ("rejected", false),
        Err(_) => ("failed", true),
    };
    let span = Span::current();
    span.record("celeris.outcome", name);
    if is_error {
        span.record("otel.status_code", "ERROR");
    }
}

/// Runs blocking work of a job on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ManagerError> + Send + 'static,
) -> Result<T, ManagerError> {
    let span = Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(outcome) => outcome,
        // A panic fails the job; the panic message is in the node's log.
        Err(panic) => Err(ManagerError::Trainer { reason: panic.to_string() }),
    }
}
