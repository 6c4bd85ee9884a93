//! Retraining, and how far it is.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{Engine, GateReport, JobId, JobState, TrainFrom, TrainRequest};
use celeris_model::ModelName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, InPath};
use crate::state::Node;

/// How to retrain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrainBody {
    /// The trainer, by its name: `als`, which is built in, or one that the node's configuration names; that of the model's
    /// settings by default.
    #[schema(value_type = Option<String>)]
    engine: Option<Engine>,
    /// Why, for the job's record.
    why: Option<String>,
    /// Trains from nothing, choosing all settings anew; otherwise training goes on from the active version where it can,
    /// and where nobody was erased whom that one's factors were learnt from.
    #[serde(default)]
    cold: bool,
}

/// The job that was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub struct Accepted {
    #[schema(value_type = String)]
    job: JobId,
}

/// A retrain job.
#[derive(Debug, Serialize, ToSchema)]
pub struct Job {
    #[schema(value_type = String)]
    job: JobId,
    #[schema(value_type = String)]
    model: ModelName,
    /// `queued`, `running`, `succeeded`, `rejected` or `failed`.
    #[schema(value_type = String)]
    state: JobState,
    /// Who trains, by name.
    #[schema(value_type = String)]
    engine: Engine,
    /// Why it was started.
    why: String,
    /// What it is doing.
    phase: String,
    /// How far that is, from 0 to 1.
    progress: f32,
    metrics: BTreeMap<String, f64>,
    /// The version it made.
    version: Option<u64>,
    /// How its candidate was judged; null before.
    #[schema(value_type = Option<Object>)]
    gate: Option<GateReport>,
    /// Why it failed.
    error: Option<String>,
    /// In Unix milliseconds.
    created: i64,
    finished: Option<i64>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(retrain)).routes(routes!(get))
}

/// Retrains a model on everything in its stream's log, in the background; the new version serves once it is whole and the
/// gate has let it pass. Training goes on from the active version, which takes a fraction of a training from nothing,
/// unless `cold` is set, or users were erased whom that version's factors were learnt from. A training during which a user
/// is erased whom it has read begins again.
#[utoipa::path(post, path = "/v1/models/{model}/retrain", tag = "versions", request_body = RetrainBody,
    params(("model" = String, Path)),
    responses((status = 202, body = Accepted), (status = 404, body = Problem), (status = 409, body = Problem)))]
async fn retrain(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<RetrainBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let why = body.why.unwrap_or_else(|| "on request".to_owned());
    let from = if body.cold { TrainFrom::Nothing } else { TrainFrom::Active };
    let request = TrainRequest { engine: body.engine, from };
    let job = tokio::task::block_in_place(|| node.manager.retrain(&model, request, &why))?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { job: job.job })))
}

/// How far a job is, and how it ended.
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "versions", params(("job" = String, Path)),
    responses((status = 200, body = Job), (status = 404, body = Problem)))]
async fn get(State(node): State<Node>, InPath(job): InPath) -> Result<Json<Job>, ApiError> {
    let job = node.manager.job(&job)?;
    Ok(Json(Job {
        job: job.job,
        model: job.model,
        state: job.state,
        engine: job.engine,
        why: job.why,
        phase: job.phase,
        progress: job.progress,
        metrics: job.metrics,
        version: job.version.map(|version| version.0),
        gate: job.gate,
        error: job.error,
        created: job.created.0,
        finished: job.finished.map(|finished| finished.0),
    }))
}
