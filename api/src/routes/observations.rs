//! Amendments of observations: correction and deletion.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use celeris_model::{ObservationId, UserId};
use celeris_predictor::Amended;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::description::Gone;
use crate::error::ApiError;
use crate::extract::{Body, OfObservation, Params};
use crate::routing::WroteNothing;
use crate::schema::ids::Id;
use crate::state::Node;

/// The correction of an observation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrectBody {
    /// The new label, which counts as if it had been observed originally.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    label: f32,
}

/// The user of an observation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ByUser {
    /// The user of the observation. Needed if several users have observations of this id.
    #[param(value_type = Option<Id>)]
    user: Option<UserId>,
}

/// The result of an amendment, once it is durable.
#[derive(Debug, Serialize, ToSchema)]
pub struct AmendReply {
    /// The user of the observation.
    #[schema(value_type = Id)]
    user: UserId,
    /// The user's epoch: the count of the user's events, including this one.
    user_epoch: u64,
    /// The position of the event in its partition of the log.
    sequence: u64,
    #[schema(value_type = Id)]
    observation_id: ObservationId,
    /// Whether the observation already had this label, so that nothing changed.
    duplicate: bool,
    /// The label that is recorded, if the model clipped it; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    clipped: Option<f32>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(correct_observation, forget_observation))
}

fn reply(observation_id: ObservationId, amended: Amended) -> Response {
    let Amended { user, user_epoch, sequence, duplicate, clipped } = amended;
    let body = AmendReply { user, user_epoch: user_epoch.0, sequence: sequence.0, observation_id, duplicate, clipped };
    WroteNothing::mark(Json(body), duplicate)
}

/// Corrects the label of an observation.
///
/// The user's weights become exactly what they would be had the observation had this label
/// originally. Trained versions reflect the correction after the next training.
#[utoipa::path(put, path = "/v1/models/{model}/observations/{observation_id}", tag = "serving",
    request_body = CorrectBody, params(OfObservation, ByUser),
    responses((status = 200, body = AmendReply), (status = 410, response = Gone)))]
async fn correct_observation(
    State(node): State<Node>,
    OfObservation { model, observation_id }: OfObservation,
    asking: Asking,
    Params(ByUser { user }): Params<ByUser>,
    Body(body): Body<CorrectBody>,
) -> Result<Response, ApiError> {
    asking.take_observation(&node)?;
    let amended = node.predictor.ingest().correct(&model, user.as_ref(), &observation_id, body.label).await?;
    Ok(reply(observation_id, amended))
}

/// Deletes an observation.
///
/// The user's weights become exactly what they would be without the observation. Its id cannot be
/// used again.
#[utoipa::path(delete, path = "/v1/models/{model}/observations/{observation_id}", tag = "serving",
    params(OfObservation, ByUser),
    responses((status = 200, body = AmendReply), (status = 410, response = Gone)))]
async fn forget_observation(
    State(node): State<Node>,
    OfObservation { model, observation_id }: OfObservation,
    asking: Asking,
    Params(ByUser { user }): Params<ByUser>,
) -> Result<Response, ApiError> {
    asking.take_observation(&node)?;
    let amended = node.predictor.ingest().forget(&model, user.as_ref(), &observation_id).await?;
    Ok(reply(observation_id, amended))
}
