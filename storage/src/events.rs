//! What states learn, and where it lies together.
//!
//! A user's records lie far apart in the log, among those of everybody else. The entries of the history lie together: each
//! leads to a record, and repeats of an observation what states learn from it, so that building one reads nothing else.

use celeris_model::{ItemId, Record, RecordKind, Sequence, Timestamp, UserEpoch};

use crate::database::Column;
use crate::envelope::corrupt;
use crate::error::StorageError;
use crate::keys::KeyReader;
use crate::wire::{Reader, Writer};

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
    /// The epoch of the last correction or retraction that was read; 0 where there was none.
    pub amended: UserEpoch,
}

/// An entry of a user's history.
pub(crate) struct Entry<'a> {
    pub(crate) sequence: Sequence,
    pub(crate) epoch: UserEpoch,
    key: &'a [u8],
    /// What [`encode_event`] has made. Most readers want the record's place only.
    event: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Takes an entry apart; `prefix` is the length of the key before the epoch.
    pub(crate) fn decode(key: &'a [u8], prefix: usize, value: &'a [u8]) -> Result<Self, StorageError> {
        let epoch = epoch_of(key, prefix)?;
        let mut body = Reader(value);
        let sequence = body.varint().map(Sequence).ok_or_else(|| unreadable(key))?;
        Ok(Self { sequence, epoch, key, event: body.0 })
    }

    /// The event that it repeats; `None` of a correction or retraction.
    pub(crate) fn event(&self) -> Result<Option<Event>, StorageError> {
        if self.event.is_empty() {
            return Ok(None);
        }
        decode_event(Reader(self.event), self.epoch).map(Some).ok_or_else(|| unreadable(self.key))
    }
}

fn unreadable(key: &[u8]) -> StorageError {
    corrupt(Column::History, key, "its value is not that of an entry")
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

/// The epoch that a history key ends in; `prefix` is its length before that.
pub(crate) fn epoch_of(key: &[u8], prefix: usize) -> Result<UserEpoch, StorageError> {
    let epoch = KeyReader::new(&key[prefix..]).number();
    epoch.map(UserEpoch).ok_or_else(|| corrupt(Column::History, key, "its key ends in no epoch"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{StreamName, UserId};

    use super::*;
    use crate::keys;

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
    fn entries_are_what_existing_stores_hold() {
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
            assert_eq!(entry.event().unwrap(), Event::of(record));
            // Cut within the sequence, within the label, and before the item; an amendment ends with the sequence.
            for length in [0, 1, 3, expected.len() / 2 - 2].into_iter().filter(|length| *length < value.len()) {
                let decoded = Entry::decode(&key, key.len() - 2, &value[..length]).and_then(|entry| entry.event());
                assert!(decoded.is_err(), "{length} bytes of {expected}");
            }
        }
    }
}
