//! The one error type of this crate.

use std::sync::Arc;

use celeris_bandits::BanditError;
use celeris_model::{ItemId, ModelError, ModelName, ObservationId, StreamName, UserEpoch};
use celeris_retrieval::catalog::AttributeError;
use celeris_storage::StorageError;
use thiserror::Error;

/// Why a request failed. State is unchanged on every error but [`StorageError::Poisoned`], after
/// which records that were not durable are dropped from memory.
#[derive(Debug, Error)]
pub enum PredictorError {
    /// No model has this name.
    #[error("no model is named {model}; `celeris models` or GET /v1/models lists them")]
    UnknownModel { model: ModelName },
    /// The name stands for another model or selection than when the stream was opened.
    #[error("model {model} was deleted, and created again, while the stream was open")]
    Recreated { model: ModelName },
    /// The model or selection exists, but its files or records cannot be read.
    #[error("{model} is out of service: {reason}")]
    OutOfService {
        model: ModelName,
        /// What cannot be read, and the remedy.
        reason: Arc<str>,
    },
    /// The user's epoch has not reached the requested `min_epoch`.
    #[error("the user is at epoch {current}, min_epoch {wanted} was not reached in time")]
    EpochNotReached { wanted: UserEpoch, current: UserEpoch },
    /// Another observation with this id has a different body.
    #[error("observation_id {id} is taken by an observation with another body")]
    ObservationConflict { id: ObservationId },
    /// No observation has this id.
    #[error("no observation is called {id}; GET .../users/{{user}} lists a user's observations with their ids")]
    UnknownObservation { id: ObservationId },
    /// The slot of a default reward already has a reward.
    #[error("the slot has a reward already")]
    Rewarded,
    /// The operation needs a model, and the name is that of a selection.
    #[error("{model} selects among {arms} and has no state of its own; ask one of these")]
    IsSelection {
        model: ModelName,
        /// The names of its arms, as text.
        arms: String,
    },
    /// The segment of a request is missing, unknown or not allowed.
    #[error("segment {problem} (model {model})")]
    Segment { model: ModelName, problem: String },
    /// The selection has a state for each user, and the request names no user.
    #[error("user is missing: selection {model} has a state for each user, so name one")]
    UserMissing { model: ModelName },
    /// The user has more observations than one explanation can cover.
    #[error("the user has made {observations} observations, and at most {max} can be explained; ask for another user")]
    HistoryTooLong { observations: u64, max: u64 },
    /// The label lies outside the range that the model takes.
    #[error(
        "label must be within the label_range of model {model}, {low} to {high}, got {received}; correct the label, \
         change label_range, or set labels_outside to \"clip\""
    )]
    LabelRange { model: ModelName, low: f32, high: f32, received: f32 },
    /// A field of the request is out of range, or contradicts another.
    #[error("{field}: {problem}")]
    Field {
        field: &'static str,
        /// What is wrong, and which values are valid.
        problem: String,
    },
    /// The request has no items to score.
    #[error("items must not be empty")]
    NoItems,
    /// The features supplied for an item do not fit the model.
    #[error("features of item {item}: {source}")]
    Features { item: ItemId, source: ModelError },
    /// These attributes of an item or user cannot be stored.
    #[error(transparent)]
    Attributes(#[from] AttributeError),
    /// The context has fields that the stream does not have yet, and the node that could define them has not done so.
    #[error(
        "the context has fields that are new to stream {stream}, and the node that owns the catalog has not answered; \
         try again"
    )]
    UndefinedFields { stream: StreamName },
    /// The item has no description, and no serving version was trained on it.
    #[error("model {model} knows no item {item}")]
    UnknownItem { model: ModelName, item: ItemId },
    /// A number or shape is wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Bandit(#[from] BanditError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl PredictorError {
    /// Whether the log's queue was full, so that a retry may succeed.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Storage(StorageError::Overloaded { .. }))
    }

    /// Whether the write belongs to another node of the cluster. Nothing was written.
    #[must_use]
    pub fn is_of_other_node(&self) -> bool {
        matches!(self, Self::Storage(StorageError::NotOwner | StorageError::Fenced))
    }
}
