//! Retrain jobs.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, Engine, JobId};
use celeris_model::ModelName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::{Id, Name};
use super::versions::GateReport;

mirror_enum! {
    /// The state of a job.
    JobState = manager::JobState {
        /// The job was accepted and has not started.
        Queued,
        Running,
        /// The version of the job was activated.
        Succeeded,
        /// The version of the job is valid but was not activated.
        Rejected,
        /// The job produced no version.
        Failed,
    }
}

/// Options of a retraining.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrainBody {
    /// The name of the trainer: the built-in `als`, or a trainer of the node's configuration; the
    /// one of the model's settings by default.
    #[schema(value_type = Option<String>)]
    pub engine: Option<Engine>,
    /// The reason, for the job's record; at most 1000 bytes.
    #[schema(max_length = 1000)]
    pub why: Option<String>,
    /// Trains from scratch and tunes all settings again. Otherwise training warm-starts from the
    /// active version where possible, unless users were erased whose observations that version's
    /// factors were trained on.
    #[serde(default)]
    pub cold: bool,
}

/// An accepted job.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    /// The id of the job, for `GET /v1/jobs/{job}`.
    #[schema(value_type = Id)]
    pub job: JobId,
}

/// A retrain job.
#[derive(Debug, Serialize, ToSchema)]
pub struct Job {
    #[schema(value_type = Id)]
    pub job: JobId,
    #[schema(value_type = Name)]
    pub model: ModelName,
    /// The id of the model: of a deleted one, if `GET /v1/models/{model}` has another.
    pub model_id: u64,
    pub state: JobState,
    /// The name of the trainer.
    #[schema(value_type = String)]
    pub engine: Engine,
    /// The reason for the training.
    pub why: String,
    /// The current phase.
    pub phase: String,
    /// Progress of the phase, from 0 to 1.
    pub progress: f32,
    /// Metrics of the trainer, by name.
    pub metrics: BTreeMap<String, f64>,
    /// The version that the job produced.
    pub version: Option<u64>,
    /// The gate's evaluation of the candidate; null before it was evaluated.
    pub gate: Option<GateReport>,
    /// Why the job failed.
    pub error: Option<String>,
    /// In Unix milliseconds.
    pub created: i64,
    /// In Unix milliseconds; null while the job is queued or running.
    pub finished: Option<i64>,
}

/// A page of jobs, the latest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobPage)]
pub struct Jobs {
    pub jobs: Vec<Job>,
    /// The value of `before` for the next page; null on the last page.
    #[schema(value_type = Option<Id>)]
    pub next: Option<JobId>,
}

impl From<manager::Job> for Job {
    fn from(job: manager::Job) -> Self {
        Self {
            job: job.job,
            model: job.model,
            model_id: job.model_id.0,
            state: job.state.into(),
            engine: job.engine,
            why: job.why,
            phase: job.phase,
            progress: job.progress,
            metrics: job.metrics,
            version: job.version.map(|version| version.0),
            gate: job.gate.map(Into::into),
            error: job.error,
            created: job.created.0,
            finished: job.finished.map(|finished| finished.0),
        }
    }
}
