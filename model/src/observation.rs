//! What clients tell the service, and the records that the log keeps of it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::decision::DecisionFacts;
use crate::error::ModelError;
use crate::ids::{DecisionId, ItemId, ModelId, ObservationId, Sequence, UserEpoch, UserId, VersionId};

/// A point in time: milliseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl From<SystemTime> for Timestamp {
    /// A time before 1970 becomes 0.
    fn from(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The largest magnitude of a label: far beyond any rating or count, and small enough that sums of squares over a
/// long history stay exact enough in `f64` and finite in `f32`.
pub const LABEL_ABS_MAX: f32 = 1e6;

/// The largest weight of one observation.
pub const WEIGHT_MAX: f32 = 1e6;

/// The earliest time of an event: the beginning of the year 0, where the times of RFC 3339 begin. Ages of events, and sums
/// of them, stay far from the bounds of 64 bits.
pub const EARLIEST: Timestamp = Timestamp(-62_167_219_200_000);

/// One labelled event: `user` gave `item` the `label`.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Whose weights learn from it.
    pub user: UserId,
    /// What it is about.
    pub item: ItemId,
    /// The rating, reward or other outcome.
    pub label: f32,
    /// How many times over it counts; 1 unless told.
    pub weight: f32,
    /// When it happened; the time of its arrival where the client does not say.
    pub timestamp: Option<Timestamp>,
    /// The client's name for it; the server makes one where it is missing.
    pub observation_id: Option<ObservationId>,
    /// What kind of feedback it is ("rating", "click", …), as the client calls it.
    pub feedback: Option<String>,
    /// The ranking that it is the outcome of.
    pub decision: Option<DecisionId>,
}

impl Observation {
    /// Checks the numbers and the time, which may not be later than `latest`: under a half-life everything before an event
    /// of the far future would count for nothing.
    ///
    /// # Errors
    /// [`ModelError::NonFinite`], [`ModelError::OutOfRange`] or [`ModelError::Time`], naming the field.
    pub fn validate(&self, latest: Timestamp) -> Result<(), ModelError> {
        check_label(self.label)?;
        if let Some(received) = self.timestamp.filter(|time| !(EARLIEST..=latest).contains(time)) {
            return Err(ModelError::Time { what: "timestamp", latest: latest.0, received: received.0 });
        }
        if !self.weight.is_finite() {
            return Err(ModelError::NonFinite { what: "weight" });
        }
        if self.weight <= 0.0 || self.weight > WEIGHT_MAX {
            return Err(ModelError::OutOfRange {
                what: "weight",
                range: "above 0 and at most 1e6",
                value: f64::from(self.weight),
            });
        }
        Ok(())
    }
}

/// Checks one label.
///
/// # Errors
/// [`ModelError::NonFinite`] or [`ModelError::OutOfRange`].
pub fn check_label(label: f32) -> Result<(), ModelError> {
    if !label.is_finite() {
        return Err(ModelError::NonFinite { what: "label" });
    }
    if label.abs() > LABEL_ABS_MAX {
        return Err(ModelError::OutOfRange { what: "label", range: "between -1e6 and 1e6", value: f64::from(label) });
    }
    Ok(())
}

/// What a log record says about its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// The user gave the item the label.
    Observe,
    /// An earlier observation gets another label.
    Correct,
    /// An earlier observation never happened.
    Retract,
    /// The user never existed.
    Erase,
}

/// What a model expected of an observation before it learnt from it (progressive validation).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The model that predicted.
    pub model: ModelId,
    /// Its version at that moment.
    pub version: VersionId,
    /// The predicted score.
    pub predicted: f32,
}

/// One event of one user in a stream's log. Stream, partition and sequence are its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// The user.
    pub user: UserId,
    /// This event's number among the user's events.
    pub user_epoch: UserEpoch,
    /// The item; for an erasure, none.
    pub item: Option<ItemId>,
    /// The label; for a retraction or an erasure, 0.
    pub label: f32,
    /// The label that the client sent first, where a correction has replaced it since.
    pub first_label: Option<f32>,
    /// The weight; 1 unless told.
    pub weight: f32,
    /// The kind of feedback, as the client calls it.
    pub feedback: Option<String>,
    /// When it happened.
    pub timestamp: Timestamp,
    /// The client's id. Where the client gave none, the record's place in the log names it.
    pub observation_id: Option<ObservationId>,
    /// The decision that it is the outcome of.
    pub decision: Option<DecisionFacts>,
    /// What each model of the stream expected.
    pub predictions: Vec<Prediction>,
    /// The earlier records of the same partition that a correction, retraction or erasure is about, ascending; empty
    /// for an observation.
    pub targets: Vec<Sequence>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_time_lies_between_year_zero_and_now() {
        let latest = Timestamp(1_700_000_000_000);
        let at = |timestamp| Observation {
            user: UserId::new("u").unwrap(),
            item: ItemId::new("i").unwrap(),
            label: 1.0,
            weight: 1.0,
            timestamp,
            observation_id: None,
            feedback: None,
            decision: None,
        };
        for taken in [None, Some(latest), Some(Timestamp(0)), Some(EARLIEST)] {
            assert_eq!(at(taken).validate(latest), Ok(()), "{taken:?}");
        }
        for refused in [latest.0 + 1, i64::MAX, EARLIEST.0 - 1, i64::MIN] {
            let refused = at(Some(Timestamp(refused))).validate(latest);
            assert!(matches!(refused, Err(ModelError::Time { what: "timestamp", .. })), "{refused:?}");
        }
    }
}
