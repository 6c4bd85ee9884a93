//! Rankings of given items.

use axum::extract::State;
use celeris_bandits::PolicySpec;
use celeris_model::{DecisionId, ItemId, Loss, ModelName, UserEpoch, UserId};
use celeris_predictor::{Ranked, Ranking, TopkRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel};
use crate::routes::predict::check_count;
use crate::routes::selections::{Answered, ArmWeight};
use crate::state::Node;

/// What to rank, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopkBody {
    #[schema(value_type = String)]
    user: UserId,
    /// The candidates; a repeated one counts once.
    #[schema(value_type = Vec<String>)]
    items: Vec<ItemId>,
    /// How many slots to fill, at least 1.
    k: usize,
    /// A policy's name (`greedy`, `epsilon_greedy`, `softmax`, `squarecb`, `lin_ucb`, `regcb`, `thompson`), or an object of
    /// name and parameters; the model's default where missing.
    #[schema(value_type = Option<Object>)]
    policy: Option<PolicySpec>,
    /// Seeds the policy's random generator: equal seeds give equal rankings. What is drawn so is not random, and no estimate
    /// counts the decision; leave it out of traffic that is to be learnt from.
    seed: Option<u64>,
    /// The answer must reflect at least that many of the user's events.
    #[schema(value_type = Option<u64>)]
    min_epoch: Option<UserEpoch>,
    /// Of a selection that has a state for each context: the context.
    #[schema(value_type = Option<String>)]
    context: Option<ModelName>,
}

/// One slot.
#[derive(Debug, Serialize, ToSchema)]
pub struct Slot {
    #[schema(value_type = String)]
    item: ItemId,
    score: f32,
    std_error: f32,
    label_std: f32,
    /// Of a model with logistic loss: the probability of the label 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f32>,
    /// The probability of this item in this slot, given the slots above; null where not computed.
    propensity: Option<f32>,
    known: bool,
    /// Of a selection that combines: the share of its arms that agree with the score.
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<f32>,
}

impl Slot {
    fn new(ranked: Ranked, loss: Loss) -> Self {
        let Ranked { scored, propensity } = ranked;
        Self {
            item: scored.item,
            score: scored.estimate.score,
            std_error: scored.estimate.std_error,
            label_std: scored.estimate.label_std,
            probability: loss.probability(&scored.estimate),
            propensity,
            known: scored.known,
            confidence: None,
        }
    }
}

/// A ranking, best first.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopkReply {
    /// What later observations refer to.
    #[schema(value_type = String)]
    decision_id: DecisionId,
    /// Whether the decision's record was accepted for writing.
    logged: bool,
    /// Whom it is for, where that is one user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    user: Option<UserId>,
    version: u64,
    user_epoch: u64,
    /// Whether nothing is known of the user, so that the prior answers.
    cold: bool,
    #[schema(value_type = Object)]
    policy: PolicySpec,
    seed: u64,
    /// Whether the request chose the seed, so that no estimate counts the decision.
    seed_given: bool,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pool: bool,
    items: Vec<Slot>,
    /// Of a selection that chooses: the model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    arm: Option<ModelName>,
    /// The probability with which it was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    arm_propensity: Option<f32>,
    /// Of a selection that combines: the models that answered together.
    #[serde(skip_serializing_if = "Option::is_none")]
    arms: Option<Vec<ArmWeight>>,
}

impl TopkReply {
    /// The ranking as clients are told of it.
    pub fn new(user: Option<UserId>, ranking: Ranking) -> Self {
        let Answered { arm, arm_propensity, arms, confidence } = ranking.selected.into();
        let mut items: Vec<Slot> = ranking.items.into_iter().map(|slot| Slot::new(slot, ranking.loss)).collect();
        for (slot, confidence) in items.iter_mut().zip(confidence) {
            slot.confidence = Some(confidence);
        }
        Self {
            decision_id: ranking.decision_id,
            logged: ranking.logged,
            user,
            version: ranking.version.0,
            user_epoch: ranking.user_epoch.0,
            cold: ranking.cold,
            policy: ranking.policy,
            seed: ranking.seed,
            seed_given: ranking.seed_given,
            pool: ranking.pool,
            items,
            arm,
            arm_propensity,
            arms,
        }
    }

    /// An answer of the right shape, without any work: what the benches hold a node against.
    pub fn example(body: TopkBody) -> Self {
        let slot = |item| Slot {
            item,
            score: 3.870_592_7,
            std_error: 0.271_828_2,
            label_std: 0.757_872_1,
            probability: None,
            propensity: Some(1.0),
            known: true,
            confidence: None,
        };
        Self {
            decision_id: DecisionId::new("01930b1c-6d4e-7c50-9d1a-0123456789ab").expect("a valid id"),
            logged: true,
            user: Some(body.user),
            version: 2,
            user_epoch: 20,
            cold: false,
            policy: body.policy.unwrap_or_default(),
            seed: body.seed.unwrap_or(1),
            seed_given: body.seed.is_some(),
            pool: false,
            items: body.items.into_iter().take(body.k).map(slot).collect(),
            arm: None,
            arm_propensity: None,
            arms: None,
        }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(topk))
}

/// Ranks items for a user by a policy, and leaves a decision record.
#[utoipa::path(post, path = "/v1/models/{model}/topk", tag = "serving", request_body = TopkBody,
    params(("model" = String, Path)),
    responses((status = 200, body = TopkReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn topk(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<TopkBody>,
) -> Result<Answer<TopkReply>, ApiError> {
    check_count(&node, "items", body.items.len())?;
    if body.k == 0 {
        return Err(ApiError::invalid("k: must be at least 1"));
    }
    let TopkBody { user, items, k, policy, seed, min_epoch, context } = body;
    let request = TopkRequest { model, user, items, k, policy, seed, min_epoch, selection: None };
    let ranking = node.predictor.topk_in(&request, context.as_ref()).await?;
    Ok(Answer(TopkReply::new(Some(request.user), ranking)))
}
