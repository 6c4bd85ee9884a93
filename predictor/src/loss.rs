//! What a model expected of an observation and what came: the signal that quality monitors live on.

use celeris_model::{ModelId, Timestamp, UserEpoch, UserId, VersionId};

/// One observation that was predicted before it was learnt from (progressive validation; Velox §2.4).
#[derive(Debug, Clone, PartialEq)]
pub struct LossEvent {
    /// The model that predicted.
    pub model: ModelId,
    /// Its version at that moment.
    pub version: VersionId,
    /// Whose observation.
    pub user: UserId,
    /// Its place among the user's events.
    pub user_epoch: UserEpoch,
    /// The score before learning.
    pub predicted: f32,
    /// The label that came.
    pub label: f32,
    /// The observation's own time.
    pub timestamp: Timestamp,
    /// Whether it is the outcome of a ranking that was drawn uniformly for the validation pool.
    pub pool: bool,
}
