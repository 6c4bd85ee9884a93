//! Retrain jobs: held in memory while they run, and written to the registry at every change of
//! state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use celeris_formats::manifest::known_figures;
use celeris_model::{ModelId, ModelName, Timestamp, VersionId};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Cause;
use crate::error::ManagerError;
use crate::job_id::JobId;
use crate::leadership::Term;
use crate::registry::{Actor, Event, EventKind, GateReport, ModelRecord, Registry};
use crate::settings::Engine;

/// Number of jobs kept in the registry.
pub const JOBS_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Accepted, not started.
    Queued,
    Running,
    /// The job's version is active.
    Succeeded,
    /// The job's version is valid but was not activated.
    Rejected,
    /// The job produced no version.
    Failed,
}

impl JobState {
    /// Whether the job has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub job: JobId,
    pub model: ModelName,
    pub model_id: ModelId,
    pub state: JobState,
    /// The engine that trains.
    #[serde(default)]
    pub engine: Engine,
    /// Reason of the start.
    pub why: String,
    /// Current step: `export`, a phase of the trainer, `validate`, `activate`.
    pub phase: String,
    /// Progress of the phase, from 0 to 1.
    pub progress: f32,
    /// Metrics reported by the trainer; a value that is not finite is omitted.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    /// The version that the job created.
    pub version: Option<VersionId>,
    /// Gate report of the candidate.
    #[serde(default)]
    pub gate: Option<GateReport>,
    /// Why the job failed and how to fix it.
    pub error: Option<String>,
    /// Time of acceptance.
    pub created: Timestamp,
    pub finished: Option<Timestamp>,
}

/// All known jobs.
pub struct Jobs {
    storage: Storage,
    registry: Arc<Registry>,
    known: Mutex<HashMap<JobId, Job>>,
}

impl Jobs {
    /// Reads the jobs from the registry.
    pub(super) fn open(storage: Storage, registry: Arc<Registry>) -> Result<Self, ManagerError> {
        let jobs = Self { storage, registry, known: Mutex::default() };
        jobs.read(&mut jobs.known.lock())?;
        Ok(jobs)
    }

    fn read(&self, known: &mut HashMap<JobId, Job>) -> Result<(), ManagerError> {
        known.clear();
        for (_, job) in self.storage.registry().list::<Job>(&jobs_key()?)? {
            match job {
                Ok(job) => drop(known.insert(job.job.clone(), job)),
                Err(error) => {
                    tracing::error!(%error, "cannot read a job; delete its document, or restore it from a backup");
                }
            }
        }
        Ok(())
    }

