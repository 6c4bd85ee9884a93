//! A retrain job from the request to the switch: trains a version on the log, validates it, and activates it.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::ModelName;

use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind};
use crate::jobs::{Job, JobId, JobState};
use crate::manager::{Manager, remove_dir};
use crate::records::ModelRecord;
use crate::switch::Concluded;
use crate::training::{ATTEMPTS_MAX, Engine, blocking};

/// Starting point of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrainFrom {
    /// The factors and settings of the active version, if the trainer supports a warm start.
    #[default]
    Active,
    /// Cold start: all settings are chosen again, and the version depends only on the current contents of the log.
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

/// A resolved training request.
#[derive(Debug, Clone)]
pub(crate) struct TrainPlan {
    pub(crate) engine: Engine,
    pub(crate) from: TrainFrom,
}

impl Manager {
    /// Starts a retrain job and returns immediately; the job runs on the current tokio runtime.
    ///
    /// # Errors
    /// `UnknownModel`, `JobRunning`, `TrainerSetting` if the settings of the model or the node do not allow the engine,
    /// or `Storage`.
    pub fn retrain(self: &Arc<Self>, model: &ModelName, request: TrainRequest, why: &str) -> Result<Job, ManagerError> {
        let record = self.model(model)?;
        let engine = request.engine.as_ref().unwrap_or(&record.config.trainer.engine);
        record.config.trainer.check(engine, &self.options.training)?;
        self.begin_training(&record, request, (Actor::Operator, why), None)
    }

    /// Starts a job. Whether the node can run the training is checked inside the job: if not, the job fails with a
    /// reason, and triggers back off as after any failed job.
    ///
    /// `cause` is the event that led to the job; it is recorded only if the job starts.
    pub(crate) fn begin_training(
        self: &Arc<Self>,
        record: &ModelRecord,
        request: TrainRequest,
        (by, why): (Actor, &str),
        cause: Option<Event>,
    ) -> Result<Job, ManagerError> {
        let engine = request.engine.unwrap_or_else(|| record.config.trainer.engine.clone());
        let job = self.jobs.begin(record.identity(), &engine, why, SystemTime::now().into())?;
        let id = job.job.clone();
        if let Some(cause) = cause {
            self.note(cause);
        }
        self.note(
            Event::now(record.identity(), EventKind::TrainingStarted, by, why)
                .between(Some(record.active), None)
                .with("job", id.as_str())
                .with("engine", engine.name()),
        );
        let (record, plan) = (record.clone(), TrainPlan { engine, from: request.from });
        let manager = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = manager.run(&record, &plan, &id).await;
            manager.conclude(&id, outcome);
        });
        Ok(job)
    }

    /// Trains, and starts again if users are erased whose events the training has read.
    async fn run(
        self: &Arc<Self>,
        record: &ModelRecord,
        plan: &TrainPlan,
        id: &JobId,
    ) -> Result<Concluded, ManagerError> {
        let dir = self.jobs_dir().join(id.as_str());
        let mut attempt = 1;
        loop {
            match self.attempt(record, plan, (id, attempt), &dir).await {
                Err(ManagerError::Outdated) if attempt < ATTEMPTS_MAX => {
                    tracing::info!(job = %id, attempt, "users were erased that the training had read; it starts again");
                    remove_dir(&dir)?;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(
        self: &Arc<Self>,
        record: &ModelRecord,
        plan: &TrainPlan,
        (id, attempt): (&JobId, u32),
        dir: &Path,
    ) -> Result<Concluded, ManagerError> {
        let made = self.make_version(record, plan, (id, attempt), dir).await?;
        let (manager, record, id, dir) = (Arc::clone(self), record.clone(), id.clone(), dir.to_owned());
        blocking(move || {
            let concluded = manager.conclude_candidate(&record, &made, &id)?;
            remove_dir(&dir)?;
            Ok(concluded)
        })
        .await
    }

    fn conclude(&self, id: &JobId, outcome: Result<Concluded, ManagerError>) {
        if let Err(error) = &outcome {
            tracing::warn!(job = %id, %error, "retraining failed; the active version keeps serving");
            let _ = remove_dir(&self.jobs_dir().join(id.as_str()))
                .inspect_err(|error| tracing::warn!(job = %id, %error, "cannot remove the job's files"));
        }
        let ended = self.jobs.finish(id, |job| {
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
        if let Some(job) = &ended {
            self.monitors.trained(job.model_id);
        }
        if let Some(job) = ended.filter(|job| job.state == JobState::Failed) {
            self.note_failure(&job);
        }
    }

    /// Records an event for a job that produced no version.
    pub(crate) fn note_failure(&self, job: &Job) {
        let why = job.error.as_deref().unwrap_or("no reason given");
        let model = (&job.model, job.model_id);
        self.note(Event::now(model, EventKind::TrainingFailed, Actor::Job, why).with("job", job.job.as_str()));
    }
}
