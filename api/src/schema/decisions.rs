//! Decisions: what a ranking saw, drew and showed, and what came of it.

use celeris_model::{self as model, DecisionId, ItemId, ModelName, ObservationId, UserId};
use celeris_predictor::ReplayedSlot;
use serde::Serialize;
use utoipa::ToSchema;

use super::policies::RecordedPolicy;

/// What is recorded of the candidates.
#[derive(Debug, Serialize, ToSchema)]
pub struct Candidates {
    /// How many there were.
    pub count: u32,
    /// All of them in the order in which the policy saw them; null where they were not kept.
    #[schema(value_type = Option<Vec<String>>)]
    pub items: Option<Vec<ItemId>>,
    /// Where they were not kept: xxh3-128, in hexadecimal, of the xxh3-64 of each id, little-endian, in order.
    pub digest: Option<String>,
}

/// A slot as it was shown.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecisionSlot {
    #[schema(value_type = String)]
    pub item: ItemId,
    pub score: f32,
    pub std_error: f32,
    /// The probability of this item in this slot, given the slots above; null where not (yet) computed.
    pub propensity: Option<f32>,
    /// The standard error of an estimated propensity; null where it is exact.
    pub propensity_std_error: Option<f32>,
    /// Whether greedy would have shown it in none of the slots.
    pub explored: bool,
    /// The reward that has joined; null where none has.
    pub reward: Option<f32>,
}

/// An observation that names the decision.
#[derive(Debug, Serialize, ToSchema)]
pub struct Outcome {
    #[schema(value_type = String)]
    pub observation_id: ObservationId,
    #[schema(value_type = Option<String>)]
    pub item: Option<ItemId>,
    pub label: f32,
    /// In Unix milliseconds.
    pub timestamp: i64,
    /// What became of its reference to the decision.
    pub joined: Option<Joined>,
    /// The slot that it is the reward of, from 0.
    pub slot: Option<u32>,
    /// Whether the node gave it because no other had come in time.
    pub default: bool,
}

/// A slot of the ranking drawn again.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlotAgain {
    #[schema(value_type = String)]
    pub item: ItemId,
    pub score: f32,
    pub std_error: f32,
    /// Its place among all candidates by score, from 0.
    pub rank_by_score: u32,
    pub explored: bool,
    pub propensity: Option<f32>,
}

impl From<ReplayedSlot> for SlotAgain {
    fn from(slot: ReplayedSlot) -> Self {
        let ReplayedSlot { item, score, std_error, rank_by_score, explored, propensity } = slot;
        Self { item, score, std_error, rank_by_score, explored, propensity }
    }
}

/// The ranking drawn again from what the user had said by ack, with the recorded policy and seed.
#[derive(Debug, Serialize, ToSchema)]
pub struct Replay {
    /// Whether it is the same: the scores of all candidates, and what is shown, to the bit; null where it cannot be drawn
    /// again.
    pub same: Option<bool>,
    /// Why it cannot be drawn again, or why it may differ.
    pub why_not: Option<String>,
    /// Best first.
    pub slots: Vec<SlotAgain>,
}

/// Which arm a selection served.
#[derive(Debug, Serialize, ToSchema)]
pub struct SelectionOfArm {
    /// The model that answered; null where all arms answered together.
    #[schema(value_type = Option<String>)]
    pub arm: Option<ModelName>,
    /// The segment in which it was selected, where the selection has a state for each.
    #[schema(value_type = Option<String>)]
    pub segment: Option<ModelName>,
    /// The probability with which it was.
    pub propensity: f32,
}

/// A decision.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecisionReply {
    #[schema(value_type = String)]
    pub decision_id: DecisionId,
    #[schema(value_type = String)]
    pub model: ModelName,
    pub version: u64,
    #[schema(value_type = String)]
    pub user: UserId,
    /// How many of the user's events the scores reflect.
    pub user_epoch: u64,
    /// In Unix milliseconds.
    pub timestamp: i64,
    pub seed: u64,
    /// Whether the request chose the seed: the propensities are then no probabilities of what happened, and no estimate
    /// counts the decision.
    pub seed_given: bool,
    /// Null where the record holds a policy that this node does not know.
    pub policy: Option<RecordedPolicy>,
    /// The share of such rankings that are drawn uniformly; null where the request named its policy.
    pub pool_share: Option<f64>,
    /// Whether this one was.
    pub pool: bool,
    /// Of a selection model; else null.
    pub selection: Option<SelectionOfArm>,
    pub candidates: Candidates,
    pub slots: Vec<DecisionSlot>,
    /// Observations of the user that name the decision, in their order.
    pub outcomes: Vec<Outcome>,
    /// Null unless asked for.
    pub replay: Option<Replay>,
}

mirror_enum! {
    /// What became of an observation's reference to a decision.
    Joined = model::Joined {
        /// It is the reward of the slot that shows its item.
        Slot,
        /// That slot has a reward already.
        Repeated,
        /// The decision shows no such item.
        NotShown,
        /// The decision was made for another user.
        OtherUser,
        /// The decision is older than decisions are kept.
        Expired,
        /// No such decision is on record.
        Unknown,
    }
}
