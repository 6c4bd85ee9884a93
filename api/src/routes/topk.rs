//! Rankings of given items.

use axum::extract::State;
use celeris_predictor::TopkRequest;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::ApiError;
use crate::extract::InModel;
use crate::routes::predict::check_count;
use crate::routing::ForUser;
use crate::schema::consistency::Reading;
use crate::schema::context;
use crate::schema::rankings::{TopkBody, TopkReply};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(topk))
}

/// Ranks given items for a user by a policy, and records a decision.
#[utoipa::path(post, path = "/v1/models/{model}/topk", tag = "serving", request_body = TopkBody,
    params(InModel, Reading),
    responses((status = 200, body = TopkReply)))]
pub async fn topk(
    State(node): State<Node>,
    InModel(model): InModel,
    ForUser { body, stale_ms }: ForUser<TopkBody>,
) -> Result<Answer<TopkReply>, ApiError> {
    check_count(&node, "items", body.items.len())?;
    if body.k == 0 {
        return Err(ApiError::field("k", "must be at least 1"));
    }
    let TopkBody { user, items, k, policy, seed, min_epoch, segment, context, consistency: _ } = body;
    let context = context::given(context);
    let request = TopkRequest { model, user, items, k, policy, seed, min_epoch, segment, selection: None, context };
    let ranking = node.predictor.topk(&request).await?;
    Ok(Answer(TopkReply { stale_ms, ..TopkReply::new(Some(request.user), ranking) }))
}
