//! Point predictions.

use celeris_model::{Context, ItemId, Loss, ModelName, UserEpoch, UserId};
use celeris_predictor::Scored;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::consistency::Consistency;
use super::context::ContextFields;
use super::ids::{Id, IdOrInteger, Name, NameOrInteger};
use super::selections::ArmWeight;

/// The user and the items to score: either `item` or `items`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictBody {
    /// The user; an unknown one is scored from the prior.
    #[schema(value_type = IdOrInteger)]
    pub user: UserId,
    /// A single item. Exactly one of `item` and `items` is required.
    #[schema(value_type = Option<IdOrInteger>)]
    pub item: Option<ItemId>,
    /// Several items.
    #[schema(value_type = Option<Vec<IdOrInteger>>)]
    pub items: Option<Vec<ItemId>>,
    /// The reply must reflect at least this many of the user's events.
    #[schema(value_type = Option<u64>)]
    pub min_epoch: Option<UserEpoch>,
    /// The segment, for a selection that has a state for each segment.
    #[schema(value_type = Option<NameOrInteger>)]
    pub segment: Option<ModelName>,
    /// The circumstances of the request.
    #[schema(value_type = Option<ContextFields>)]
    pub context: Option<Context>,
    /// How current the answer of a cluster must be.
    #[serde(default)]
    pub consistency: Consistency,
}

/// The score of an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Score {
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
    /// Whether anything is known of the item; otherwise it is scored as an average item.
    pub known: bool,
    /// For a combining selection: the share of its arms that agree with the score.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub confidence: Option<f32>,
}

impl Score {
    pub fn new(scored: Scored, loss: Loss) -> Self {
        let Scored { item, estimate, known } = scored;
        Self {
            item,
            score: estimate.score,
            std_error: estimate.std_error,
            label_std: estimate.label_std,
            probability: loss.probability(&estimate),
            known,
            confidence: None,
        }
    }
}

/// The scores, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub struct PredictReply {
    #[schema(value_type = Id)]
    pub user: UserId,
    /// The version that scored; if several arms of a selection answered, that of the arm with the
    /// largest weight.
    pub version: u64,
    /// The user's epoch: the number of the user's events that the scores reflect.
    pub user_epoch: u64,
    /// Whether the user has no observations, so that the prior is used.
    pub cold: bool,
    pub scores: Vec<Score>,
    /// The computed parts of the features that no item had, since the context or the attributes lack what they read; the
    /// standard errors are wider. Absent if there are none.
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
