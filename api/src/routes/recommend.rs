//! Rankings from the whole catalog.

use axum::extract::State;
use celeris_predictor::{Audience, Boost, Page, RecommendRequest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::ApiError;
use crate::extract::InModel;
use crate::routing::ForUser;
use crate::schema::audience::AudienceFields;
use crate::schema::consistency::Reading;
use crate::schema::context;
use crate::schema::rankings::{BoostBody, RecommendBody, RecommendReply};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(recommend))
}

/// Recommends items from the whole catalog by a policy, and records a decision.
#[utoipa::path(post, path = "/v1/models/{model}/recommend", tag = "serving", request_body = RecommendBody,
    params(InModel, Reading),
    responses((status = 200, body = RecommendReply)))]
pub async fn recommend(
    State(node): State<Node>,
    InModel(model): InModel,
    ForUser { body, stale_ms }: ForUser<RecommendBody>,
) -> Result<Answer<RecommendReply>, ApiError> {
    let page = body.page.as_deref().map(|token| {
        let broken = "page: not a valid token; pass `next` of a reply unchanged, or leave it out";
        Page::read(token).ok_or_else(|| ApiError::invalid(broken))
    });
    let request = RecommendRequest {
        model,
        audience: AudienceFields {
            user: body.user,
            history: body.history,
            attributes: body.attributes,
            users: body.users,
            aggregate: body.aggregate,
        }
        .try_into()?,
        k: body.k,
        filter: body.filter,
        exclude: body.exclude,
        exclude_seen: body.exclude_seen.0,
        boosts: body.boost.into_iter().map(|BoostBody { filter, add }| Boost { filter, add }).collect(),
        diversity: body.diversity,
        page: page.transpose()?,
        policy: body.policy,
        seed: body.seed,
        min_epoch: body.min_epoch,
        segment: body.segment,
        context: context::given(body.context),
    };
    let recommended = node.predictor.recommend(&request).await?;
    let user = if let Audience::User(user) = request.audience { Some(user) } else { None };
    let mut reply = RecommendReply::new(user, recommended);
    reply.ranking.stale_ms = stale_ms;
    Ok(Answer(reply))
}
