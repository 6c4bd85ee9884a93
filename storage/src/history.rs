//! Reading the log: by user, by observation id, and in sequence order. Reads see durable records only.

use std::ops::ControlFlow;

use celeris_model::{ObservationId, Partition, Record, Sequence, StreamName, UserEpoch, UserId};

use crate::database::{Access, Column, Database, KeyRange};
use crate::envelope::corrupt;
use crate::error::StorageError;
use crate::keys::{self, KeyReader};
use crate::record;
use crate::store::Storage;
use crate::watermark::Watermark;

/// Begins the ids that the server makes; see [`server_id`].
pub(crate) const SERVER_ID_SIGN: char = '~';

/// Records fetched at once while a history is read.
const FETCH_RECORDS: usize = 1024;

/// A run of one partition of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRange {
    /// The stream.
    pub stream: StreamName,
    /// The partition.
    pub partition: Partition,
    /// The sequence before the first; 0 for all.
    pub after: Sequence,
    /// The last sequence.
    pub up_to: Sequence,
}

impl Storage {
    /// All events of one user, in the order of their epochs.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn history(&self, stream: &StreamName, user: &UserId) -> Result<Vec<(Sequence, Record)>, StorageError> {
        let database = self.database();
        let partition = Partition::of(user);
        let mut sequences = Vec::new();
        let range = KeyRange::prefix(keys::history_of(stream, user));
        database.scan(Column::History, range, Access::Lookup, |key, value| {
            sequences.push(decode_sequence(key, value)?);
            Ok(ControlFlow::Continue(()))
        })?;
        let mut records = Vec::with_capacity(sequences.len());
        for chunk in sequences.chunks(FETCH_RECORDS) {
            let log_keys: Vec<Vec<u8>> = chunk.iter().map(|sequence| keys::log(stream, partition, *sequence)).collect();
            let values = database.get_many(Column::Log, &log_keys)?;
            for ((sequence, key), value) in chunk.iter().zip(&log_keys).zip(values) {
                let value = value.ok_or_else(|| corrupt(Column::Log, key, MISSING))?;
                records.push((*sequence, record::decode(key, &value)?));
            }
        }
        Ok(records)
    }

    /// The epoch of a user's latest durable event; 0 for a user without any.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn last_epoch(&self, stream: &StreamName, user: &UserId) -> Result<UserEpoch, StorageError> {
        let prefix = keys::history_of(stream, user);
        let Some(key) = self.database().last_key(Column::History, &prefix)? else { return Ok(UserEpoch(0)) };
        let epoch = KeyReader::new(&key[prefix.len()..]).number();
        epoch.map(UserEpoch).ok_or_else(|| corrupt(Column::History, &key, "its key ends in no epoch"))
    }

    /// The observation of this id, whether the client gave it or the server made it.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn observation(
        &self,
        stream: &StreamName,
        id: &ObservationId,
    ) -> Result<Option<(Partition, Sequence, Record)>, StorageError> {
        find(self.database(), stream, id)
    }

    /// Visits the records of `range` in sequence order, with bounded memory, until `visit` breaks off.
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
        self.database().scan(Column::Log, bounds, Access::Sweep, |key, value| {
            let sequence = KeyReader::new(&key[prefix..]).number();
            let sequence = sequence.ok_or_else(|| corrupt(Column::Log, key, "its key ends in no sequence"))?;
            outcome = visit(Sequence(sequence), record::decode(key, value)?);
            Ok(if outcome.is_break() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(outcome)
    }

    /// How far the stream's log goes.
    #[must_use]
    pub fn watermark(&self, stream: &StreamName) -> Watermark {
        self.log().watermark(stream)
    }

    /// The streams that hold a record, by name.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamName> {
        self.log().streams()
    }
}

const MISSING: &str = "an index names it, but it is not there";

