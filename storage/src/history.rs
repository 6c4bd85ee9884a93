//! Reading the log: by user, by observation id, and in sequence order. Reads see durable records only.
//!
//! A user's records lie far apart in the log, among those of everybody else. The entries of the history lie together: each
//! leads to a record, and repeats of an observation what states learn from it, so that building one reads nothing else.

use std::ops::ControlFlow;

use celeris_model::{
    ItemId, ObservationId, Partition, Record, RecordKind, Sequence, StreamName, Timestamp, UserEpoch, UserId,
};

use crate::database::{Access, Column, Database, KeyRange};
use crate::envelope::corrupt;
use crate::erasures;
use crate::error::StorageError;
use crate::hashing::{Hashes, IdHash};
use crate::keys::{self, KeyReader};
use crate::record;
use crate::store::Storage;
use crate::watermark::Watermark;
use crate::wire::{Reader, Writer};

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

/// What a user's state learns from one observation; independent of models and versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What was observed.
    pub item: ItemId,
    /// The label, or that of the last correction.
    pub label: f32,
    /// The observation's weight.
    pub weight: f32,
    /// When it happened.
    pub timestamp: Timestamp,
    /// Its place among the user's events, by which it is corrected or forgotten.
    pub epoch: UserEpoch,
}

impl Event {
    /// What an observation teaches; `None` for other records. Corrections and retractions teach nothing themselves: the
    /// log has carried them out on the records that they are about.
    #[must_use]
    pub fn of(record: Record) -> Option<Self> {
        let Record { kind: RecordKind::Observe, item: Some(item), label, weight, timestamp, user_epoch, .. } = record
        else {
            return None;
        };
        Some(Self { item, label, weight, timestamp, epoch: user_epoch })
    }
}

/// A user's events, as far as states learn from them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    /// The observations that are not forgotten, in the order of their epochs.
    pub observations: Vec<Event>,
    /// The epoch of the last event of any kind that was read; `None` where there was none.
    pub last: Option<UserEpoch>,
}

/// What an observation id leads to.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub enum Lookup {
    /// An event, as the log has it now.
    Found {
        /// Its user's partition.
        partition: Partition,
        /// Its place there.
        sequence: Sequence,
        /// Its record.
        record: Record,
    },
    /// Retracted, or erased with its user. The id is not free.
    Forgotten,
    /// No event was ever called that.
    Unknown,
}

impl Storage {
    /// All events of one user that are not forgotten, in the order of their epochs. An observation has the label that
    /// the last correction gave it; corrections and retractions are events of their own.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn history(&self, stream: &StreamName, user: &UserId) -> Result<Vec<(Sequence, Record)>, StorageError> {
        read(self.database(), stream, user, None)
    }

    /// [`Storage::history`] of the events that come after `epoch`.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn history_after(
        &self,
        stream: &StreamName,
        user: &UserId,
        epoch: UserEpoch,
    ) -> Result<Vec<(Sequence, Record)>, StorageError> {
        read(self.database(), stream, user, Some(epoch))
    }

    /// What states learn from the user's events that come after `epoch`, 0 for all: as [`Storage::history_after`], at a
    /// fraction of its cost.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn events_after(&self, stream: &StreamName, user: &UserId, epoch: UserEpoch) -> Result<Events, StorageError> {
        let mut events = Events::default();
        let mut unsaid = Vec::new();
        let range = KeyRange::prefix(keys::history_of(stream, user));
        let prefix = range.from.len();
        let range = range.after(keys::history(stream, user, epoch));
        self.database().scan(Column::History, range, Access::Lookup, |key, value| {
            let entry = Entry::decode(key, prefix, value)?;
            events.last = Some(entry.epoch);
            match entry.event {
                Some(event) => events.observations.push(event),
                None => unsaid.push(entry.sequence),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if !unsaid.is_empty() {
            let records = read_at(self.database(), stream, Partition::of(user), &unsaid)?;
            events.observations.extend(records.into_iter().filter_map(|(_, record)| Event::of(record)));
            events.observations.sort_unstable_by_key(|event| event.epoch);
        }
        Ok(events)
    }

    /// The user's event of this epoch, with its place in the log; `None` where there is none, or it is forgotten.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn event(
        &self,
        stream: &StreamName,
        user: &UserId,
        epoch: UserEpoch,
    ) -> Result<Option<(Sequence, Record)>, StorageError> {
        let entry = keys::history(stream, user, epoch);
        let Some(value) = self.database().get(Column::History, &entry)? else { return Ok(None) };
        let sequence = Entry::decode(&entry, keys::history_of(stream, user).len(), &value)?.sequence;
        Ok(match at(self.database(), stream, Partition::of(user), sequence)? {
            Lookup::Found { record, .. } => Some((sequence, record)),
            Lookup::Forgotten | Lookup::Unknown => None,
        })
    }

    /// The epoch of a user's latest durable event, also of one that has been erased; 0 for a user without any.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn last_epoch(&self, stream: &StreamName, user: &UserId) -> Result<UserEpoch, StorageError> {
        last_epoch(self.database(), self.hashes(), stream, user)
    }

    /// What this id leads to, whether the client gave it or the server made it.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn observation(&self, stream: &StreamName, id: &ObservationId) -> Result<Lookup, StorageError> {
        if id.as_str().starts_with(SERVER_ID_SIGN) {
            find_by_place(self.database(), stream, id)
        } else {
            find_by_hash(self.database(), stream, id, self.hashes().id(stream, id))
        }
    }

    /// Visits the records of `range` in sequence order, with bounded memory, until `visit` breaks off. Forgotten ones
    /// are skipped: sequences have gaps there.
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
            if let Some(record) = record::decode(key, value)? {
                outcome = visit(Sequence(sequence), record);
            }
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

