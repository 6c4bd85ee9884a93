//! The events from which user states are built, stored next to each other.
//!
//! The records of one user are scattered over the log, between those of other users. The history
//! entries of a user are contiguous: each refers to a record and repeats the fields of an
//! observation that states learn from, so that building a state does not read the log. A record and
//! its history entry are written, corrected and deleted in the same atomic write.

use celeris_model::{ItemId, NumberedContext, Record, RecordKind, Sequence, Timestamp, UserEpoch};

use super::envelope::corrupt;
use super::keys::KeyReader;
use crate::database::Column;
use crate::error::StorageError;
use celeris_model::wire::{Reader, Writer};

/// The fields of one observation from which a user's state learns; independent of models and
/// versions.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub item: ItemId,
    /// The current label, after corrections.
    pub label: f32,
    pub weight: f32,
    pub timestamp: Timestamp,
    /// The event's epoch, by which it is corrected or removed.
    pub epoch: UserEpoch,
    pub context: Option<Box<NumberedContext>>,
}

impl Event {
    /// The event of an observation; `None` for other records. Corrections and retractions have no
    /// event of their own: the log has applied them to their target records.
    #[must_use]
    pub fn of(record: Record) -> Option<Self> {
        let Record {
            kind: RecordKind::Observe, item: Some(item), label, weight, timestamp, user_epoch, context, ..
        } = record
        else {
            return None;
        };
        let context = context.map(|context| Box::new(context.numbers()));
        Some(Self { item, label, weight, timestamp, epoch: user_epoch, context })
    }
}

/// An entry of a user's history.
pub(crate) struct Entry<'a> {
    pub(crate) sequence: Sequence,
    pub(crate) epoch: UserEpoch,
    key: &'a [u8],
    /// The output of [`encode_event`], decoded on demand: most readers need the record's sequence
    /// only.
    event: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Decodes an entry; `prefix` is the length of the key before the epoch.
    pub(crate) fn decode(key: &'a [u8], prefix: usize, value: &'a [u8]) -> Result<Self, StorageError> {
        let epoch = epoch_of(key, prefix)?;
        let mut body = Reader(value);
        let sequence = body.varint().map(Sequence).ok_or_else(|| unreadable(key))?;
        Ok(Self { sequence, epoch, key, event: body.0 })
    }

    /// The event; `None` for a correction or retraction.
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

/// The part of a history entry that repeats an observation; empty for other records. Every
/// observation stores it twice, in the write-ahead log and in a sorted file, so it is compact:
///
/// | part      | form                                                                                         |
/// |-----------|----------------------------------------------------------------------------------------------|
/// | label     | varint: its bits backwards, since round numbers end in zeros, and a bit for whether there is … |
/// | context   | … a context, or a weight other than 1. A context: 0, which is no weight, and the length of … |
/// |           | … [`NumberedContext::encode`] before it                                                      |
/// | weight    | after a context or if it is not 1: varint, its bits backwards                                |
/// | timestamp | signed milliseconds                                                                          |
/// | item      | the rest                                                                                     |
pub(crate) fn encode_event(record: &Record) -> Vec<u8> {
    let Record { kind: RecordKind::Observe, item: Some(item), label, weight, timestamp, context, .. } = record else {
        return Vec::new();
    };
    let is_usual = *weight == 1.0 && context.is_none();
    let mut value = Writer(Vec::with_capacity(EVENT_BYTES + item.as_str().len()));
    value.varint(backwards(*label) << 1 | u64::from(!is_usual));
    if let Some(context) = context {
        value.varint(CONTEXT);
        value.bytes(&context.numbers().encode());
    }
    if !is_usual {
        value.varint(backwards(*weight));
    }
    value.signed(timestamp.0);
    value.0.extend_from_slice(item.as_str().as_bytes());
    value.0
}

/// In the place of a weight, which is not 0.
const CONTEXT: u64 = 0;

/// The maximum encoded size of an event without its item and context: three varints.
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
    let (mut weight, mut context) = (1.0, None);
    if first & 1 == 1 {
        let mut bits = body.varint()?;
        if bits == CONTEXT {
            context = Some(Box::new(NumberedContext::decode(body.bytes()?)?));
            bits = body.varint()?;
        }
        weight = forwards(bits)?;
    }
    let timestamp = Timestamp(body.signed()?);
    let item = ItemId::new(std::str::from_utf8(body.0).ok()?).ok()?;
    Some(Event { item, label, weight, timestamp, epoch, context })
}

/// Appends the value of an entry to `value`; `event` is the output of [`encode_event`].
pub(crate) fn put_entry(sequence: Sequence, event: &[u8], value: &mut Vec<u8>) {
    let mut writer = Writer(std::mem::take(value));
    writer.varint(sequence.0);
    *value = writer.0;
    value.extend_from_slice(event);
}

/// The epoch at the end of a history key; `prefix` is the length of the key before it.
pub(crate) fn epoch_of(key: &[u8], prefix: usize) -> Result<UserEpoch, StorageError> {
    let epoch = KeyReader::new(&key[prefix..]).number();
    epoch.map(UserEpoch).ok_or_else(|| corrupt(Column::History, key, "its key ends in no epoch"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{Context, ContextValue, StreamFields, StreamName, UserId};

    use super::*;
    use crate::layout::keys;

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
            context: None,
            predictions: Vec::new(),
            first_label: None,
            targets: Vec::new(),
        }
    }

    #[test]
    fn entries_keep_their_stored_format() {
        let amendment = Record { kind: RecordKind::Retract, ..observation(7, 1.0) };
        let context = Context::new([("hour".to_owned(), ContextValue::Number(21.0))]).unwrap();
        let fields = StreamFields::default();
        let context = fields.extended(&fields.missing(&context)).numbered(&context).map(Box::new);
        let in_context = |weight| Record { context: context.clone(), ..observation(7, weight) };
        let cases = [
            (observation(7, 1.0), "ac02842480a0abfef9626d31"),
            (observation(7, 2.5), "ac028524820880a0abfef9626d31"),
            (in_context(1.0), "ac028524000300022afc0380a0abfef9626d31"),
            (in_context(2.5), "ac028524000300022a820880a0abfef9626d31"),
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
            // Truncated within the sequence, within the label, and before the item; an amendment
            // ends with the sequence.
            for length in [0, 1, 3, expected.len() / 2 - 2].into_iter().filter(|length| *length < value.len()) {
                let decoded = Entry::decode(&key, key.len() - 2, &value[..length]).and_then(|entry| entry.event());
                assert!(decoded.is_err(), "{length} bytes of {expected}");
            }
        }
    }
}
