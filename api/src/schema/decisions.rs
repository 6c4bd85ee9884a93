//! Decision records: candidates, shown slots and outcomes of a ranking.

use celeris_model::{self as model, DecisionId, ItemId, ModelName, ObservationId, UserId};
use celeris_predictor::ReplayedSlot;
use serde::Serialize;
use utoipa::ToSchema;

use super::context::ContextFields;
use super::ids::{Id, Name};
use super::policies::{RecordedPolicy, RecordedPolicyFields};

/// The recorded candidates of a decision.
#[derive(Debug, Serialize, ToSchema)]
pub struct Candidates {
    /// Number of candidates.
    pub count: u32,
    /// All candidates, in the order in which the policy received them; null if they were not
    /// recorded.
    #[schema(value_type = Option<Vec<Id>>)]
    pub items: Option<Vec<ItemId>>,
    /// If the candidates were not recorded: xxh3-128, in hexadecimal, of the xxh3-64 of each id,
    /// little-endian, in order.
    pub digest: Option<String>,
}

/// A shown slot.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecisionSlot {
    #[schema(value_type = Id)]
    pub item: ItemId,
    /// The expected label; under logistic loss, its log-odds.
    pub score: f32,
    /// The standard error of the score.
    pub std_error: f32,
    /// The probability of this item in this slot, given the slots above; null if not (yet)
    /// computed.
    pub propensity: Option<f32>,
    /// The standard error of an estimated propensity; null if the propensity is exact.
    pub propensity_std_error: Option<f32>,
    /// Whether the greedy policy would have shown the item in none of the slots.
    pub explored: bool,
    /// The joined reward; null if there is none.
    pub reward: Option<f32>,
}

/// An observation that refers to the decision.
#[derive(Debug, Serialize, ToSchema)]
pub struct Outcome {
    #[schema(value_type = Id)]
    pub observation_id: ObservationId,
    #[schema(value_type = Option<Id>)]
    pub item: Option<ItemId>,
    /// The label, with corrections applied.
    pub label: f32,
    /// In Unix milliseconds.
    pub timestamp: i64,
    /// The result of joining it to the decision.
    pub joined: Option<Joined>,
    /// The slot whose reward it is, from 0.
    pub slot: Option<u32>,
    /// Whether it is a default reward, which the node gave because no reward had arrived in time.
    pub default: bool,
}

/// A slot of a replayed ranking.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlotAgain {
    #[schema(value_type = Id)]
    pub item: ItemId,
    /// The expected label; under logistic loss, its log-odds.
    pub score: f32,
    /// The standard error of the score.
    pub std_error: f32,
    /// Rank of the item among all candidates by score, from 0.
    pub rank_by_score: u32,
    /// Whether the greedy policy would have shown the item in none of the slots.
    pub explored: bool,
    /// The probability of this item in this slot, given the slots above; null if not computed.
    pub propensity: Option<f32>,
}

impl From<ReplayedSlot> for SlotAgain {
    fn from(slot: ReplayedSlot) -> Self {
        let ReplayedSlot { item, score, std_error, rank_by_score, explored, propensity } = slot;
        Self { item, score, std_error, rank_by_score, explored, propensity }
    }
}

/// A replay of the ranking: recomputed from the user's history at that time, with the recorded
/// policy and seed.
#[derive(Debug, Serialize, ToSchema)]
pub struct Replay {
    /// Whether the replay is bitwise identical: the scores of all candidates and the shown slots.
    /// Null if the ranking cannot be replayed.
    pub same: Option<bool>,
    /// Why the ranking cannot be replayed, or why the replay may differ.
    pub why_not: Option<String>,
    /// The slots, best first.
    pub slots: Vec<SlotAgain>,
}

/// The arm that answered for a selection.
#[derive(Debug, Serialize, ToSchema)]
pub struct SelectionOfArm {
    /// The model that answered; null if all arms answered together.
    #[schema(value_type = Option<Name>)]
    pub arm: Option<ModelName>,
    /// The segment in which it was selected, if the selection has a state for each segment.
    #[schema(value_type = Option<Name>)]
    pub segment: Option<ModelName>,
    /// The probability with which it was selected.
    pub propensity: f32,
}

/// A decision.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecisionReply {
    #[schema(value_type = Id)]
    pub decision_id: DecisionId,
    #[schema(value_type = Name)]
    pub model: ModelName,
    /// The version that scored.
    pub version: u64,
    #[schema(value_type = Id)]
    pub user: UserId,
    /// The user's epoch: the number of the user's events that the scores reflect.
    pub user_epoch: u64,
    /// In Unix milliseconds.
    pub timestamp: i64,
    /// The seed of the policy's random generator.
    pub seed: u64,
    /// Whether the request set the seed. Its propensities are then not probabilities of a random
    /// draw, and estimates exclude the decision.
    pub seed_given: bool,
    /// The policy; null if the record contains a policy that this node does not know.
    #[schema(value_type = Option<RecordedPolicyFields>)]
    pub policy: Option<RecordedPolicy>,
    /// The share of rankings drawn uniformly for the validation pool; null if the request named its
    /// policy.
    pub pool_share: Option<f64>,
    /// Whether this ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// The selected arm, if the model is a selection; otherwise null.
    pub selection: Option<SelectionOfArm>,
    /// The circumstances of the request; null if it gave none.
    #[schema(value_type = Option<ContextFields>)]
    pub context: Option<Box<model::Context>>,
    pub candidates: Candidates,
    /// The shown slots, best first.
    pub slots: Vec<DecisionSlot>,
    /// Observations of the user that refer to the decision, in log order.
    pub outcomes: Vec<Outcome>,
    /// The replay; null unless requested.
    pub replay: Option<Replay>,
}

mirror_enum! {
    /// The result of joining an observation to a decision.
    Joined = model::Joined {
        /// The observation is the reward of the slot that shows its item.
        Slot,
        /// The slot already has a reward.
        Repeated,
        /// The decision does not show the item.
        NotShown,
        /// The decision was made for another user.
        OtherUser,
        /// The decision is older than the retention of decisions.
        Expired,
        /// There is no record of the decision.
        Unknown,
    }
}

/// A decision of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct ListedDecision {
    /// The id of the decision, for `GET …/decisions/{decision_id}`.
    #[schema(value_type = Id)]
    pub decision_id: DecisionId,
    /// In Unix milliseconds.
    pub timestamp: i64,
    #[schema(value_type = Id)]
    pub user: UserId,
    /// The version that scored.
    pub version: u64,
    /// Whether the ranking was drawn uniformly for the validation pool.
    pub pool: bool,
    /// Number of candidates.
    pub candidates: u32,
    /// The shown items, best first.
    #[schema(value_type = Vec<Id>)]
    pub items: Vec<ItemId>,
}

/// A page of decisions, the latest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DecisionPage)]
pub struct Decisions {
    pub decisions: Vec<ListedDecision>,
    /// The value of `before` for the next page; null on the last page.
    #[schema(value_type = Option<Id>)]
    pub next: Option<DecisionId>,
}

impl From<model::Decision> for ListedDecision {
    fn from(decision: model::Decision) -> Self {
        Self {
            decision_id: decision.id,
            timestamp: decision.timestamp.0,
            user: decision.user,
            version: decision.version.0,
            pool: decision.pool,
            candidates: decision.candidates.count(),
            items: decision.shown.into_iter().map(|slot| slot.item).collect(),
        }
    }
}
