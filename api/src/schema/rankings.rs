//! Rankings of given items or of the whole catalog.

use std::fmt;
use std::time::Duration;

use celeris_bandits::PolicySpec;
use celeris_model::{Context, DecisionId, ItemId, Loss, ModelName, UserEpoch, UserId};
use celeris_predictor::{self as predictor, Ranked, Ranking, Recommendation, SeenRule};
use celeris_retrieval::{Filter, catalog};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::audience::{AggregateBody, PastBody};
use super::consistency::Consistency;
use super::context::ContextFields;
use super::filters;
use super::ids::{Id, IdOrInteger, Name, NameOrInteger};
use super::policies::{Policy, PolicyOrName};
use super::selections::{Answered, ArmWeight};

/// The items to rank, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopkBody {
    /// The user; an unknown one is ranked for by the prior.
    #[schema(value_type = IdOrInteger)]
    pub user: UserId,
    /// The candidates; repeated items count once.
    #[schema(value_type = Vec<IdOrInteger>)]
    pub items: Vec<ItemId>,
    /// Number of slots to fill.
    #[schema(minimum = 1)]
    pub k: usize,
    /// The policy; the model's policy by default.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// The seed of the policy's random generator: equal seeds give equal rankings. Seeded rankings
    /// are not random, and estimates exclude them, so do not set it for traffic that should be used
    /// for evaluation.
    #[schema(format = "uint64")]
    pub seed: Option<u64>,
    /// The reply must reflect at least this many of the user's events.
    #[schema(value_type = Option<u64>)]
    pub min_epoch: Option<UserEpoch>,
    /// The segment, for a selection that has a state for each segment.
    #[schema(value_type = Option<NameOrInteger>)]
    pub segment: Option<ModelName>,
    /// The circumstances of the request, which are recorded with the decision and inherited by the observations that
    /// name it.
    #[schema(value_type = Option<ContextFields>)]
    pub context: Option<Context>,
    /// How current the answer of a cluster must be.
    #[serde(default)]
    pub consistency: Consistency,
}

/// A slot of a ranking.
#[derive(Debug, Serialize, ToSchema)]
pub struct Slot {
    #[schema(value_type = Id)]
    pub item: ItemId,
    /// The expected label; under logistic loss, its log-odds.
    pub score: f32,
    /// The standard error of the score.
    pub std_error: f32,
    /// The standard deviation of the label around its prediction.
    pub label_std: f32,
    /// Under logistic loss: the probability of the label 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub probability: Option<f32>,
    /// The probability of this item in this slot, given the slots above; null if not computed.
    pub propensity: Option<f32>,
    /// Whether anything is known of the item; otherwise it is scored as an average item.
    pub known: bool,
    /// For a combining selection: the share of its arms that agree with the score.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub confidence: Option<f32>,
}

objects!(BoostBody);

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
    /// The id of the decision, to which observations can refer.
    #[schema(value_type = Id)]
    pub decision_id: DecisionId,
    /// Whether the decision record was accepted for writing.
    pub logged: bool,
    /// The user, if the ranking is for a single user.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Id>)]
    pub user: Option<UserId>,
    /// The version that scored; if several arms of a selection answered, that of the arm with the
    /// largest weight.
    pub version: u64,
    /// The user's epoch: the number of the user's events that the scores reflect.
    pub user_epoch: u64,
    /// Whether the user has no observations, so that the prior is used.
    pub cold: bool,
    /// The policy that ranked, with all of its parameters.
    pub policy: Policy,
    /// The seed of the policy's random generator.
    pub seed: u64,
    /// Whether the request set the seed; estimates exclude such decisions.
    pub seed_given: bool,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// The slots, best first.
    pub items: Vec<Slot>,
    /// The computed parts of the features that no candidate had, since the context or the attributes lack what they read;
    /// the standard errors are wider. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// For a choosing selection: the model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Name>)]
    pub arm: Option<ModelName>,
    /// The probability with which that model was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub arm_propensity: Option<f32>,
    /// For a combining selection: the models that answered together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub arms: Option<Vec<ArmWeight>>,
    /// In a cluster: how many milliseconds the answer may be behind the log; absent if it is not
    /// known to be behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub stale_ms: Option<u64>,
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
            missing: ranking.missing,
            arm,
            arm_propensity,
            arms,
            stale_ms: None,
        }
    }
}