/// See [`Storage::history`] and [`Storage::history_after`].
pub(crate) fn read(
    database: &Database,
    stream: &StreamName,
    user: &UserId,
    after: Option<UserEpoch>,
) -> Result<Vec<(Sequence, Record)>, StorageError> {
    let mut sequences = Vec::new();
    let mut range = KeyRange::prefix(keys::history_of(stream, user));
    let prefix = range.from.len();
    if let Some(epoch) = after {
        range = range.after(keys::history(stream, user, epoch));
    }
    database.scan(Column::History, range, Access::Lookup, |key, value| {
        sequences.push(Entry::decode(key, prefix, value)?.sequence);
        Ok(ControlFlow::Continue(()))
    })?;
    read_at(database, stream, Partition::of(user), &sequences)
}

/// The records at these places, ascending, but for those that were forgotten meanwhile.
fn read_at(
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

/// See [`Storage::last_epoch`].
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

fn epoch_of(key: &[u8], prefix: usize) -> Result<UserEpoch, StorageError> {
    let epoch = KeyReader::new(&key[prefix..]).number();
    epoch.map(UserEpoch).ok_or_else(|| corrupt(Column::History, key, "its key ends in no epoch"))
}

/// An entry of a user's history.
pub(crate) struct Entry {
    pub(crate) sequence: Sequence,
    pub(crate) epoch: UserEpoch,
    /// `None` where only the log tells: of an amendment, and in what older stores hold.
    event: Option<Event>,
}

impl Entry {
    /// Takes an entry apart; `prefix` is the length of the key before the epoch.
    pub(crate) fn decode(key: &[u8], prefix: usize, value: &[u8]) -> Result<Self, StorageError> {
        let epoch = epoch_of(key, prefix)?;
        let mut body = Reader(value);
        let unreadable = || corrupt(Column::History, key, "its value is not that of an entry");
        let sequence = body.varint().map(Sequence).ok_or_else(unreadable)?;
        let event = if body.0.is_empty() { None } else { Some(decode_event(body, epoch).ok_or_else(unreadable)?) };
        Ok(Self { sequence, epoch, event })
    }
}

/// What the value of an entry repeats of an observation; nothing of other records. Every observation pays for it twice, in
/// the write-ahead log and in a sorted file, so it is short:
///
/// | part      | form                                                                                         |
/// |-----------|----------------------------------------------------------------------------------------------|
/// | label     | varint: its bits backwards, since round numbers end in zeros, and a bit for whether there is … |
/// | weight    | … a weight other than 1: varint, its bits backwards                                          |
/// | timestamp | signed milliseconds                                                                          |
/// | item      | the rest                                                                                     |
pub(crate) fn encode_event(record: &Record) -> Vec<u8> {
    let Record { kind: RecordKind::Observe, item: Some(item), label, weight, timestamp, .. } = record else {
        return Vec::new();
    };
    let is_weighted = *weight != 1.0;
    let mut value = Writer(Vec::with_capacity(EVENT_BYTES + item.as_str().len()));
    value.varint(backwards(*label) << 1 | u64::from(is_weighted));
    if is_weighted {
        value.varint(backwards(*weight));
    }
    value.signed(timestamp.0);
    value.0.extend_from_slice(item.as_str().as_bytes());
    value.0
}

/// An event without its item takes no more than three varints.
const EVENT_BYTES: usize = 5 + 5 + 10;

fn backwards(number: f32) -> u64 {
    u64::from(number.to_bits().reverse_bits())
}

fn forwards(bits: u64) -> Option<f32> {
    Some(f32::from_bits(u32::try_from(bits).ok()?.reverse_bits()))
}

fn decode_event(mut body: Reader, epoch: UserEpoch) -> Option<Event> {
    let first = body.varint()?;
    let label = forwards(first >> 1)?;
    let weight = if first & 1 == 0 { 1.0 } else { forwards(body.varint()?)? };
    let timestamp = Timestamp(body.signed()?);
    let item = ItemId::new(std::str::from_utf8(body.0).ok()?).ok()?;
    Some(Event { item, label, weight, timestamp, epoch })
}

/// Puts the value of an entry behind what is in `value`; `event` is what [`encode_event`] has made.
pub(crate) fn put_entry(sequence: Sequence, event: &[u8], value: &mut Vec<u8>) {
    let mut writer = Writer(std::mem::take(value));
    writer.varint(sequence.0);
    *value = writer.0;
    value.extend_from_slice(event);
}

/// Looks an id up that begins with [`SERVER_ID_SIGN`].
pub(crate) fn find_by_place(
    database: &Database,
    stream: &StreamName,
    id: &ObservationId,
) -> Result<Lookup, StorageError> {
    match parse_server_id(id) {
        Some((partition, sequence)) => at(database, stream, partition, sequence),
        None => Ok(Lookup::Unknown),
    }
}

/// Looks up an id that a client gave.
pub(crate) fn find_by_hash(
    database: &Database,
    stream: &StreamName,
    id: &ObservationId,
    hash: IdHash,
) -> Result<Lookup, StorageError> {
    let id_key = keys::observation_id(stream, hash);
    let Some(place) = database.get(Column::ObservationIds, &id_key)? else { return Ok(Lookup::Unknown) };
    let (partition, sequence) = decode_place(&id_key, &place)?;
    let found = at(database, stream, partition, sequence)?;
    match &found {
        Lookup::Unknown => Err(corrupt(Column::Log, &keys::log(stream, partition, sequence), MISSING)),
        Lookup::Found { record, .. } if record.observation_id.as_ref() != Some(id) => {
            Err(corrupt(Column::ObservationIds, &id_key, "it leads to a record of another id"))
        }
        _ => Ok(found),
    }
}

/// What is at one place of the log.
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
    use crate::log::{Append, Appended, Then};
    use crate::options::StorageOptions;

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

    fn film() -> StreamName {
        StreamName::new("films").unwrap()
    }

    fn observation(epoch: u64, weight: f32) -> Record {
        Record {
            kind: RecordKind::Observe,
            user: UserId::new("alice").unwrap(),
            user_epoch: UserEpoch(epoch),
            item: Some(ItemId::new("m1").unwrap()),
            label: 4.5,
            weight,
            feedback: None,
            timestamp: Timestamp(1_700_000_000_000),
            observation_id: None,
            decision: None,
            predictions: Vec::new(),
            first_label: None,
            targets: Vec::new(),
        }
    }

    #[test]
    fn index_values_are_what_existing_stores_hold() {
        let partition = Partition::from_index(33).unwrap();
        assert_eq!(encode_place(partition, Sequence(300)), [33, 0xac, 0x02]);
        let amendment = Record { kind: RecordKind::Retract, ..observation(7, 1.0) };
        let cases = [
            (observation(7, 1.0), "ac02842480a0abfef9626d31"),
            (observation(7, 2.5), "ac028524820880a0abfef9626d31"),
            (amendment, "ac02"),
        ];
        for (record, expected) in cases {
            let key = keys::history(&film(), &record.user, record.user_epoch);
            let mut value = Vec::new();
            put_entry(Sequence(300), &encode_event(&record), &mut value);
            assert_eq!(keys::hex(&value), expected);
            let entry = Entry::decode(&key, key.len() - 2, &value).unwrap();
            assert_eq!((entry.sequence, entry.epoch), (Sequence(300), UserEpoch(7)));
            assert_eq!(entry.event, Event::of(record));
            // Cut within the sequence, within the label, and before the item; an amendment ends with the sequence.
            for length in [0, 1, 3, expected.len() / 2 - 2].into_iter().filter(|length| *length < value.len()) {
                let decoded = Entry::decode(&key, key.len() - 2, &value[..length]);
                assert!(decoded.is_err(), "{length} bytes of {expected}");
            }
        }
    }

    #[tokio::test]
    async fn entries_that_hold_a_place_alone_lead_to_what_the_log_says() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        for epoch in 1..=5 {
            let append = Append {
                stream: film(),
                record: observation(epoch, epoch as f32),
                frozen: Vec::new(),
                then: Then::Waits,
            };
            let Appended::New(ticket) = storage.append(append).unwrap() else { panic!("it has no id") };
            ticket.durable().await.unwrap();
        }
        let alice = observation(1, 1.0).user;
        let expected = storage.events_after(&film(), &alice, UserEpoch(0)).unwrap();
        assert_eq!(expected.observations.len(), 5);
        // As stores were before entries repeated their observations, and went on since.
        let mut batch = storage.database().batch();
        for epoch in [1, 2, 4] {
            let mut value = Vec::new();
            put_entry(Sequence(epoch), &[], &mut value);
            batch.put(Column::History, &keys::history(&film(), &alice, UserEpoch(epoch)), &value);
        }
        storage.commit(batch).unwrap();
        assert_eq!(storage.events_after(&film(), &alice, UserEpoch(0)).unwrap(), expected);
    }
}
