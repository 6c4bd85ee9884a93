//! Predicted and observed labels, the input of quality monitoring.

use celeris_model::{ModelId, Record, RecordKind, Timestamp, UserEpoch, UserId, VersionId};

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

impl LossEvent {
    /// The events of a record of the log, equal to those that were sent when it was observed; none
    /// unless it is an observation.
    pub fn of(record: &Record) -> impl Iterator<Item = Self> {
        let observed = (record.kind == RecordKind::Observe).then_some(&record.predictions);
        observed.into_iter().flatten().map(|prediction| Self {
            model: prediction.model,
            version: prediction.version,
            user: record.user.clone(),
            user_epoch: record.user_epoch,
            predicted: prediction.predicted,
            label: record.label,
            timestamp: record.timestamp,
            pool: record.decision.as_ref().is_some_and(|facts| facts.pool),
        })
    }
}
