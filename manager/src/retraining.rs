//! One retrain job from request to flip: export, train in a child process, check, activate.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use celeris_model::ModelName;
use celeris_retrain::{Algorithm, Job as TrainJob, Step};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind};
use crate::export::{Export, export};
use crate::gate::Tail;
use crate::jobs::{Job, JobId, JobState};
use crate::manager::{Manager, remove_dir};
use crate::pause::{self, Step as PausedAt};
use crate::records::ModelRecord;
use crate::switch::Concluded;

/// How much of what a trainer says on its standard error is kept for the job's record.
const STDERR_BYTES_MAX: u64 = 16 << 10;

/// Every job trains from the same seed: equal data give an equal version.
const TRAIN_SEED: u64 = 1;

impl Manager {
    /// Starts a retrain job and returns at once; the job runs on the current tokio runtime.
    ///
    /// # Errors
    /// `UnknownModel`, `JobRunning` or `Storage`.
    pub fn retrain(self: &Arc<Self>, model: &ModelName, why: &str) -> Result<Job, ManagerError> {
        self.retrain_for(Actor::Operator, model, why)
    }

    pub(crate) fn retrain_for(self: &Arc<Self>, by: Actor, model: &ModelName, why: &str) -> Result<Job, ManagerError> {
        let record = self.model(model)?;
        let job = self.jobs.begin(model, why, SystemTime::now().into())?;
        let id = job.job.clone();
        self.note(
            Event::now(model, EventKind::TrainingStarted, by, why)
                .between(Some(record.active), None)
                .with("job", id.as_str()),
        );
        let manager = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = manager.run(&record, &id).await;
            manager.conclude(&id, outcome);
        });
        Ok(job)
    }

    async fn run(self: &Arc<Self>, record: &ModelRecord, id: &JobId) -> Result<Concluded, ManagerError> {
        let dir = self.jobs_dir().join(id.as_str());
        let written = {
            let (manager, record, id, dir) = (Arc::clone(self), record.clone(), id.clone(), dir.clone());
            blocking(move || {
                let progress = |share| manager.jobs.progress(&id, "export", share);
                progress(0.0);
                let export = export(&manager.storage, &record.config, &dir, progress)?;
                let written = write_job(&record, export, &dir)?;
                pause::at(PausedAt::Training);
                Ok(written)
            })
            .await?
        };
        self.train(id, &written.file).await?;
        let (manager, model, id) = (Arc::clone(self), record.config.name.clone(), id.clone());
        blocking(move || {
            let concluded = manager.conclude_candidate(&model, &written.output, &written.tail, &id)?;
            remove_dir(&dir)?;
            Ok(concluded)
        })
        .await
    }

    /// Runs the trainer on a job file and follows its progress. The child dies with the node.
    async fn train(&self, id: &JobId, job_file: &Path) -> Result<(), ManagerError> {
        let program = &self.options.trainer;
        let mut child = Command::new(program)
            .arg("train")
            .arg("--job")
            .arg(job_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(ManagerError::io(program))?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let stderr = child.stderr.take().expect("standard error is piped");
        let (status, (), said) = tokio::join!(child.wait(), self.follow(id, stdout), first_words(stderr));
        let status = status.map_err(ManagerError::io(program))?;
        if status.success() { Ok(()) } else { Err(ManagerError::Trainer { reason: why_it_ended(status, &said) }) }
    }

    async fn follow(&self, id: &JobId, stdout: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(Step { phase, fraction }) = serde_json::from_str(&line) {
                self.jobs.progress(id, phase.name(), fraction);
            }
        }
    }

    fn conclude(&self, id: &JobId, outcome: Result<Concluded, ManagerError>) {
        if let Err(error) = &outcome {
            tracing::warn!(job = %id, %error, "retraining failed; the active version goes on serving");
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
            self.monitors.trained(&job.model);
        }
        if let Some(job) = ended.filter(|job| job.state == JobState::Failed) {
            self.note_failure(&job);
        }
    }

    /// Records that a job made no version.
    pub(crate) fn note_failure(&self, job: &Job) {
        let why = job.error.as_deref().unwrap_or("it did not say why");
        self.note(Event::now(&job.model, EventKind::TrainingFailed, Actor::Job, why).with("job", job.job.as_str()));
    }
}

/// A job file, and where its version directory will be.
struct Written {
    file: PathBuf,
    output: PathBuf,
    tail: Tail,
}

fn write_job(record: &ModelRecord, export: Export, dir: &Path) -> Result<Written, ManagerError> {
    let output = dir.join("version");
    let job = TrainJob {
        model: record.config.name.clone(),
        version: record.newest.next(),
        dim: record.config.dim,
        seed: TRAIN_SEED,
        threads: None,
        algorithm: Algorithm::default(),
        loss: record.config.loss,
        observations: export.observations,
        pinned_items: export.pinned_items,
        parent: Some(record.active),
        watermark: serde_json::to_value(&export.watermark).expect("a watermark is an array of numbers"),
        output: output.clone(),
    };
    let file = dir.join("job.json");
    let text = serde_json::to_vec_pretty(&job).expect("a job is plain data");
    std::fs::write(&file, text).map_err(ManagerError::io(&file))?;
    Ok(Written { file, output, tail: export.tail })
}

/// Reads to the end, keeping the beginning: the first error is the cause, what follows are its consequences.
async fn first_words(stderr: impl AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    let mut stderr = stderr;
    // What cannot be read is not said; the exit status speaks for itself.
    let _ = (&mut stderr).take(STDERR_BYTES_MAX).read_to_end(&mut said).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&said).trim().to_owned()
}

fn why_it_ended(status: ExitStatus, said: &str) -> String {
    if said.is_empty() { format!("it ended with {status} and said nothing") } else { format!("{said} ({status})") }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ManagerError> + Send + 'static,
) -> Result<T, ManagerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        // A job that panics has failed like any other; the panic itself is in the node's log.
        Err(panic) => Err(ManagerError::Trainer { reason: panic.to_string() }),
    }
}
