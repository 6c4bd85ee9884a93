//! Retrain jobs.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{Cause, ManagerError, TrainFrom, TrainRequest};
use celeris_model::{DecisionId, ModelName};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::error::ApiError;
use crate::extract::{Body, InJob, InModel, Params};
use crate::paging;
use crate::schema::ids::{Id, Name};
use crate::schema::jobs::{Accepted, Job, Jobs, RetrainBody};
use crate::state::Node;

/// Maximum bytes of the reason for a training.
const WHY_BYTES_MAX: usize = 1_000;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(retrain)).routes(routes!(list_jobs)).routes(routes!(get_job))
}

/// Retrains a model on the whole log of its stream, in the background.
///
/// The new version serves once it is complete and has passed the gate. Training warm-starts from
/// the active version, which takes a fraction of the time of a cold start, unless `cold` is set or
/// users were erased whose observations that version's factors were trained on. A training that has
/// read the observations of a user who is erased meanwhile starts again.
#[utoipa::path(post, path = "/v1/models/{model}/retrain", tag = "versions", request_body = RetrainBody,
    params(InModel),
    responses((status = 202, body = Accepted)))]
async fn retrain(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<RetrainBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    if body.why.as_ref().is_some_and(|why| why.len() > WHY_BYTES_MAX) {
        return Err(ApiError::field("why", format!("at most {WHY_BYTES_MAX} bytes")));
    }
    let why = body.why.unwrap_or_else(|| "on request".to_owned());
    let from = if body.cold { TrainFrom::Nothing } else { TrainFrom::Active };
    let request = TrainRequest { engine: body.engine, from };
    let record = node.manager.registry().model(&model)?;
    let job = node.manager.training().retrain(&record, request, Cause::Request(why))?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { job: job.job })))
}

/// Which jobs are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobsWanted {
    /// Only the jobs of this model.
    #[param(value_type = Option<Name>)]
    model: Option<ModelName>,
    /// The last job of the previous page.
    #[param(value_type = Option<Id>)]
    before: Option<String>,
    /// Maximum number of jobs; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Lists the retrain jobs of all models, the latest first. The latest 200 are kept.
#[utoipa::path(get, path = "/v1/jobs", tag = "versions", params(JobsWanted),
    responses((status = 200, body = Jobs)))]
async fn list_jobs(
    State(node): State<Node>,
    asking: Asking,
    Params(wanted): Params<JobsWanted>,
) -> Result<Json<Jobs>, ApiError> {
    let limit = paging::entries(wanted.limit)?;
    if let Some(before) = &wanted.before {
        // All ids have the same form.
        DecisionId::new(before.as_str()).map_err(|error| ApiError::field("before", error))?;
    }
    let model = wanted.model.map(|model| node.manager.registry().model(&model)).transpose()?.map(|record| record.id);
    let mut jobs = node.manager.training().jobs().latest_first();
    jobs.retain(|job| {
        model.is_none_or(|model| job.model_id == model)
            && wanted.before.as_ref().is_none_or(|before| job.job.as_str() < before.as_str())
            && asking.covers(&node, &job.model)
    });
    jobs.truncate(limit);
    let next = paging::next(&jobs, limit, |job| job.job.clone());
    Ok(Json(Jobs { jobs: jobs.into_iter().map(Job::from).collect(), next }))
}

/// Returns the progress of a job, or its result.
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "versions", params(InJob),
    responses((status = 200, body = Job)))]
async fn get_job(State(node): State<Node>, asking: Asking, InJob(job): InJob) -> Result<Json<Job>, ApiError> {
    let job = node.manager.training().jobs().get(&job)?;
    if !asking.covers(&node, &job.model) {
        // As if there were none.
        return Err(ManagerError::UnknownJob { job: job.job.to_string() }.into());
    }
    Ok(Json(job.into()))
}
