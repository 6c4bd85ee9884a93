//! The one error type of this crate.

use std::sync::Arc;

use celeris_bandits::BanditError;
use celeris_model::{ItemId, ModelError, ModelName, ObservationId, UserEpoch};
use celeris_retrieval::catalog::AttributeError;
use celeris_storage::StorageError;
use thiserror::Error;

/// Why a request could not be answered. State is unchanged on every error but [`StorageError::Poisoned`], after which
/// what was not durable is forgotten.
#[derive(Debug, Error)]
pub enum PredictorError {
    /// No model goes by that name.
    #[error("no model is named {model}; GET /v1/models lists them")]
    UnknownModel {
        /// The name.
        model: ModelName,
    },
    /// The model or selection exists, but what it is made of cannot be read.
    #[error("{model} is out of service: {reason}")]
    OutOfService {
        /// The name.
        model: ModelName,
        /// What cannot be read, and what to do.
        reason: Arc<str>,
    },
    /// The user's events have not reached the epoch that the caller asked for.
    #[error("the user is at epoch {current}, min_epoch {wanted} was not reached in time")]
    EpochNotReached {
        /// What was asked for.
        wanted: UserEpoch,
        /// What there is.
        current: UserEpoch,
    },
    /// The id is taken by an observation that says something else.
    #[error("observation_id {id} is taken by an observation with another body")]
    ObservationConflict {
        /// The id.
        id: ObservationId,
    },
    /// No observation goes by that id.
    #[error("no observation is called {id}; GET .../users/{{user}} lists a user's observations with their ids")]
    UnknownObservation {
        /// The id.
        id: ObservationId,
    },
    /// The slot that a default reward was for has its reward.
    #[error("the slot has a reward already")]
    Rewarded,
    /// What is asked for belongs to models, not to selections among them.
    #[error("{model} selects among {arms} and has no state of its own; ask one of these")]
    IsSelection {
        /// The selection.
        model: ModelName,
        /// Its arms, in words.
        arms: String,
    },
    /// The segment of a request is missing, unknown or out of place.
    #[error("segment {problem} (model {model})")]
    Segment {
        /// The model.
        model: ModelName,
        /// What is wrong with it.
        problem: String,
    },
    /// Every user has a state of their own, and none was named.
    #[error("user is missing: selection {model} has a state for each user, so name one")]
    UserMissing {
        /// The selection.
        model: ModelName,
    },
    /// The user has said more than can be told apart in one answer.
    #[error("the user has made {observations} observations, and at most {max} can be told apart; ask for another user")]
    HistoryTooLong {
        /// How many there are.
        observations: u64,
        /// How many there may be.
        max: u64,
    },
    /// A field of the request is out of its range, or does not go with another.
    #[error("{field}: {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and what would do.
        problem: String,
    },
    /// No items were given to score.
    #[error("items must not be empty")]
    NoItems,
    /// The features given for an item do not fit the model.
    #[error("features of item {item}: {source}")]
    Features {
        /// The item.
        item: ItemId,
        /// What is wrong with them.
        source: ModelError,
    },
    /// An item's attributes are not what a catalog takes.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// Nobody has described the item, and no version that serves was trained on it.
    #[error("model {model} knows no item {item}")]
    UnknownItem {
        /// The model.
        model: ModelName,
        /// The item.
        item: ItemId,
    },
    /// A number or shape is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The policy refused.
    #[error(transparent)]
    Bandit(#[from] BanditError),
    /// The store refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl PredictorError {
    /// Whether the log's queue was full, so that the same request may go through a moment later.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Storage(StorageError::Overloaded { .. }))
    }
}
