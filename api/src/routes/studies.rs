//! Studies: searches for the settings of a model.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_manager::{ManagerError, StudyRecord};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::error::ApiError;
use crate::extract::{Body, InModel, InStudy};
use crate::schema::studies::{NewStudy, Studies, StudyAccepted, StudyDescription};
use crate::state::Node;

/// Maximum bytes of the reason for a study.
const WHY_BYTES_MAX: usize = 1_000;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(start_study, list_studies))
        .routes(routes!(get_study))
        .routes(routes!(stop_study))
        .routes(routes!(apply_study))
}

/// Searches for settings of a model that give a lower loss, in the background.
///
/// Each trial trains the model with other settings, as a retraining from nothing, without registering
/// a version, and judges the posteriors that would serve by their loss on held-out observations: all
/// trials by the same ones, which none has read. Trial 0 has the present settings. Settings that are
/// better can be applied, or are with `then`. A study goes on after a restart of the node. A model has
/// one running study, a node at most four.
#[utoipa::path(post, path = "/v1/models/{model}/studies", tag = "studies", request_body = NewStudy,
    params(InModel),
    responses((status = 202, body = StudyAccepted)))]
async fn start_study(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<NewStudy>,
) -> Result<(StatusCode, Json<StudyAccepted>), ApiError> {
    if body.why.as_ref().is_some_and(|why| why.len() > WHY_BYTES_MAX) {
        return Err(ApiError::field("why", format!("at most {WHY_BYTES_MAX} bytes")));
    }
    let new = body.try_into().map_err(ManagerError::from)?;
    let started = node.manager.studies().start(&model, new, None)?;
    Ok((StatusCode::ACCEPTED, Json(StudyAccepted { study: started.study })))
}

/// Lists the studies of a model, the latest first. The latest 100 of a node are kept.
#[utoipa::path(get, path = "/v1/models/{model}/studies", tag = "studies", params(InModel),
    responses((status = 200, body = Studies)))]
async fn list_studies(State(node): State<Node>, InModel(model): InModel) -> Result<Json<Studies>, ApiError> {
    let studies = node.manager.studies().of_model(&model)?;
    Ok(Json(Studies { studies: studies.into_iter().map(Into::into).collect() }))
}

/// Returns a study with its trials.
#[utoipa::path(get, path = "/v1/studies/{study}", tag = "studies", params(InStudy),
    responses((status = 200, body = StudyDescription)))]
async fn get_study(
    State(node): State<Node>,
    asking: Asking,
    InStudy(study): InStudy,
) -> Result<Json<StudyDescription>, ApiError> {
    Ok(Json(known(&node, &asking, &study)?.into()))
}

/// Ends a study: no trial begins any more, and the running ones are stopped. No effect if it has
/// ended. Its settings can be applied still.
#[utoipa::path(post, path = "/v1/studies/{study}/stop", tag = "studies", params(InStudy),
    responses((status = 200, body = StudyDescription)))]
async fn stop_study(
    State(node): State<Node>,
    asking: Asking,
    InStudy(study): InStudy,
) -> Result<Json<StudyDescription>, ApiError> {
    known(&node, &asking, &study)?;
    Ok(Json(node.manager.studies().stop(&study)?.into()))
}

/// Gives the model the best settings that an ended study has found, and retrains it with them from
/// nothing. The version serves if it passes the gate.
#[utoipa::path(post, path = "/v1/studies/{study}/apply", tag = "studies", params(InStudy),
    responses((status = 202, body = StudyDescription)))]
async fn apply_study(
    State(node): State<Node>,
    asking: Asking,
    InStudy(study): InStudy,
) -> Result<(StatusCode, Json<StudyDescription>), ApiError> {
    known(&node, &asking, &study)?;
    Ok((StatusCode::ACCEPTED, Json(node.manager.apply_study(&study)?.into())))
}

/// A study of a model that the caller may know of.
pub(super) fn known(node: &Node, asking: &Asking, study: &str) -> Result<StudyRecord, ApiError> {
    let found = node.manager.studies().get(study)?;
    if !asking.covers(node, &found.model) {
        // As if there were none.
        return Err(ManagerError::UnknownStudy { study: study.to_owned() }.into());
    }
    Ok(found)
}
