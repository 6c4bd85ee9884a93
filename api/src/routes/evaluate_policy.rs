//! Off-policy evaluation on a model's own decisions.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Body, InModel};
use crate::schema::policy_evaluation::{EvaluateBody, EvaluateReply, describe};
use crate::state::Node;

/// The share of the request timeout spent on reading decisions; the rest is for the estimates.
const READING_SHARE: f64 = 0.5;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(evaluate_policy))
}

/// Estimates the reward that a policy would have earned on the model's logged decisions.
///
/// The estimators are replay, IPS, SNIPS, the direct method, DR, SNDR and SWITCH-DR, over the
/// model's decisions and the rewards joined to them. An estimate that the decisions do not support
/// is refused with a reason. Only one evaluation runs at a time. It takes at most half of the
/// request timeout and reports how many decisions it did not reach.
#[utoipa::path(post, path = "/v1/models/{model}/evaluate-policy", tag = "quality", request_body = EvaluateBody,
    params(InModel),
    responses((status = 200, body = EvaluateReply)))]
async fn evaluate_policy(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<EvaluateBody>,
) -> Result<Json<EvaluateReply>, ApiError> {
    let deadline = Instant::now() + node.limits.request_timeout.mul_f64(READING_SHARE);
    let request = body.request(model, deadline)?;
    let found = node.manager.policy_evaluation().evaluate(&request)?;
    Ok(Json(describe(request, &found)))
}