/// The audience of a recommendation, and how to choose items.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecommendBody {
    /// The user. Exactly one of `user`, `history` and `users` is required.
    #[schema(value_type = Option<IdOrInteger>)]
    pub user: Option<UserId>,
    /// The history of an anonymous user. It is not stored, and no decision is recorded.
    #[schema(max_items = 1000)]
    pub history: Option<Vec<PastBody>>,
    /// Attributes of the anonymous user, as those of a user; only with `history`. They are not stored.
    pub attributes: Option<Map<String, Value>>,
    /// A group of users, ranked greedily. No decision is recorded.
    #[schema(value_type = Option<Vec<IdOrInteger>>, min_items = 2, max_items = 16)]
    pub users: Option<Vec<UserId>>,
    /// How the scores of `users` are aggregated; `mean` by default.
    pub aggregate: Option<AggregateBody>,
    /// Number of slots to fill.
    #[schema(minimum = 1, maximum = 1000)]
    pub k: usize,
    /// Only items that match the filter.
    #[schema(value_type = Option<filters::Filter>)]
    pub filter: Option<Filter>,
    /// Items to exclude.
    #[serde(default)]
    #[schema(value_type = Vec<IdOrInteger>, max_items = 10_000)]
    pub exclude: Vec<ItemId>,
    /// Excludes items that the user has observations of; `true` by default.
    #[serde(default)]
    #[schema(value_type = SeenForm)]
    pub exclude_seen: SeenBody,
    /// Items that are ranked with a modified score.
    #[serde(default)]
    #[schema(max_items = 4)]
    pub boost: Vec<BoostBody>,
    /// From 0, where only scores count, to 1, where slots differ as much as possible. Ranks
    /// greedily.
    #[schema(minimum = 0, maximum = 1)]
    pub diversity: Option<f32>,
    /// The `next` token of the previous reply: items of earlier pages are not repeated.
    pub page: Option<String>,
    /// The policy; the model's policy by default.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// The seed of all random draws: equal seeds give equal rankings. As in `topk`, estimates
    /// exclude such decisions.
    #[schema(format = "uint64")]
    pub seed: Option<u64>,
    /// The reply must reflect at least this many of the user's events.
    #[schema(value_type = Option<u64>)]
    pub min_epoch: Option<UserEpoch>,
    /// The segment, for a selection that has a state for each segment.
    #[schema(value_type = Option<NameOrInteger>)]
    pub segment: Option<ModelName>,
    /// The circumstances of the request, which are recorded with the decision and inherited by the observations that
    /// name it.
    #[schema(value_type = Option<ContextFields>)]
    pub context: Option<Context>,
    /// How current the answer of a cluster must be.
    #[serde(default)]
    pub consistency: Consistency,
}

/// A boost of items.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct BoostBody {
    /// The boosted items.
    #[schema(value_type = filters::Filter)]
    pub filter: Filter,
    /// Added to the score when items are ranked; negative values demote.
    pub add: f32,
}

/// The observations whose items are excluded.
#[derive(Debug)]
pub struct SeenBody(pub Option<SeenRule>);

/// All observations (`true`), none (`false`), or those that match a rule.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum SeenForm {
    All(bool),
    Some(SeenRuleBody),
}

impl Default for SeenBody {
    /// All observations.
    fn default() -> Self {
        Self(Some(SeenRule::default()))
    }
}

/// A rule for the observations whose items are excluded.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SeenRuleBody {
    /// Only observations within this time, for example `"30d"`: the last 30 days.
    #[serde(default, with = "humantime_serde")]
    #[schema(value_type = Option<String>, example = "30d")]
    window: Option<Duration>,
    /// Only observations with these kinds of feedback; all kinds by default.
    #[serde(default)]
    #[schema(max_items = 64)]
    feedback: Vec<String>,
}

