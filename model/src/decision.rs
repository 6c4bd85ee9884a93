//! The record that every ranking leaves, so that it can be explained and learnt from.

use serde::{Deserialize, Serialize};

use crate::ids::{DecisionId, ItemId, ModelName, UserEpoch, UserId, VersionId};
use crate::observation::Timestamp;

/// One shown slot of a ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownSlot {
    /// What was shown there.
    pub item: ItemId,
    /// Its score at that moment.
    pub score: f32,
    /// The uncertainty of that score.
    pub std_error: f32,
    /// The probability of this item in this slot, given the slots above it; `None` where not yet computed.
    pub propensity: Option<f32>,
}

/// A ranking as it was drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Its id.
    pub id: DecisionId,
    /// The model that ranked.
    pub model: ModelName,
    /// The version that scored.
    pub version: VersionId,
    /// For whom.
    pub user: UserId,
    /// How many of the user's events the scores reflect.
    pub user_epoch: UserEpoch,
    /// When.
    pub timestamp: Timestamp,
    /// The seed of the policy's random generator.
    pub seed: u64,
    /// The policy with its parameters, as JSON.
    pub policy: String,
    /// The share of such rankings that are drawn uniformly for the validation pool; `None` where the request named its
    /// policy, which then drew alone. With the seed, this draws the ranking again.
    pub pool_share: Option<f64>,
    /// Whether this one was drawn for the pool.
    pub pool: bool,
    /// The slots in the order shown, best first.
    pub shown: Vec<ShownSlot>,
    /// How many candidates the policy chose from.
    pub candidates: u32,
}
