//! Reads the log: by observation id, in sequence order, and by user. Reads return durable records
//! only.

use std::ops::ControlFlow;

use celeris_model::ids::SERVER_ID_PREFIX;
use celeris_model::{ObservationId, Partition, Record, RecordKind, Sequence, StreamName, UserEpoch, UserId};

use super::erasures;
use super::{Log, Records};
use crate::database::{Access, Column, Database, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::corrupt;
use crate::layout::event::{Entry, epoch_of};
use crate::layout::hashing::{Hashes, IdHash};
use crate::layout::keys::{self, KeyReader};
use crate::layout::record;

/// Number of records fetched per batch when a history is read.
pub(crate) const FETCH_RECORDS: usize = 1024;

/// A range of one partition of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRange {
    pub stream: StreamName,
    pub partition: Partition,
    /// Exclusive lower bound; 0 for all.
    pub after: Sequence,
    /// Inclusive upper bound.
    pub up_to: Sequence,
}

/// The result of looking up an observation id.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is destructured where it is returned")]
pub enum Lookup {
    /// An event, in its current state.
    Found { partition: Partition, sequence: Sequence, record: Record },
    /// Retracted, or erased with its user. The id cannot be used again.
    Forgotten,
    /// No event ever had this id.
    Unknown,
}

impl Log {
    /// Looks up an observation of a user by its id, given by the client or assigned by the server.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn observation(&self, stream: &StreamName, user: &UserId, id: &ObservationId) -> Result<Lookup, StorageError> {
        let Records { database, hashes, .. } = &*self.records;
        if id.as_str().starts_with(SERVER_ID_PREFIX) {
            let found = find_by_place(database, stream, id)?;
            return Ok(if matches!(&found, Lookup::Found { record, .. } if record.user != *user) {
                Lookup::Unknown
            } else {
                found
            });
        }
        find_by_hash(database, stream, (user, id), hashes.id(stream, user, id))
    }

    /// Looks up an observation by its id alone.
    ///
    /// # Errors
    /// `AmbiguousId` if several users have an observation of this id, since ids are unique for a user only;
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn observation_of_any_user(&self, stream: &StreamName, id: &ObservationId) -> Result<Lookup, StorageError> {
        let Records { database, hashes, .. } = &*self.records;
        if id.as_str().starts_with(SERVER_ID_PREFIX) {
            return find_by_place(database, stream, id);
        }
        let ambiguous = || Err(StorageError::AmbiguousId { id: id.as_str().to_owned() });
        let hash = hashes.id_bytes(stream, id);
        let mut outcome = Lookup::Unknown;
        for partition in Partition::all() {
            let sequences = sequences_of_id(database, stream, partition, hash)?;
            if sequences.len() == SAME_IDS_MAX {
                return ambiguous();
            }
            for sequence in sequences {
                let found = at(database, stream, partition, sequence)?;
                outcome = match (outcome, found) {
                    // A colliding hash.
                    (outcome, Lookup::Found { record, .. }) if record.observation_id.as_ref() != Some(id) => outcome,
                    (Lookup::Unknown | Lookup::Forgotten, found @ Lookup::Found { .. }) => found,
                    (outcome @ Lookup::Found { .. }, Lookup::Forgotten) => outcome,
                    (Lookup::Unknown | Lookup::Forgotten, Lookup::Forgotten) => Lookup::Forgotten,
                    _ => return ambiguous(),
                };
            }
        }
        Ok(outcome)
    }

    /// Visits the records of `range` in sequence order, with bounded memory, until `visit` breaks.
    /// Removed records are skipped, so sequences may have gaps.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn scan<B>(
        &self,
        range: &LogRange,
        mut visit: impl FnMut(Sequence, Record) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, StorageError> {
        let LogRange { stream, partition, after, up_to } = range;
        if up_to <= after {
            return Ok(ControlFlow::Continue(()));
        }
        let mut to = keys::log(stream, *partition, *up_to);
        to.push(0);
        let bounds = KeyRange { from: keys::log(stream, *partition, after.next()), to };
        let prefix = keys::of_stream(stream).len() + 1;
        let mut outcome = ControlFlow::Continue(());
        self.records.database.scan(Column::Log, bounds, Access::Sweep, |key, value| {
            let sequence = KeyReader::new(&key[prefix..]).number();
            let sequence = sequence.ok_or_else(|| corrupt(Column::Log, key, "its key ends in no sequence"))?;
            if let Some(record) = record::decode(key, value)? {
                outcome = visit(Sequence(sequence), record);
            }
            Ok(if outcome.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(outcome)
    }
}

const MISSING: &str = "an index names it, but it is not there";

/// The records of a user after `epoch`; see [`crate::Histories::after`].
pub(crate) fn of_user(
    database: &Database,
    stream: &StreamName,
    user: &UserId,
    epoch: UserEpoch,
) -> Result<Vec<(Sequence, Record)>, StorageError> {
    let mut sequences = Vec::new();
    let range = KeyRange::prefix(keys::history_of(stream, user));
    let prefix = range.from.len();
    let range = range.after(keys::history(stream, user, epoch));
    database.scan(Column::History, range, Access::Lookup, |key, value| {
        sequences.push(Entry::decode(key, prefix, value)?.sequence);
        Ok(ControlFlow::Continue(()))
    })?;
    read_at(database, stream, Partition::of(user), &sequences)
}

/// The records at these sequences, ascending, except those removed meanwhile.
pub(crate) fn read_at(
    database: &Database,
    stream: &StreamName,
    partition: Partition,
    sequences: &[Sequence],
) -> Result<Vec<(Sequence, Record)>, StorageError> {
    let mut records = Vec::with_capacity(sequences.len());
    for chunk in sequences.chunks(FETCH_RECORDS) {
        let log_keys: Vec<Vec<u8>> = chunk.iter().map(|sequence| keys::log(stream, partition, *sequence)).collect();
        let values = database.get_many(Column::Log, &log_keys)?;
        for ((sequence, key), value) in chunk.iter().zip(&log_keys).zip(values) {
            let value = value.ok_or_else(|| corrupt(Column::Log, key, MISSING))?;
            // A blank here was an event when the index was read.
            records.extend(record::decode(key, &value)?.map(|record| (*sequence, record)));
        }
    }
    Ok(records)
}

/// See [`crate::Histories::last_epoch`].
pub(crate) fn last_epoch(
    database: &Database,
    hashes: &Hashes,
    stream: &StreamName,
    user: &UserId,
) -> Result<UserEpoch, StorageError> {
    let prefix = keys::history_of(stream, user);
    match database.last_key(Column::History, &prefix)? {
        Some(key) => epoch_of(&key, prefix.len()),
        None => erasures::last_epoch(database, stream, hashes.user(stream, user)),
    }
}

/// See [`crate::Histories::last_erasure`].
pub(crate) fn last_erasure(
    database: &Database,
    hashes: &Hashes,
    stream: &StreamName,
    user: &UserId,
) -> Result<UserEpoch, StorageError> {
    erasures::last_epoch(database, stream, hashes.user(stream, user))
}

/// Looks up an id that begins with [`SERVER_ID_PREFIX`].
pub(super) fn find_by_place(
    database: &Database,
    stream: &StreamName,
    id: &ObservationId,
) -> Result<Lookup, StorageError> {
    match parse_server_id(id) {
        Some((partition, sequence)) => at(database, stream, partition, sequence),
        None => Ok(Lookup::Unknown),
    }
}

/// Looks up an id given by a client for an observation of this user.
pub(super) fn find_by_hash(
    database: &Database,
    stream: &StreamName,
    (user, id): (&UserId, &ObservationId),
    hash: IdHash,
) -> Result<Lookup, StorageError> {
    let partition = Partition::of(user);
    let key = keys::observation_id(stream, partition, hash);
    let Some(value) = database.get(Column::ObservationIds, &key)? else { return Ok(Lookup::Unknown) };
    let sequence = decode_sequence(&key, &value)?;
    let found = at(database, stream, partition, sequence)?;
    match &found {
        Lookup::Unknown => Err(corrupt(Column::Log, &keys::log(stream, partition, sequence), MISSING)),
        Lookup::Found { record, .. } if record.observation_id.as_ref() != Some(id) || record.user != *user => {
            Err(corrupt(Column::ObservationIds, &key, "it leads to a record of another id"))
        }
        _ => Ok(found),
    }
}

/// The number of entries of one id and partition at which a look-up without a user stops reading:
/// so many users have the id that the caller must name one.
const SAME_IDS_MAX: usize = 64;

/// The sequences of up to [`SAME_IDS_MAX`] observations that users of a partition gave an id with
/// this hash.
fn sequences_of_id(
    database: &Database,
    stream: &StreamName,
    partition: Partition,
    id: [u8; 8],
) -> Result<Vec<Sequence>, StorageError> {
    let mut sequences = Vec::new();
    let range = KeyRange::prefix(keys::observations_of_id(stream, partition, id));
    database.scan(Column::ObservationIds, range, Access::Lookup, |key, value| {
        sequences.push(decode_sequence(key, value)?);
        Ok(if sequences.len() < SAME_IDS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(sequences)
}

/// The record at one sequence of the log.
pub(crate) fn at(
    database: &Database,
    stream: &StreamName,
    partition: Partition,
    sequence: Sequence,
) -> Result<Lookup, StorageError> {
    let key = keys::log(stream, partition, sequence);
    let Some(value) = database.get(Column::Log, &key)? else { return Ok(Lookup::Unknown) };
    Ok(match record::decode(&key, &value)? {
        Some(record) => Lookup::Found { partition, sequence, record },
        None => Lookup::Forgotten,
    })
}

/// The id of an observation, or of the one that a correction or retraction changes: the client's, or
/// the observation's position in the log if the client gave none.
#[must_use]
pub fn observation_id(sequence: Sequence, record: &Record) -> ObservationId {
    let sequence = match record.kind {
        RecordKind::Correct | RecordKind::Retract => record.targets.first().copied().unwrap_or(sequence),
        RecordKind::Observe | RecordKind::Erase => sequence,
    };
    record.observation_id.clone().unwrap_or_else(|| server_id(Partition::of(&record.user), sequence))
}

/// The id of a record without a client-given id: its position in the log, `~partition-sequence`.
pub(super) fn server_id(partition: Partition, sequence: Sequence) -> ObservationId {
    let text = format!("{SERVER_ID_PREFIX}{}-{sequence}", partition.index());
    ObservationId::new(text).expect("a sign and two numbers are a valid id")
}

/// The position encoded in a server-assigned id; `None` for other spellings.
fn parse_server_id(id: &ObservationId) -> Option<(Partition, Sequence)> {
    let (partition, sequence) = id.as_str().strip_prefix(SERVER_ID_PREFIX)?.split_once('-')?;
    let place = (Partition::from_index(partition.parse().ok()?)?, Sequence(sequence.parse().ok()?));
    (server_id(place.0, place.1) == *id).then_some(place)
}

/// The value of an `observation_ids` entry.
pub(super) fn encode_sequence(sequence: Sequence) -> Vec<u8> {
    postcard::to_extend(&sequence.0, Vec::new()).expect("a vector takes any bytes")
}

pub(super) fn decode_sequence(key: &[u8], value: &[u8]) -> Result<Sequence, StorageError> {
    let sequence = postcard::from_bytes(value);
    sequence.map(Sequence).map_err(|error| corrupt(Column::ObservationIds, key, &error.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn server_ids_have_only_one_spelling() {
        let place = (Partition::from_index(12).unwrap(), Sequence(345));
        let id = server_id(place.0, place.1);
        assert_eq!(id.as_str(), "~12-345");
        assert_eq!(parse_server_id(&id), Some(place));
        for other in ["~12-0345", "~012-345", "~+12-345", "~64-1", "~12-", "~12", "~-1", "~", "12-345"] {
            assert_eq!(parse_server_id(&ObservationId::new(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn index_values_keep_their_stored_format() {
        assert_eq!(encode_sequence(Sequence(300)), [0xac, 0x02]);
    }
}
