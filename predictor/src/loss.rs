//! Predicted and observed labels, the input of quality monitoring.

use celeris_model::{ModelId, Timestamp, UserEpoch, UserId, VersionId};

/// One observation that was predicted before it was learnt from (progressive validation; Velox
/// §2.4).
#[derive(Debug, Clone, PartialEq)]
pub struct LossEvent {
    pub model: ModelId,
    /// The version that predicted.
    pub version: VersionId,
    pub user: UserId,
    /// The observation's epoch.
    pub user_epoch: UserEpoch,
    /// The prediction, made before learning.
    pub predicted: f32,
    pub label: f32,
    /// The observation's own time.
    pub timestamp: Timestamp,
    /// Whether it rewards a ranking drawn uniformly for the validation pool.
    pub pool: bool,
}
