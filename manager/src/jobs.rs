//! Retrain jobs: what is known of each, in memory while it runs and in the registry at every change of its state.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use celeris_features::manifest::known_figures;
use celeris_model::{ModelId, ModelName, Timestamp, VersionId};
use celeris_storage::{RegistryBatch, Storage, StorageError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;
use crate::gate::GateReport;
use crate::records::{job_key, jobs_key};
use crate::training::Engine;

/// How many jobs the registry remembers.
pub const JOBS_MAX: usize = 200;

/// A job's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(String);

impl JobId {
    fn new() -> Self {
        // Version 7 begins with the time, so the order of names is the order of jobs.
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Accepted, not begun.
    Queued,
    /// Under way.
    Running,
    /// Its version serves.
    Succeeded,
    /// Its version is sound but was not activated.
    Rejected,
    /// It made no version.
    Failed,
}

impl JobState {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// One retrain job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    pub job: JobId,
    /// The model that is retrained.
    pub model: ModelName,
    /// The model's identity.
    pub model_id: ModelId,
    /// Where it stands.
    pub state: JobState,
    /// Who trains.
    #[serde(default)]
    pub engine: Engine,
    /// Why it was started.
    pub why: String,
    /// What it is doing: `export`, a phase of the trainer, `validate`, `activate`.
    pub phase: String,
    /// How far that is, from 0 to 1.
    pub progress: f32,
    /// What the trainer measured; a figure that is no finite number is missing.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    /// The version it made.
    pub version: Option<VersionId>,
    /// How its candidate was judged.
    #[serde(default)]
    pub gate: Option<GateReport>,
    /// Why it failed, and what to do.
    pub error: Option<String>,
    /// When it was accepted.
    pub created: Timestamp,
    /// When it ended.
    pub finished: Option<Timestamp>,
}

/// All jobs that are remembered.
pub(crate) struct Jobs {
    storage: Storage,
    known: Mutex<HashMap<JobId, Job>>,
}

impl Jobs {
    /// Reads the jobs of the registry. Those that a stopped node left behind have failed, and are the second value.
    pub(crate) fn open(storage: Storage, now: Timestamp) -> Result<(Arc<Self>, Vec<Job>), ManagerError> {
        let jobs = Self { storage, known: Mutex::new(HashMap::new()) };
        let mut interrupted = Vec::new();
        for (_, job) in jobs.storage.list_registry::<Job>(&jobs_key()?)? {
            let mut job = match job {
                Ok(job) => job,
                Err(error) => {
                    tracing::error!(%error, "a job cannot be told of; delete its document, or restore it from a backup");
                    continue;
                }
            };
            if !job.state.is_final() {
                job.state = JobState::Failed;
                job.error = Some("the node stopped before the job ended; start it again".to_owned());
                job.finished = Some(now);
                match jobs.keep(&job) {
                    // The next start finds it as this one has.
                    Ok(()) | Err(StorageError::StorageFull { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                interrupted.push(job.clone());
            }
            jobs.known.lock().insert(job.job.clone(), job);
        }
        Ok((Arc::new(jobs), interrupted))
    }

    fn keep(&self, job: &Job) -> Result<(), StorageError> {
        let mut batch = RegistryBatch::new();
        batch.put(job_key(job.job.as_str())?, job)?;
        self.storage.commit_registry(&batch)
    }

    /// Accepts a job, unless the model has one that has not ended.
    pub(crate) fn begin(
        &self,
        (model, model_id): (&ModelName, ModelId),
        engine: &Engine,
        why: &str,
        now: Timestamp,
    ) -> Result<Job, ManagerError> {
        let mut known = self.known.lock();
        check_idle(&known, model)?;
        let job = Job {
            job: JobId::new(),
            model: model.clone(),
            model_id,
            state: JobState::Queued,
            engine: engine.clone(),
            why: why.to_owned(),
            phase: "queued".to_owned(),
            progress: 0.0,
            metrics: BTreeMap::new(),
            version: None,
            gate: None,
            error: None,
            created: now,
            finished: None,
        };
        self.keep(&job)?;
        known.insert(job.job.clone(), job.clone());
        if known.len() > JOBS_MAX {
            let oldest = known.values().filter(|job| job.state.is_final()).map(|job| job.job.clone()).min();
            if let Some(oldest) = oldest {
                known.remove(&oldest);
                let mut batch = RegistryBatch::new();
                batch.delete(job_key(oldest.as_str())?);
                self.storage.commit_registry(&batch)?;
            }
        }
        Ok(job)
    }

    /// Refuses where the model has a job that has not ended.
    pub(crate) fn check_idle(&self, model: &ModelName) -> Result<(), ManagerError> {
        check_idle(&self.known.lock(), model)
    }

    /// Notes how far a job is; kept in memory only, since progress is worth nothing after a restart.
    pub(crate) fn progress(&self, id: &JobId, phase: &str, progress: f32) {
        if let Some(job) = self.known.lock().get_mut(id) {
            phase.clone_into(&mut job.phase);
            job.progress = progress;
            job.state = JobState::Running;
        }
    }

    /// Notes how a job's candidate was judged.
    pub(crate) fn judged(&self, id: &JobId, report: &GateReport) {
        if let Some(job) = self.known.lock().get_mut(id) {
            job.gate = Some(report.clone());
        }
    }

    /// Notes how a job ended, and returns it as it is then. What cannot be kept is logged: the outcome itself is in the
    /// registry's versions.
    pub(crate) fn finish(&self, id: &JobId, change: impl FnOnce(&mut Job)) -> Option<Job> {
        let mut known = self.known.lock();
        let job = known.get_mut(id)?;
        change(job);
        if let Err(error) = self.keep(job) {
            tracing::error!(job = %id, %error, "cannot record how a job ended");
        }
        Some(job.clone())
    }

    /// The job of a model that was accepted last, as far as it is remembered.
    pub(crate) fn latest(&self, model: ModelId) -> Option<Job> {
        let known = self.known.lock();
        known.values().filter(|job| job.model_id == model).max_by(|a, b| a.job.cmp(&b.job)).cloned()
    }

    pub(crate) fn get(&self, id: &str) -> Result<Job, ManagerError> {
        if let Some(found) = self.known.lock().values().find(|job| job.job.as_str() == id) {
            return Ok(found.clone());
        }
        let unknown = || ManagerError::UnknownJob { job: id.to_owned() };
        // One whose document cannot be read is not known, and says so by the document's key.
        let key = job_key(id).map_err(|_no_key| unknown())?;
        self.storage.registry::<Job>(&key)?.ok_or_else(unknown)
    }
}

fn check_idle(known: &HashMap<JobId, Job>, model: &ModelName) -> Result<(), ManagerError> {
    match known.values().find(|job| job.model == *model && !job.state.is_final()) {
        Some(running) => Err(ManagerError::JobRunning { model: model.clone(), job: running.job.clone() }),
        None => Ok(()),
    }
}
