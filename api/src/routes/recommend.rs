//! Rankings from the whole catalogue.

use std::fmt;
use std::time::Duration;

use axum::extract::State;
use celeris_bandits::PolicySpec;
use celeris_model::{ItemId, ModelName, UserEpoch, UserId};
use celeris_predictor::{Asker, Boost, Page, RecommendRequest, SeenRule};
use celeris_retrieval::Filter;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel};
use crate::routes::asker::{AggregateBody, AskerFields, PastBody};
use crate::routes::topk::TopkReply;
use crate::state::Node;

/// What to recommend, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecommendBody {
    /// The user; or else `history` or `users`.
    #[schema(value_type = Option<String>)]
    user: Option<UserId>,
    /// The past of somebody without a name, at most 1,000 observations. Nothing of it is kept, and no decision recorded.
    history: Option<Vec<PastBody>>,
    /// Several users at once, from 2 to 16, ranked greedily. No decision is recorded.
    #[schema(value_type = Option<Vec<String>>)]
    users: Option<Vec<UserId>>,
    /// What several users make of their scores: their `mean`, which is the default, or `least_misery`, the least.
    aggregate: Option<AggregateBody>,
    /// How many slots to fill, from 1 to 1000.
    k: usize,
    /// Only what this holds for: `all`, `any`, `not`, `eq`, `in`, `range`, `exists` over attributes.
    #[schema(value_type = Option<Object>)]
    filter: Option<Filter>,
    /// Not these; at most 10,000.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    exclude: Vec<ItemId>,
    /// Not what the user has been observed with: `true`, which is the default, `false`, or an object that counts some
    /// observations only: `window` (`"30d"`: the last 30 days) and `feedback` (a list of at most 64 kinds).
    #[serde(default)]
    #[schema(value_type = Object)]
    exclude_seen: SeenBody,
    /// What is ranked as if it scored more; at most 4.
    #[serde(default)]
    boost: Vec<BoostBody>,
    /// From 0, where scores alone decide, to 1, where slots are as unlike each other as can be. Ranks greedily.
    diversity: Option<f32>,
    /// `next` of the reply before: nothing of earlier pages comes again.
    page: Option<String>,
    /// A policy's name, or an object of name and parameters; the model's default where missing.
    #[schema(value_type = Option<Object>)]
    policy: Option<PolicySpec>,
    /// Seeds whatever is drawn: equal seeds give equal rankings. As in `topk`, no estimate counts such a decision.
    seed: Option<u64>,
    /// The answer must reflect at least that many of the user's events.
    #[schema(value_type = Option<u64>)]
    min_epoch: Option<UserEpoch>,
    /// Of a selection that has a state for each context: the context.
    #[schema(value_type = Option<String>)]
    context: Option<ModelName>,
}

/// A preference.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoostBody {
    /// What is preferred.
    #[schema(value_type = Object)]
    filter: Filter,
    /// Added to its score where items are ranked; below zero to put it back.
    add: f32,
}

/// What of the past is not shown again.
#[derive(Debug)]
struct SeenBody(Option<SeenRule>);

impl Default for SeenBody {
    /// All of it.
    fn default() -> Self {
        Self(Some(SeenRule::default()))
    }
}

/// The object form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenRuleBody {
    #[serde(default, with = "humantime_serde")]
    window: Option<Duration>,
    #[serde(default)]
    feedback: Vec<String>,
}

impl<'de> Deserialize<'de> for SeenBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeenVisitor)
    }
}

/// Written by hand because a derived untagged enum answers every mistake with "did not match any variant".
struct SeenVisitor;

impl<'de> Visitor<'de> for SeenVisitor {
    type Value = SeenBody;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("true, false, or an object of `window` and `feedback`")
    }

    fn visit_bool<E>(self, excluded: bool) -> Result<SeenBody, E> {
        Ok(if excluded { SeenBody::default() } else { SeenBody(None) })
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<SeenBody, M::Error> {
        let SeenRuleBody { window, feedback } = SeenRuleBody::deserialize(MapAccessDeserializer::new(map))?;
        Ok(SeenBody(Some(SeenRule { window, feedback })))
    }
}

/// A ranking, best first, and how to go on.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendReply {
    #[serde(flatten)]
    ranking: TopkReply,
    /// Sent back as `page`, it asks for what comes next; null where nothing is left, or 1000 items have been shown.
    next: Option<String>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(recommend))
}

/// Recommends from the whole catalogue by a policy, and leaves a decision record.
#[utoipa::path(post, path = "/v1/models/{model}/recommend", tag = "serving", request_body = RecommendBody,
    params(("model" = String, Path)),
    responses((status = 200, body = RecommendReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn recommend(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<RecommendBody>,
) -> Result<Answer<RecommendReply>, ApiError> {
    let page = body.page.as_deref().map(|token| {
        let broken = "page: no token of ours, or a broken one; send `next` of a reply as it came, or nothing";
        Page::read(token).ok_or_else(|| ApiError::invalid(broken))
    });
    let request = RecommendRequest {
        model,
        asker: AskerFields { user: body.user, history: body.history, users: body.users, aggregate: body.aggregate }
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
    };
    let recommended = node.predictor.recommend_in(&request, body.context.as_ref()).await?;
    let user = if let Asker::User(user) = request.asker { Some(user) } else { None };
    let ranking = TopkReply::new(user, recommended.ranking);
    Ok(Answer(RecommendReply { ranking, next: recommended.next.map(|page| page.token()) }))
}
