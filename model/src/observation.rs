//! Observations sent by clients, and the records that the log stores.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::context::{Context, RecordedContext};
use crate::decision::DecisionFacts;
use crate::error::ModelError;
use crate::ids::{DecisionId, ItemId, ModelId, ObservationId, Sequence, UserEpoch, UserId, VersionId};
use crate::time::Timestamp;

/// The largest magnitude of a label: far beyond any rating or count, and small enough that sums of
/// squares over a long history stay exact enough in `f64` and finite in `f32`.
pub const LABEL_ABS_MAX: f32 = 1e6;

/// The largest weight of one observation.
pub const WEIGHT_MAX: f32 = 1e6;

/// The earliest time that an event can have: the beginning of the year 0, the first time that RFC 3339 can
/// express. It keeps ages of events and their sums far from overflowing 64 bits.
pub const EARLIEST: Timestamp = Timestamp(-62_167_219_200_000);

/// One labelled event: `user` gave `item` the `label`.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub user: UserId,
    pub item: ItemId,
    /// The rating, reward or other outcome.
    pub label: f32,
    /// Multiplicity of the observation; 1 by default.
    pub weight: f32,
    /// Time of the event; if missing, the time of arrival.
    pub timestamp: Option<Timestamp>,
    /// The client's id for it; if missing, the server assigns one.
    pub observation_id: Option<ObservationId>,
    /// The kind of feedback ("rating", "click", …), a name chosen by the client.
    pub feedback: Option<String>,
    /// The decision to which it is attributed.
    pub decision: Option<DecisionId>,
    /// The circumstances; if missing, those of the decision.
    pub context: Option<Box<Context>>,
}

impl Observation {
    /// Checks the numbers, and that the time is one of `times`: with a half-life, an event in the far
    /// future would reduce the weight of everything before it to nothing.
    ///
    /// # Errors
    /// [`ModelError::NonFinite`], [`ModelError::OutOfRange`] or [`ModelError::Time`], naming the
    /// field.
    pub fn validate(&self, times: &RangeInclusive<Timestamp>) -> Result<(), ModelError> {
        check_label(self.label)?;
        if let Some(received) = self.timestamp.filter(|time| !times.contains(time)) {
            let (earliest, latest) = (times.start().0, times.end().0);
            return Err(ModelError::Time { what: "timestamp", earliest, latest, received: received.0 });
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

/// Checks that a label is finite and within [`LABEL_ABS_MAX`].
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

/// The kind of a log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    Observe,
    /// Replaces the label of an earlier observation.
    Correct,
    /// Removes an earlier observation.
    Retract,
    /// Removes all data of the user.
    Erase,
}

/// A model's prediction of an observation, made before learning from it (progressive validation).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub model: ModelId,
    /// The version that predicted.
    pub version: VersionId,
    pub predicted: f32,
}

/// One event of one user in a stream's log. Stream, partition and sequence are its key.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub kind: RecordKind,
    pub user: UserId,
    /// The user's event count at this event.
    pub user_epoch: UserEpoch,
    /// `None` for an erasure.
    pub item: Option<ItemId>,
    /// 0 for a retraction or an erasure.
    pub label: f32,
    /// The original label, if a correction has replaced it.
    pub first_label: Option<f32>,
    /// Multiplicity of the observation; 1 by default.
    pub weight: f32,
    /// The kind of feedback, a name chosen by the client.
    pub feedback: Option<String>,
    /// Time of the event.
    pub timestamp: Timestamp,
    /// The client's id. If the client gave none, the record is identified by its position in the
    /// log.
    pub observation_id: Option<ObservationId>,
    /// The decision to which it is attributed.
    pub decision: Option<DecisionFacts>,
    /// The circumstances, as the client or the decision has described them.
    pub context: Option<Box<RecordedContext>>,
    /// The prediction of each model of the stream.
    pub predictions: Vec<Prediction>,
    /// The earlier records of the same partition to which a correction, retraction or erasure
    /// applies, ascending; empty for an observation.
    pub targets: Vec<Sequence>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn only_times_of_the_range_are_valid() {
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
            context: None,
        };
        for taken in [None, Some(latest), Some(Timestamp(0)), Some(EARLIEST)] {
            assert_eq!(at(taken).validate(&(EARLIEST..=latest)), Ok(()), "{taken:?}");
        }
        for refused in [latest.0 + 1, i64::MAX, EARLIEST.0 - 1, i64::MIN] {
            let refused = at(Some(Timestamp(refused))).validate(&(EARLIEST..=latest));
            assert!(matches!(refused, Err(ModelError::Time { what: "timestamp", .. })), "{refused:?}");
        }
    }
}
