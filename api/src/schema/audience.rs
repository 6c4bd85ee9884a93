//! The audience of a ranking: a user, an anonymous user whose history is part of the request, or a
//! group of users.

use celeris_model::{Context, ItemId, Timestamp, UserId};
use celeris_predictor::{Aggregate, Audience, PastItem};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::context::ContextFields;
use super::ids::IdOrInteger;
use super::time::Time;
use crate::error::ApiError;
use crate::schema::time::timestamp;

/// One observation of an anonymous user's history.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct PastBody {
    /// The observed item.
    #[schema(value_type = IdOrInteger)]
    item: ItemId,
    /// The rating, reward or other outcome.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    label: f32,
    /// The weight of the observation; 1 by default.
    #[schema(exclusive_minimum = 0, maximum = 1_000_000)]
    weight: Option<f32>,
    /// The time of the observation; now by default.
    #[serde(default, deserialize_with = "timestamp")]
    #[schema(value_type = Option<Time>)]
    timestamp: Option<Timestamp>,
    /// The kind of feedback, a name chosen by the client; at most 64 bytes.
    #[schema(max_length = 64)]
    feedback: Option<String>,
    /// The circumstances of the observation.
    #[schema(value_type = Option<ContextFields>)]
    context: Option<Context>,
}

objects!(PastBody);

impl TryFrom<PastBody> for PastItem {
    type Error = ApiError;

    fn try_from(body: PastBody) -> Result<Self, ApiError> {
        let PastBody { item, label, weight, timestamp, feedback, context } = body;
        check_feedback(feedback.as_deref())?;
        Ok(Self { item, label, weight: weight.unwrap_or(1.0), timestamp, feedback, context })
    }
}

/// Maximum bytes of the name of a kind of feedback.
const FEEDBACK_BYTES_MAX: usize = 64;

/// Checks the length of the name of a kind of feedback.
///
/// # Errors
/// 422 if it is too long.
pub fn check_feedback(feedback: Option<&str>) -> Result<(), ApiError> {
    if feedback.is_some_and(|feedback| feedback.len() > FEEDBACK_BYTES_MAX) {
        return Err(ApiError::field("feedback", format!("at most {FEEDBACK_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// How the scores of a group's members are aggregated.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AggregateBody {
    /// The mean of the scores.
    Mean,
    /// The lowest score.
    LeastMisery,
}

impl From<AggregateBody> for Aggregate {
    fn from(body: AggregateBody) -> Self {
        match body {
            AggregateBody::Mean => Self::Mean,
            AggregateBody::LeastMisery => Self::LeastMisery,
        }
    }
}

/// The fields of a request that specify its audience.
pub struct AudienceFields {
    pub user: Option<UserId>,
    pub history: Option<Vec<PastBody>>,
    pub attributes: Option<Map<String, Value>>,
    pub users: Option<Vec<UserId>>,
    pub aggregate: Option<AggregateBody>,
}

impl TryFrom<AudienceFields> for Audience {
    type Error = ApiError;

    fn try_from(fields: AudienceFields) -> Result<Self, ApiError> {
        let AudienceFields { user, history, attributes, users, aggregate } = fields;
        if aggregate.is_some() && users.is_none() {
            return Err(ApiError::field("aggregate", "only valid with `users`; leave it out"));
        }
        if attributes.is_some() && history.is_none() {
            let remedy =
                "only valid with `history`, which may be empty; those of a known user are set by PUT …/users/{user}";
            return Err(ApiError::field("attributes", remedy));
        }
        match (user, history, users) {
            (Some(user), None, None) => Ok(Self::User(user)),
            (None, Some(history), None) => Ok(Self::Anonymous {
                past: history.into_iter().map(PastItem::try_from).collect::<Result<_, _>>()?,
                attributes: attributes.unwrap_or_default(),
            }),
            (None, None, Some(users)) => {
                Ok(Self::Group { users, by: aggregate.map_or_else(Aggregate::default, Into::into) })
            }
            (None, None, None) => Err(ApiError::invalid("missing field `user`, `history` or `users`").at("user")),
            _ => Err(ApiError::invalid("give one of user, history and users, not more")),
        }
    }
}
