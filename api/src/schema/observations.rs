//! Feedback.

use celeris_model::{DecisionId, ItemId, Observation, ObservationId, Timestamp, UserId};
use celeris_predictor::Observed;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audience::check_feedback;
use super::decisions::Joined;
use super::time::Time;
use crate::error::ApiError;
use crate::extract::timestamp;

/// One observation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserveBody {
    #[schema(value_type = String)]
    pub user: UserId,
    #[schema(value_type = String)]
    pub item: ItemId,
    /// The rating, reward or other outcome; finite.
    pub label: f32,
    /// How many times over it counts; 1 by default.
    pub weight: Option<f32>,
    /// The time of arrival by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    pub timestamp: Option<Timestamp>,
    /// Unique in the stream: a repeat with the same body is answered like the first, and learnt from once.
    #[schema(value_type = Option<String>)]
    pub observation_id: Option<ObservationId>,
    /// The ranking that this is the outcome of.
    #[schema(value_type = Option<String>)]
    pub decision_id: Option<DecisionId>,
    /// What kind of feedback it is, as you call it.
    pub feedback: Option<String>,
}

impl ObserveBody {
    /// # Errors
    /// 422 where the name of the kind of feedback is too long.
    pub fn observation(self) -> Result<Observation, ApiError> {
        check_feedback(self.feedback.as_deref())?;
        Ok(Observation {
            user: self.user,
            item: self.item,
            label: self.label,
            weight: self.weight.unwrap_or(1.0),
            timestamp: self.timestamp,
            observation_id: self.observation_id,
            feedback: self.feedback,
            decision: self.decision_id,
        })
    }
}

/// What became of an observation.
#[derive(Debug, Serialize, ToSchema)]
pub struct ObserveReply {
    /// The count of the user's events with this one; as `min_epoch`, it reads the user's own writes.
    pub user_epoch: u64,
    /// Its place in its partition of the log.
    pub sequence: u64,
    #[schema(value_type = String)]
    pub observation_id: ObservationId,
    /// Whether it was there already.
    pub duplicate: bool,
    /// What the model expected before it learnt.
    pub predicted: Option<f32>,
    /// Where it names a decision: what became of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
}

impl From<Observed> for ObserveReply {
    fn from(observed: Observed) -> Self {
        let Observed { user_epoch, sequence, observation_id, duplicate, predicted, joined } = observed;
        Self {
            user_epoch: user_epoch.0,
            sequence: sequence.0,
            observation_id,
            duplicate,
            predicted,
            joined: joined.map(Into::into),
        }
    }
}
