//! Point predictions.

use celeris_model::{ItemId, Loss, ModelName, UserEpoch, UserId};
use celeris_predictor::Scored;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::selections::ArmWeight;

/// Which items to score for which user: `item` or `items`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictBody {
    #[schema(value_type = String)]
    pub user: UserId,
    /// One item.
    #[schema(value_type = Option<String>)]
    pub item: Option<ItemId>,
    /// Several items.
    #[schema(value_type = Option<Vec<String>>)]
    pub items: Option<Vec<ItemId>>,
    /// The answer must reflect at least that many of the user's events.
    #[schema(value_type = Option<u64>)]
    pub min_epoch: Option<UserEpoch>,
    /// Of a selection that has a state for each segment: the segment.
    #[schema(value_type = Option<String>)]
    pub segment: Option<ModelName>,
}

/// One score.
#[derive(Debug, Serialize, ToSchema)]
pub struct Score {
    #[schema(value_type = String)]
    pub item: ItemId,
    /// The expected label; of a model with logistic loss, its log-odds.
    pub score: f32,
    /// How unsure the score is.
    pub std_error: f32,
    /// How far a label may fall from what is expected.
    pub label_std: f32,
    /// Of a model with logistic loss: the probability of the label 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f32>,
    /// Whether anything is known of the item; else it is scored as an average one.
    pub known: bool,
    /// Of a selection that combines: the share of its arms that agree with the score.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// The scores, in the order asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct PredictReply {
    #[schema(value_type = String)]
    pub user: UserId,
    /// The version that scored; where several arms of a selection did, that of the one that weighs most.
    pub version: u64,
    pub user_epoch: u64,
    /// Whether nothing is known of the user, so that the prior answers.
    pub cold: bool,
    pub scores: Vec<Score>,
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
