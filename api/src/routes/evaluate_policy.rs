//! What a policy would have earned on a model's own decisions.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel};
use crate::schema::policy_evaluation::{EvaluateBody, EvaluateReply, describe};
use crate::state::Node;

/// The share of the time of a request that goes into reading decisions; the rest is for the estimates.
const READING_SHARE: f64 = 0.5;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(evaluate_policy))
}

/// Estimates what a policy would have earned a ranking, had it ranked in the place of those that did: by replay, IPS,
/// SNIPS, the direct method, DR, SNDR and SWITCH-DR, over the model's decisions and the rewards that have joined them.
/// An estimate that the decisions do not support is refused with the reason. One evaluation at a time; it takes half of
/// the node's time for a request at most, and says how many decisions it did not reach.
#[utoipa::path(post, path = "/v1/models/{model}/evaluate-policy", tag = "quality", request_body = EvaluateBody,
    params(("model" = String, Path)),
    responses((status = 200, body = EvaluateReply), (status = 404, body = Problem), (status = 422, body = Problem),
        (status = 503, body = Problem)))]
async fn evaluate_policy(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<EvaluateBody>,
) -> Result<Json<EvaluateReply>, ApiError> {
    let deadline = Instant::now() + node.limits.request_timeout.mul_f64(READING_SHARE);
    let request = body.request(model, deadline)?;
    let found = tokio::task::block_in_place(|| node.manager.judge_policy(&request))?;
    Ok(Json(describe(request, &found)))
}
