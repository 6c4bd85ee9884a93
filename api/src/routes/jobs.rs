//! Retraining, and how far it is.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{TrainFrom, TrainRequest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, InPath};
use crate::schema::jobs::{Accepted, Job, RetrainBody};
use crate::state::Node;

/// Bytes of the reason for a training.
const WHY_BYTES_MAX: usize = 1_000;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(retrain)).routes(routes!(get))
}

/// Retrains a model on everything in its stream's log, in the background; the new version serves once it is whole and the
/// gate has let it pass. Training goes on from the active version, which takes a fraction of a training from nothing,
/// unless `cold` is set, or users were erased whom that version's factors were learnt from. A training during which a user
/// is erased whom it has read begins again.
#[utoipa::path(post, path = "/v1/models/{model}/retrain", tag = "versions", request_body = RetrainBody,
    params(("model" = String, Path)),
    responses((status = 202, body = Accepted), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn retrain(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<RetrainBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    if body.why.as_ref().is_some_and(|why| why.len() > WHY_BYTES_MAX) {
        return Err(ApiError::invalid(format!("why: at most {WHY_BYTES_MAX} bytes")));
    }
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
    Ok(Json(node.manager.job(&job)?.into()))
}