/// See [`Storage::observation`].
pub(crate) fn find(
    database: &Database,
    stream: &StreamName,
    id: &ObservationId,
) -> Result<Option<(Partition, Sequence, Record)>, StorageError> {
    if id.as_str().starts_with(SERVER_ID_SIGN) {
        let Some((partition, sequence)) = parse_server_id(id) else { return Ok(None) };
        let key = keys::log(stream, partition, sequence);
        let value = database.get(Column::Log, &key)?;
        return value.map(|value| Ok((partition, sequence, record::decode(&key, &value)?))).transpose();
    }
    let id_key = keys::observation_id(stream, id);
    let Some(place) = database.get(Column::ObservationIds, &id_key)? else { return Ok(None) };
    let (partition, sequence) = decode_place(&id_key, &place)?;
    let key = keys::log(stream, partition, sequence);
    let value = database.get(Column::Log, &key)?.ok_or_else(|| corrupt(Column::Log, &key, MISSING))?;
    Ok(Some((partition, sequence, record::decode(&key, &value)?)))
}

/// The id by which an observation goes: the client's, or the place in the log where the client gave none.
#[must_use]
pub fn observation_id(sequence: Sequence, record: &Record) -> ObservationId {
    record.observation_id.clone().unwrap_or_else(|| server_id(Partition::of(&record.user), sequence))
}

/// The name of a record whose client gave none: its place in the log, `~partition-sequence`.
pub(crate) fn server_id(partition: Partition, sequence: Sequence) -> ObservationId {
    let text = format!("{SERVER_ID_SIGN}{}-{sequence}", partition.index());
    ObservationId::new(text).expect("a sign and two numbers are a valid id")
}

/// The place that a server-made id names, if it is one in the form the server writes.
fn parse_server_id(id: &ObservationId) -> Option<(Partition, Sequence)> {
    let (partition, sequence) = id.as_str().strip_prefix(SERVER_ID_SIGN)?.split_once('-')?;
    let place = (Partition::from_index(partition.parse().ok()?)?, Sequence(sequence.parse().ok()?));
    (server_id(place.0, place.1) == *id).then_some(place)
}

/// The value of a history entry.
pub(crate) fn encode_sequence(sequence: Sequence) -> Vec<u8> {
    postcard::to_extend(&sequence.0, Vec::new()).expect("a vector takes any bytes")
}

fn decode_sequence(key: &[u8], value: &[u8]) -> Result<Sequence, StorageError> {
    let sequence = postcard::from_bytes(value).map_err(|error| corrupt(Column::History, key, &error.to_string()))?;
    Ok(Sequence(sequence))
}

/// The value of an entry of `observation_ids`.
pub(crate) fn encode_place(partition: Partition, sequence: Sequence) -> Vec<u8> {
    postcard::to_extend(&(partition.index(), sequence.0), Vec::new()).expect("a vector takes any bytes")
}

fn decode_place(key: &[u8], value: &[u8]) -> Result<(Partition, Sequence), StorageError> {
    let (partition, sequence): (u8, u64) =
        postcard::from_bytes(value).map_err(|error| corrupt(Column::ObservationIds, key, &error.to_string()))?;
    let partition = Partition::from_index(partition)
        .ok_or_else(|| corrupt(Column::ObservationIds, key, "its partition does not exist"))?;
    Ok((partition, Sequence(sequence)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn server_ids_have_one_spelling() {
        let place = (Partition::from_index(12).unwrap(), Sequence(345));
        let id = server_id(place.0, place.1);
        assert_eq!(id.as_str(), "~12-345");
        assert_eq!(parse_server_id(&id), Some(place));
        for other in ["~12-0345", "~012-345", "~+12-345", "~64-1", "~12-", "~12", "~-1", "~", "12-345"] {
            assert_eq!(parse_server_id(&ObservationId::new(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn index_values_are_what_existing_stores_hold() {
        let partition = Partition::from_index(33).unwrap();
        assert_eq!(encode_sequence(Sequence(300)), [0xac, 0x02]);
        assert_eq!(encode_place(partition, Sequence(300)), [33, 0xac, 0x02]);
    }
}
