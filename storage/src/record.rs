//! How a log record is stored: the stored form is its own type, so that the model's can change without the disk's.
//!
//! What the key says (stream, partition, sequence) is not repeated, what is usual takes one byte: a weight of 1, a
//! prediction by the model that bears the stream's name, an id made by the server.

use celeris_model::{
    DecisionFacts, DecisionId, ItemId, ModelName, ObservationId, Prediction, Record, RecordKind, Sequence, StreamName,
    Timestamp, UserEpoch, UserId, VersionId,
};
use serde::{Deserialize, Serialize};

use crate::database::Column;
use crate::envelope::{self, corrupt, unseal};
use crate::error::StorageError;
use crate::keys::KeyReader;

/// Field order is the order on disk (postcard).
#[derive(Serialize, Deserialize)]
struct StoredRecord {
    /// See [`kind_number`].
    kind: u8,
    user: UserId,
    user_epoch: u64,
    item: Option<ItemId>,
    label: f32,
    /// `None` is 1.
    weight: Option<f32>,
    feedback: Option<String>,
    timestamp_ms: i64,
    observation_id: Option<ObservationId>,
    decision: Option<StoredFacts>,
    predictions: Vec<StoredPrediction>,
    first_label: Option<f32>,
    targets: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredFacts {
    id: DecisionId,
    slot: Option<u32>,
    propensity: Option<f32>,
    pool: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredPrediction {
    /// `None` is the model of the stream's own name.
    model: Option<ModelName>,
    version: u64,
    predicted: f32,
}

fn kind_number(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Observe => 0,
        RecordKind::Correct => 1,
        RecordKind::Retract => 2,
        RecordKind::Erase => 3,
    }
}

fn kind_of(number: u8) -> Option<RecordKind> {
    [RecordKind::Observe, RecordKind::Correct, RecordKind::Retract, RecordKind::Erase].get(usize::from(number)).copied()
}

/// The record as a value that is complete but for its seal, which needs the key and so the sequence.
pub(crate) fn encode(stream: &StreamName, record: &Record) -> Vec<u8> {
    let stored = StoredRecord {
        kind: kind_number(record.kind),
        user: record.user.clone(),
        user_epoch: record.user_epoch.0,
        item: record.item.clone(),
        label: record.label,
        weight: (record.weight != 1.0).then_some(record.weight),
        feedback: record.feedback.clone(),
        timestamp_ms: record.timestamp.0,
        observation_id: record.observation_id.clone(),
        decision: record.decision.as_ref().map(|facts| StoredFacts {
            id: facts.id.clone(),
            slot: facts.slot,
            propensity: facts.propensity,
            pool: facts.pool,
        }),
        predictions: record
            .predictions
            .iter()
            .map(|prediction| StoredPrediction {
                model: (prediction.model.as_str() != stream.as_str()).then(|| prediction.model.clone()),
                version: prediction.version.0,
                predicted: prediction.predicted,
            })
            .collect(),
        first_label: record.first_label,
        targets: record.targets.iter().map(|sequence| sequence.0).collect(),
    };
    postcard::to_extend(&stored, envelope::begin()).expect("a vector takes any bytes, and every length is known")
}

/// The record under the log key `key`.
///
/// # Errors
/// [`StorageError::Corrupt`].
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Record, StorageError> {
    let body = unseal(Column::Log, key, value)?;
    let stored: StoredRecord =
        postcard::from_bytes(body).map_err(|error| corrupt(Column::Log, key, &error.to_string()))?;
    let stream = KeyReader::new(key).text().ok_or_else(|| corrupt(Column::Log, key, "its key names no stream"))?;
    let kind = kind_of(stored.kind).ok_or_else(|| corrupt(Column::Log, key, "its kind is unknown"))?;
    let own_model = |model: Option<ModelName>| match model {
        Some(model) => Ok(model),
        None => ModelName::new(stream).map_err(|error| corrupt(Column::Log, key, &error.to_string())),
    };
    Ok(Record {
        kind,
        user: stored.user,
        user_epoch: UserEpoch(stored.user_epoch),
        item: stored.item,
        label: stored.label,
        weight: stored.weight.unwrap_or(1.0),
        feedback: stored.feedback,
        timestamp: Timestamp(stored.timestamp_ms),
        observation_id: stored.observation_id,
        decision: stored.decision.map(|facts| DecisionFacts {
            id: facts.id,
            slot: facts.slot,
            propensity: facts.propensity,
            pool: facts.pool,
        }),
        predictions: stored
            .predictions
            .into_iter()
            .map(|prediction| {
                Ok(Prediction {
                    model: own_model(prediction.model)?,
                    version: VersionId(prediction.version),
                    predicted: prediction.predicted,
                })
            })
            .collect::<Result<_, StorageError>>()?,
        first_label: stored.first_label,
        targets: stored.targets.into_iter().map(Sequence).collect(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::Partition;

    use super::*;
    use crate::keys;

    fn stream() -> StreamName {
        StreamName::new("films").unwrap()
    }

    fn usual() -> Record {
        Record {
            kind: RecordKind::Observe,
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(300),
            item: Some(ItemId::new("m1").unwrap()),
            label: 4.5,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(1_700_000_000_000),
            observation_id: None,
            decision: None,
            predictions: vec![Prediction {
                model: ModelName::new("films").unwrap(),
                version: VersionId(2),
                predicted: 3.25,
            }],
            first_label: None,
            targets: Vec::new(),
        }
    }

    fn full() -> Record {
        Record {
            kind: RecordKind::Correct,
            weight: 2.0,
            feedback: Some("click".to_owned()),
            timestamp: Timestamp(-1),
            observation_id: Some(ObservationId::new("o-1").unwrap()),
            decision: Some(DecisionFacts {
                id: DecisionId::new("d").unwrap(),
                slot: Some(3),
                propensity: Some(0.5),
                pool: true,
            }),
            predictions: vec![Prediction {
                model: ModelName::new("other").unwrap(),
                version: VersionId(1),
                predicted: 0.0,
            }],
            ..usual()
        }
    }

    fn stored(record: &Record) -> (Vec<u8>, Vec<u8>) {
        let key = keys::log(&stream(), Partition::of(&record.user), Sequence(9));
        let mut value = encode(&stream(), record);
        envelope::seal(&key, &mut value);
        (key, value)
    }

    #[test]
    fn records_are_what_existing_stores_hold() {
        // These bytes are on users' disks. A change needs a new format byte and a way to read the old one.
        let cases = [(usual(), USUAL), (full(), FULL)];
        for (record, expected) in cases {
            let (key, value) = stored(&record);
            assert_eq!(keys::hex(&value), expected);
            assert_eq!(decode(&key, &value).unwrap(), record);
        }
    }

    const USUAL: &str = "010005616c696365ac0201026d3100009040000080a0abfef962000001000200005040c8c0fbda";
    const FULL: &str = "010105616c696365ac0201026d310000904001000000400105636c69636b0101036f2d31010164010301000000\
        3f010101056f746865720100000000b3745523";

    #[test]
    fn every_kind_and_a_missing_item_come_back() {
        for kind in [RecordKind::Observe, RecordKind::Correct, RecordKind::Retract, RecordKind::Erase] {
            let record = Record { kind, item: None, predictions: Vec::new(), ..usual() };
            let (key, value) = stored(&record);
            assert_eq!(decode(&key, &value).unwrap(), record);
        }
    }
}
