//! One observation after the fact: corrected, or forgotten.

use axum::Json;
use axum::extract::State;
use celeris_model::{ObservationId, UserId};
use celeris_predictor::Amended;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, OfObservation};
use crate::state::Node;

/// What an observation should have said.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrectBody {
    /// The label that counts from now on, as if it had come at first.
    label: f32,
}

/// What became of it, once durable.
#[derive(Debug, Serialize, ToSchema)]
pub struct AmendReply {
    /// Whose observation it was.
    #[schema(value_type = String)]
    user: UserId,
    /// The count of the user's events with this one.
    user_epoch: u64,
    /// The event's place in its partition of the log.
    sequence: u64,
    #[schema(value_type = String)]
    observation_id: ObservationId,
    /// Whether the observation had that label already, so that nothing changed.
    duplicate: bool,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(correct, forget))
}

fn reply(observation_id: ObservationId, amended: Amended) -> Json<AmendReply> {
    let Amended { user, user_epoch, sequence, duplicate } = amended;
    Json(AmendReply { user, user_epoch: user_epoch.0, sequence: sequence.0, observation_id, duplicate })
}

/// Gives an observation another label. The user's weights become exactly what they would be had it come so at first;
/// trained versions learn of it with the next training.
#[utoipa::path(put, path = "/v1/models/{model}/observations/{observation_id}", tag = "serving",
    request_body = CorrectBody, params(("model" = String, Path), ("observation_id" = String, Path)),
    responses((status = 200, body = AmendReply), (status = 404, body = Problem), (status = 410, body = Problem),
        (status = 422, body = Problem), (status = 503, body = Problem)))]
async fn correct(
    State(node): State<Node>,
    OfObservation { model, observation_id }: OfObservation,
    Body(body): Body<CorrectBody>,
) -> Result<Json<AmendReply>, ApiError> {
    let amended = node.predictor.correct(&model, &observation_id, body.label).await?;
    Ok(reply(observation_id, amended))
}

/// Forgets an observation. The user's weights become exactly what they would be had it never come; its id is not free
/// again.
#[utoipa::path(delete, path = "/v1/models/{model}/observations/{observation_id}", tag = "serving",
    params(("model" = String, Path), ("observation_id" = String, Path)),
    responses((status = 200, body = AmendReply), (status = 404, body = Problem), (status = 410, body = Problem),
        (status = 503, body = Problem)))]
async fn forget(
    State(node): State<Node>,
    OfObservation { model, observation_id }: OfObservation,
) -> Result<Json<AmendReply>, ApiError> {
    let amended = node.predictor.forget(&model, &observation_id).await?;
    Ok(reply(observation_id, amended))
}