impl<'de> Deserialize<'de> for SeenBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SeenVisitor)
    }
}

/// Hand-written, because a derived untagged enum reports every error as "did not match any
/// variant".
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

/// A ranking, best first, and the token of the next page.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendReply {
    #[serde(flatten)]
    pub ranking: TopkReply,
    /// The value of `page` for the next page; null if no items are left or 1000 items have been
    /// shown.
    pub next: Option<String>,
    /// Why `items` is empty; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<EmptyReason>,
    /// The reason as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<String>,
    /// Attributes that the filter or a boost names and no item has, usually by a slip; absent if
    /// there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_attributes: Vec<UnknownAttribute>,
}

mirror_enum! {
    /// Why a recommendation is empty: the first reason that applies.
    EmptyReason = predictor::EmptyReason {
        /// The catalog has no items: none was observed, described or trained on.
        NoItems,
        /// No item matches the filter, which names an attribute that no item has; see
        /// `unknown_attributes`.
        FilterNamesUnknownAttribute,
        /// No item matches the filter.
        FilterMatchesNothing,
        /// The matching items are not available now (`available_from`, `available_until`).
        NoneAvailable,
        /// The request excludes all matching items by `exclude`, or they were on earlier pages.
        AllExcluded,
        /// The user has observations of all items that may be shown.
        AllSeen,
        /// The active version cannot score the items that may be shown: only another model was
        /// trained on them.
        Untrained,
    }
}

/// An attribute that no item has.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnknownAttribute {
    pub name: String,
    /// Attributes with similar names, the most similar first.
    #[schema(max_items = 3)]
    pub nearest: Vec<String>,
}

impl RecommendReply {
    pub fn new(user: Option<UserId>, recommended: Recommendation) -> Self {
        let Recommendation { ranking, next, empty, unknown_attributes } = recommended;
        let unknown = |unknown: catalog::UnknownAttribute| {
            let catalog::UnknownAttribute { name, nearest } = unknown;
            UnknownAttribute { name, nearest }
        };
        let unknown_attributes: Vec<UnknownAttribute> = unknown_attributes.into_iter().map(unknown).collect();
        Self {
            ranking: TopkReply::new(user, ranking),
            next: next.map(|page| page.token()),
            reason: empty.map(Into::into),
            reason_detail: empty.map(|empty| detail(empty, &unknown_attributes)),
            unknown_attributes,
        }
    }
}

/// The reason as a sentence, with the remedy.
fn detail(empty: predictor::EmptyReason, unknown: &[UnknownAttribute]) -> String {
    use predictor::EmptyReason as Reason;
    let sentence = match empty {
        Reason::NoItems => "the catalog has no items; send observations, or describe items with PUT …/items/{item}",
        Reason::FilterNamesUnknownAttribute => {
            let each = |UnknownAttribute { name, nearest }: &UnknownAttribute| match nearest.as_slice() {
                [] => format!("no item has the attribute {name:?}"),
                nearest => format!("no item has the attribute {name:?}; the nearest names are {}", nearest.join(", ")),
            };
            let each: Vec<String> = unknown.iter().map(each).collect();
            return format!("{}; GET …/attributes lists what can be filtered by", each.join("; "));
        }
        Reason::FilterMatchesNothing => {
            "no item matches the filter; GET …/attributes lists attributes with their most frequent values"
        }
        Reason::NoneAvailable => "the matching items are not available now, by available_from and available_until",
        Reason::AllExcluded => "the request excludes all matching items by `exclude`, or they were on earlier pages",
        Reason::AllSeen => "the user has observations of all items that may be shown; see `exclude_seen`",
        Reason::Untrained => {
            "the model's active version cannot score these items, which only another model was trained on; retrain it"
        }
    };
    sentence.to_owned()
}
