//! Observations.

use celeris_model::{Context, DecisionId, ItemId, Observation, ObservationId, Timestamp, UserId};
use celeris_predictor::Observed;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audience::check_feedback;
use super::context::{self, ContextFields};
use super::decisions::Joined;
use super::ids::{Id, IdOrInteger};
use super::time::Time;
use crate::error::ApiError;
use crate::line_replies::{LineCounts, LinesSummary, RejectedLine};
use crate::schema::time::timestamp;

/// One observation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserveBody {
    /// The user; an unknown one is created.
    #[schema(value_type = IdOrInteger)]
    pub user: UserId,
    /// The item that the user rated, clicked, played or bought.
    #[schema(value_type = IdOrInteger)]
    pub item: ItemId,
    /// The rating, reward or other outcome; from 0 to 1 under logistic loss, at least 0 under implicit
    /// loss.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    pub label: f32,
    /// The weight of the observation: how many observations it counts as; 1 by default.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000)]
    pub weight: Option<f32>,
    /// The time of the observation; the time of arrival by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    pub timestamp: Option<Timestamp>,
    /// An id unique in the stream. A repeated request with the same body gets the same reply and is
    /// learnt only once.
    #[schema(value_type = Option<IdOrInteger>)]
    pub observation_id: Option<ObservationId>,
    /// The decision whose outcome this is.
    #[schema(value_type = Option<IdOrInteger>)]
    pub decision_id: Option<DecisionId>,
    /// The kind of feedback, a name chosen by the client; at most 64 bytes.
    #[schema(max_length = 64)]
    pub feedback: Option<String>,
    /// The circumstances of the observation; those of its decision by default.
    #[schema(value_type = Option<ContextFields>)]
    pub context: Option<Context>,
}

impl ObserveBody {
    /// # Errors
    /// 422 if the name of the kind of feedback is too long.
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
            context: context::given(self.context),
        })
    }
}

/// The result of an observation.
#[derive(Debug, Serialize, ToSchema)]
pub struct ObserveReply {
    /// The user's epoch: the count of the user's events, including this one. Pass it as `min_epoch`
    /// to read your own writes.
    pub user_epoch: u64,
    /// The position of the observation in its partition of the log.
    pub sequence: u64,
    /// The id given by the client or made by the node, by which the observation is corrected or
    /// deleted.
    #[schema(value_type = Id)]
    pub observation_id: ObservationId,
    /// Whether the observation was already stored.
    pub duplicate: bool,
    /// The prediction of the model before it learnt the observation.
    pub predicted: Option<f32>,
    /// The label that was recorded, if the one sent was outside of the model's `label_range`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clipped: Option<f32>,
    /// The result of joining the observation to its decision; absent if it refers to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub joined: Option<Joined>,
}

/// A line of the reply to many observations: of an observation that was learnt, of a rejected line,
/// or the last one, of all.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ObservedLine {
    Learnt(ObserveReply),
    Rejected(RejectedLine),
    Summary(LinesSummary),
}

/// The reply to an array of observations.
#[derive(ToSchema)]
pub struct ObservedArray {
    /// One for each observation, in order.
    pub results: Vec<ObservedResult>,
    /// The counts of all.
    pub summary: LineCounts,
}

/// The result of one observation of an array.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ObservedResult {
    Learnt(ObserveReply),
    Rejected(RejectedLine),
}

impl From<Observed> for ObserveReply {
    fn from(observed: Observed) -> Self {
        let Observed { user_epoch, sequence, observation_id, duplicate, predicted, clipped, joined } = observed;
        Self {
            user_epoch: user_epoch.0,
            sequence: sequence.0,
            observation_id,
            duplicate,
            predicted,
            clipped,
            joined: joined.map(Into::into),
        }
    }
}
