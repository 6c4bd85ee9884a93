//! Retrain jobs.

use std::collections::BTreeMap;

use celeris_manager::{self as manager, Engine, JobId};
use celeris_model::ModelName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::versions::GateReport;

mirror_enum! {
    /// Where a job stands.
    JobState = manager::JobState {
        /// Accepted, not begun.
        Queued,
        Running,
        /// Its version serves.
        Succeeded,
        /// Its version is sound and was not activated.
        Rejected,
        /// It made no version.
        Failed,
    }
}

/// How to retrain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrainBody {
    /// The trainer, by its name: `als`, which is built in, or one that the node's configuration names; that of the model's
    /// settings by default.
    #[schema(value_type = Option<String>)]
    pub engine: Option<Engine>,
    /// Why, for the job's record; at most 1000 bytes.
    #[schema(max_length = 1000)]
    pub why: Option<String>,
    /// Trains from nothing, choosing all settings again; otherwise training goes on from the active version where it can,
    /// unless users were erased whose observations that version's factors were learnt from.
    #[serde(default)]
    pub cold: bool,
}

/// The job that was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    #[schema(value_type = String)]
    pub job: JobId,
}

/// A retrain job.
#[derive(Debug, Serialize, ToSchema)]
pub struct Job {
    #[schema(value_type = String)]
    pub job: JobId,
    #[schema(value_type = String)]
    pub model: ModelName,
    pub state: JobState,
    /// Who trains, by name.
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Why it was started.
    pub why: String,
    /// What it is doing.
    pub phase: String,
    /// How far that is, from 0 to 1.
    pub progress: f32,
    pub metrics: BTreeMap<String, f64>,
    /// The version it made.
    pub version: Option<u64>,
    /// How its candidate was judged; null before.
    pub gate: Option<GateReport>,
    /// Why it failed.
    pub error: Option<String>,
    /// In Unix milliseconds.
    pub created: i64,
    pub finished: Option<i64>,
}

impl From<manager::Job> for Job {
    fn from(job: manager::Job) -> Self {
        Self {
            job: job.job,
            model: job.model,
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