    /// Reads the jobs from the registry again, and declares failed those that a stopped node, or one
    /// that led before, left unfinished. Jobs of the term that begins have not started yet.
    ///
    /// # Errors
    /// `Storage`.
    pub(super) fn interrupt(&self) -> Result<(), ManagerError> {
        let mut known = self.known.lock();
        self.read(&mut known)?;
        for job in known.values_mut().filter(|job| !job.state.is_final()) {
            job.state = JobState::Failed;
            job.error = Some("the node stopped before the job ended; start it again".to_owned());
            job.finished = Some(SystemTime::now().into());
            match self.keep(job) {
                // The next start marks it again.
                Ok(()) | Err(StorageError::StorageFull { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads a job again, after another node has changed its document.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn reload(&self, id: &str) -> Result<(), StorageError> {
        let mut known = self.known.lock();
        match self.storage.registry().get::<Job>(&job_key(id)?) {
            Ok(Some(job)) => drop(known.insert(job.job.clone(), job)),
            Ok(None) => known.retain(|known, _| known.as_str() != id),
            Err(error @ StorageError::Document { .. }) => tracing::error!(%error, "cannot read a job"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes the record of a job, and the event of its failure.
    fn keep(&self, job: &Job) -> Result<(), StorageError> {
        let mut batch = RegistryBatch::new();
        batch.put(job_key(job.job.as_str())?, job)?;
        let failure = (job.state == JobState::Failed).then(|| {
            let why = job.error.as_deref().unwrap_or("no reason given");
            let event = Event::now((&job.model, job.model_id), EventKind::TrainingFailed, Actor::Job, why);
            event.with("job", job.job.as_str())
        });
        self.registry.audit().commit(batch, failure.as_slice())
    }

    /// Accepts a job, unless another job of the model is unfinished, and records its start in the
    /// audit log.
    ///
    /// # Errors
    /// `JobRunning` or `Storage`, with `NotOwner` once the term is over.
    pub(super) fn begin(
        &self,
        (record, term): (&ModelRecord, &Term),
        engine: &Engine,
        cause: Cause,
    ) -> Result<Job, ManagerError> {
        let (model, model_id) = record.identity();
        // The next term begins with the lock.
        let mut known = self.known.lock();
        term.check()?;
        check_idle(&known, model)?;
        let (by, why) = (cause.actor(), cause.why().to_owned());
        let id = JobId::new();
        let started = Event::now(record.identity(), EventKind::TrainingStarted, by, why.as_str())
            .between(Some(record.active), None)
            .with("job", id.as_str())
            .with("engine", engine.name());
        let job = Job {
            job: id,
            model: model.clone(),
            model_id,
            state: JobState::Queued,
            engine: engine.clone(),
            why,
            phase: "queued".to_owned(),
            progress: 0.0,
            metrics: BTreeMap::new(),
            version: None,
            gate: None,
            error: None,
            created: SystemTime::now().into(),
            finished: None,
        };
        let events: Vec<Event> = cause.into_event().into_iter().chain([started]).collect();
        let mut batch = RegistryBatch::new();
        batch.put(job_key(job.job.as_str())?, &job)?;
        self.registry.audit().commit(batch, &events)?;
        known.insert(job.job.clone(), job.clone());
        if known.len() > JOBS_MAX {
            let oldest = known.values().filter(|job| job.state.is_final()).map(|job| job.job.clone()).min();
            if let Some(oldest) = oldest {
                known.remove(&oldest);
                let mut batch = RegistryBatch::new();
                batch.delete(job_key(oldest.as_str())?);
                self.storage.registry().commit(&batch)?;
            }
        }
        Ok(job)
    }

    /// Fails if the model has an unfinished job.
    pub(crate) fn check_idle(&self, model: &ModelName) -> Result<(), ManagerError> {
        check_idle(&self.known.lock(), model)
    }

    /// Updates the progress of a job, in memory only: progress is of no use after a restart.
    pub(super) fn progress(&self, id: &JobId, phase: &str, progress: f32) {
        // The work of a job whose term is over may go on for a moment.
        if let Some(job) = self.known.lock().get_mut(id).filter(|job| !job.state.is_final()) {
            phase.clone_into(&mut job.phase);
            job.progress = progress;
            job.state = JobState::Running;
        }
    }

    /// Stores the gate report of a job.
    pub(super) fn set_gate_report(&self, id: &JobId, report: &GateReport) {
        if let Some(job) = self.known.lock().get_mut(id) {
            job.gate = Some(report.clone());
        }
    }

    /// Records the end of a job and returns the final record. A write error is only logged: the
    /// result itself is in the registry's versions. `None` once the term is over: the job is then
    /// declared failed by the node that leads.
    pub(super) fn finish(&self, id: &JobId, term: &Term, change: impl FnOnce(&mut Job)) -> Option<Job> {
        let mut known = self.known.lock();
        let job = known.get_mut(id).filter(|_| !term.is_over())?;
        // Requests see the end of the job only together with its event.
        change(job);
        match self.keep(job) {
            Ok(()) => {}
            Err(error @ (StorageError::NotOwner | StorageError::Fenced)) => {
                tracing::info!(job = %id, %error, "a job ended when another node led");
            }
            Err(error) => tracing::error!(job = %id, %error, "cannot record how a job ended"),
        }
        Some(job.clone())
    }

    /// The model's most recently accepted job that counts, if it is still kept.
    pub(crate) fn latest(&self, model: ModelId, counts: impl Fn(&Job) -> bool) -> Option<Job> {
        let known = self.known.lock();
        known.values().filter(|job| job.model_id == model && counts(job)).max_by(|a, b| a.job.cmp(&b.job)).cloned()
    }

    /// All jobs that are kept, the latest first.
    #[must_use]
    pub fn latest_first(&self) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.known.lock().values().cloned().collect();
        jobs.sort_unstable_by(|a, b| b.job.cmp(&a.job));
        jobs
    }

    /// # Errors
    /// `UnknownJob`, or `Storage` if its document is damaged.
    pub fn get(&self, id: &str) -> Result<Job, ManagerError> {
        if let Some(found) = self.known.lock().values().find(|job| job.job.as_str() == id) {
            return Ok(found.clone());
        }
        let unknown = || ManagerError::UnknownJob { job: id.to_owned() };
        // Reading the document returns a precise error, with the key, if it is damaged.
        let key = job_key(id).map_err(|_no_key| unknown())?;
        self.storage.registry().get::<Job>(&key)?.ok_or_else(unknown)
    }
}

fn check_idle(known: &HashMap<JobId, Job>, model: &ModelName) -> Result<(), ManagerError> {
    match known.values().find(|job| job.model == *model && !job.state.is_final()) {
        Some(running) => Err(ManagerError::JobRunning { model: model.clone(), job: running.job.clone() }),
        None => Ok(()),
    }
}

fn jobs_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["job"])
}

fn job_key(job: &str) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["job", job])
}
