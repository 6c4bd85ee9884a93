//! Rankings, of given items or of the whole catalog.

use std::fmt;
use std::time::Duration;

use celeris_bandits::PolicySpec;
use celeris_model::{DecisionId, ItemId, Loss, ModelName, UserEpoch, UserId};
use celeris_predictor::{Ranked, Ranking, SeenRule};
use celeris_retrieval::Filter;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::audience::{AggregateBody, PastBody};
use super::filters;
use super::policies::{Policy, PolicyOrName};
use super::selections::{Answered, ArmWeight};

/// What to rank, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopkBody {
    #[schema(value_type = String)]
    pub user: UserId,
    /// The candidates; a repeated one counts once.
    #[schema(value_type = Vec<String>)]
    pub items: Vec<ItemId>,
    /// How many slots to fill.
    #[schema(minimum = 1)]
    pub k: usize,
    /// The model's policy by default.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// Seeds the policy's random generator: equal seeds give equal rankings. What is drawn so is not random, and no estimate
    /// counts the decision; leave it out of traffic that is to be learnt from.
    pub seed: Option<u64>,
    /// The answer must reflect at least that many of the user's events.
    #[schema(value_type = Option<u64>)]
    pub min_epoch: Option<UserEpoch>,
    /// Of a selection that has a state for each segment: the segment.
    #[schema(value_type = Option<String>)]
    pub segment: Option<ModelName>,
}

/// One slot.
#[derive(Debug, Serialize, ToSchema)]
pub struct Slot {
    #[schema(value_type = String)]
    pub item: ItemId,
    pub score: f32,
    pub std_error: f32,
    pub label_std: f32,
    /// Of a model with logistic loss: the probability of the label 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f32>,
    /// The probability of this item in this slot, given the slots above; null where not computed.
    pub propensity: Option<f32>,
    pub known: bool,
    /// Of a selection that combines: the share of its arms that agree with the score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f32>,
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
    pub decision_id: DecisionId,
    /// Whether the decision's record was accepted for writing.
    pub logged: bool,
    /// Its user, where it is for one user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub user: Option<UserId>,
    pub version: u64,
    pub user_epoch: u64,
    /// Whether nothing is known of the user, so that the prior answers.
    pub cold: bool,
    pub policy: Policy,
    pub seed: u64,
    /// Whether the request chose the seed, so that no estimate counts the decision.
    pub seed_given: bool,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    pub items: Vec<Slot>,
    /// Of a selection that chooses: the model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub arm: Option<ModelName>,
    /// The probability with which it was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm_propensity: Option<f32>,
    /// Of a selection that combines: the models that answered together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arms: Option<Vec<ArmWeight>>,
}

impl TopkReply {
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
            policy: ranking.policy.into(),
            seed: ranking.seed,
            seed_given: ranking.seed_given,
            pool: ranking.pool,
            items,
            arm,
            arm_propensity,
            arms,
        }
    }
}

/// What to recommend, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecommendBody {
    /// The user; or else `history` or `users`.
    #[schema(value_type = Option<String>)]
    pub user: Option<UserId>,
    /// The past of a user without a name. Nothing of it is kept, and no decision recorded.
    #[schema(max_items = 1000)]
    pub history: Option<Vec<PastBody>>,
    /// Several users at once, ranked greedily. No decision is recorded.
    #[schema(value_type = Option<Vec<String>>, min_items = 2, max_items = 16)]
    pub users: Option<Vec<UserId>>,
    /// What several users make of their scores; `mean` by default.
    pub aggregate: Option<AggregateBody>,
    /// How many slots to fill.
    #[schema(minimum = 1, maximum = 1000)]
    pub k: usize,
    /// Only what this holds for.
    #[schema(value_type = Option<filters::Filter>)]
    pub filter: Option<Filter>,
    /// Not these.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 10_000)]
    pub exclude: Vec<ItemId>,
    /// Not what the user has been observed with; `true` by default.
    #[serde(default)]
    #[schema(value_type = SeenForm)]
    pub exclude_seen: SeenBody,
    /// What is ranked as if it scored more.
    #[serde(default)]
    #[schema(max_items = 4)]
    pub boost: Vec<BoostBody>,
    /// From 0, where scores alone decide, to 1, where slots are as unlike each other as can be. Ranks greedily.
    #[schema(minimum = 0, maximum = 1)]
    pub diversity: Option<f32>,
    /// `next` of the reply before: nothing of earlier pages comes again.
    pub page: Option<String>,
    /// The model's policy by default.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// Seeds whatever is drawn: equal seeds give equal rankings. As in `topk`, no estimate counts such a decision.
    pub seed: Option<u64>,
    /// The answer must reflect at least that many of the user's events.
    #[schema(value_type = Option<u64>)]
    pub min_epoch: Option<UserEpoch>,
    /// Of a selection that has a state for each segment: the segment.
    #[schema(value_type = Option<String>)]
    pub segment: Option<ModelName>,
}

/// A preference.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BoostBody {
    /// What is preferred.
    #[schema(value_type = filters::Filter)]
    pub filter: Filter,
    /// Added to its score where items are ranked; below zero to put it back.
    pub add: f32,
}

/// What of the past is not shown again.
#[derive(Debug)]
pub struct SeenBody(pub Option<SeenRule>);

/// All of the past (`true`), nothing of it (`false`), or some observations.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum SeenForm {
    All(bool),
    Some(SeenRuleBody),
}

impl Default for SeenBody {
    /// All of it.
    fn default() -> Self {
        Self(Some(SeenRule::default()))
    }
}

/// Which observations of the past count.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenRuleBody {
    /// How far back, as in `"30d"`: the last 30 days.
    #[serde(default, with = "humantime_serde")]
    #[schema(value_type = Option<String>, example = "30d")]
    window: Option<Duration>,
    /// Only feedback of these kinds.
    #[serde(default)]
    #[schema(max_items = 64)]
    feedback: Vec<String>,
}

impl<'de> Deserialize<'de> for SeenBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeenVisitor)
    }
}

/// Written by hand because a derived untagged enum answers every mistake with "did not match any variant".
pub struct SeenVisitor;

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
    pub ranking: TopkReply,
    /// Sent back as `page`, it asks for what comes next; null where nothing is left, or 1000 items have been shown.
    pub next: Option<String>,
}
