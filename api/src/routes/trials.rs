//! Trials of a study on other machines: workers there ask for them, report how they go, and tell their results.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use celeris_manager::OfTrial;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::studies::known;
use crate::asking::Asking;
use crate::cluster::{PACE, written_body};
use crate::error::ApiError;
use crate::extract::{Body, InStudy, InTrial, Params};
use crate::schema::studies::StudySummary;
use crate::schema::trials::{AskTrial, AskedTrial, TrialReply, TrialReport, TrialResult};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(ask_trial))
        .routes(routes!(get_study_data))
        .routes(routes!(report_trial))
        .routes(routes!(tell_trial))
}

/// Asks for a trial, for a worker on another machine.
///
/// `celeris work` does what follows: it fetches the data of the study, trains with the settings, reports that it is at
/// work before `lease_until`, and tells the loss. A worker that is not heard of by then loses the trial, which fails;
/// other trials go on. The trial of the present settings is made by the node. A trial that an operator stopped, or that
/// was lost, takes no messages any more: they are answered with 409 and change nothing.
#[utoipa::path(post, path = "/v1/studies/{study}/ask", tag = "studies", params(InStudy), request_body = AskTrial,
    responses((status = 200, body = AskedTrial)))]
async fn ask_trial(
    State(node): State<Node>,
    asking: Asking,
    InStudy(study): InStudy,
    Body(AskTrial { worker }): Body<AskTrial>,
) -> Result<Json<AskedTrial>, ApiError> {
    known(&node, &asking, &study)?;
    Ok(Json(node.manager.studies().ask(&study, &worker)?.into()))
}

/// Reports that a worker is at work on its trial, which is the worker's for another lease then.
#[utoipa::path(post, path = "/v1/studies/{study}/trials/{trial}/report", tag = "studies", params(InTrial),
    request_body = TrialReport, responses((status = 200, body = TrialReply)))]
async fn report_trial(
    State(node): State<Node>,
    asking: Asking,
    InTrial { study, trial }: InTrial,
    Body(TrialReport { attempt }): Body<TrialReport>,
) -> Result<Json<TrialReply>, ApiError> {
    known(&node, &asking, &study)?;
    let lease_until = node.manager.studies().report(OfTrial { study: &study, trial, attempt })?;
    Ok(Json(TrialReply { lease_until }))
}

/// Tells the result of a trial: its loss, or why it has none. A trial takes one result.
#[utoipa::path(post, path = "/v1/studies/{study}/trials/{trial}/tell", tag = "studies", params(InTrial),
    request_body = TrialResult, responses((status = 200, body = StudySummary)))]
async fn tell_trial(
    State(node): State<Node>,
    asking: Asking,
    InTrial { study, trial }: InTrial,
    Body(body): Body<TrialResult>,
) -> Result<Json<StudySummary>, ApiError> {
    known(&node, &asking, &study)?;
    let of = OfTrial { study: &study, trial, attempt: body.attempt };
    let result = body.result().map_err(|(field, problem)| ApiError::field(field, problem))?;
    Ok(Json(node.manager.studies().tell(of, result)?.into()))
}

/// Who fetches data.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ByWorker {
    /// The name of the worker, for the event.
    worker: String,
}

/// Returns what the trials of a study need: the observations that they read, those that are held out included, and the
/// items. In a form of the node's own, for `celeris work` of the same version. Only while a worker on another machine
/// has a trial of the study.
#[utoipa::path(get, path = "/v1/studies/{study}/data", tag = "studies", params(InStudy, ByWorker),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream", description = "The data")))]
async fn get_study_data(
    State(node): State<Node>,
    asking: Asking,
    InStudy(study): InStudy,
    Params(ByWorker { worker }): Params<ByWorker>,
) -> Result<Response, ApiError> {
    known(&node, &asking, &study)?;
    let data = node.manager.studies().data(&study, &worker)?;
    let body = written_body(PACE, move |into| data.write(into));
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}
