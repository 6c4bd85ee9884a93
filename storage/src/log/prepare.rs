//! Encodes a record with its index entries, as far as they do not depend on its sequence, to keep the
//! committer's work small.

use celeris_model::{Partition, Record, RecordKind, StreamName};

use super::positions::SourcePosition;
use super::queue::{Encoded, HistoryEntry, Prepared};
use super::{RECORD_BYTES_MAX, Records, amend};
use crate::error::StorageError;
use crate::layout::hashing::IdHash;
use crate::layout::{event, keys, record};

/// What is written with a record.
#[derive(Default)]
pub(super) struct Attached {
    /// The hash of its client-given id.
    pub(super) id: Option<IdHash>,
    /// Keys and values of features to freeze.
    pub(super) frozen: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether to note that the item was observed.
    pub(super) notes_item: bool,
    /// The message that it was in.
    pub(super) source: Option<SourcePosition>,
}

/// Prepares an observation.
///
/// # Errors
/// `RecordTooLarge`.
pub(super) fn observation(
    stream: &StreamName,
    observation: &Record,
    Attached { id, frozen, notes_item, source }: Attached,
) -> Result<Prepared, StorageError> {
    let key = keys::history(stream, &observation.user, observation.user_epoch);
    let history = HistoryEntry { key: &key, event: &event::encode_event(observation) };
    let encoded = encode(observation, Some(history))?;
    let item = observation.item.as_ref().filter(|_| notes_item).map(|item| keys::item(stream, item));
    let partition = Partition::of(&observation.user);
    Ok(Prepared { stream: stream.clone(), partition, encoded, id, frozen, item, source, amendment: None })
}

/// Prepares a correction, retraction or erasure: completes its record and collects its changes of
/// earlier records, which are read from the database. It is a function of `requested` and of the
/// records before it, so that all nodes compute the same.
///
/// # Errors
/// `ObservationForgotten`, `NotAnObservation` or `RecordTooLarge`; or errors of reading.
pub(super) fn amendment(records: &Records, stream: &StreamName, requested: &Record) -> Result<Prepared, StorageError> {
    // Before an erasure removes the user from the record.
    let key = keys::history(stream, &requested.user, requested.user_epoch);
    let partition = Partition::of(&requested.user);
    let mut completed = requested.clone();
    let amendment = amend::amend(&records.database, &records.hashes, stream, &mut completed)?;
    let history = (requested.kind != RecordKind::Erase).then_some(HistoryEntry { key: &key, event: &[] });
    Ok(Prepared {
        stream: stream.clone(),
        partition,
        encoded: encode(&completed, history)?,
        id: None,
        frozen: Vec::new(),
        item: None,
        source: None,
        amendment: Some(Box::new(amendment)),
    })
}

fn encode(record: &Record, history: Option<HistoryEntry<'_>>) -> Result<Encoded, StorageError> {
    let value = record::encode(record);
    // An erasure lists all records of its user and must not be rejected for that.
    if value.len() > RECORD_BYTES_MAX && record.kind != RecordKind::Erase {
        return Err(StorageError::RecordTooLarge { bytes: value.len(), bytes_max: RECORD_BYTES_MAX });
    }
    Ok(Encoded::new(value, history))
}
