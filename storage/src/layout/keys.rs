//! The keys of every column family.
//!
//! A key is a sequence of self-delimiting parts, so that different keys never have the same bytes
//! and all entries under a prefix are contiguous:
//!
//! - *text* of 1 to 256 bytes: one byte `length - 1`, then the bytes. Texts sort by length first,
//!   then bytewise.
//! - *number*: one byte with the count of significant bytes (0 to 8), then these, big-endian.
//!   Numbers sort as numbers.
//! - *byte*: itself. Partitions are bytes.
//!
//! | column family     | key                                        | value                                     |
//! |-------------------|--------------------------------------------|-------------------------------------------|
//! | `log`             | stream, partition, sequence                | sealed [record](super::record)            |
//! | `history`         | stream, partition, user, user epoch        | sequence as a varint, [event]             |
//! | `observation_ids` | stream, partition, 8 bytes of a keyed      | sequence as a varint                      |
//! |                   | [hash] of the id, 16 of user and id        |                                           |
//! | `items`           | stream, item                               | sealed revision (varint), attributes JSON |
//! |                   |                                            | or sealed revision alone: it was deleted  |
//! | `observed_items`  | stream, item                               | nothing: it was observed                  |
//! | `item_features`   | model id, item                                | sealed revision, features                 |
//! | `frozen`          | model id, version, shard (a byte), item    | sealed offset, features, origin           |
//! | `registry`         | the parts of the [`crate::RegistryKey`]     | sealed JSON                               |
//! | `erasures`        | byte 0                                     | sealed key of the hashes, 16 bytes        |
//! |                   | byte 1, stream, 16 bytes of a keyed [hash] | sealed last epoch of an erased user       |
//! |                   | byte 2, stream, partition, sequence        | sealed [erasure](crate::Erasure)          |
//! |                   | byte 3, stream, partition, sequence        | sealed range to scrub (`log/scrub.rs`)    |
//! | `snapshots`       | stream, partition, user, model id          | sealed [snapshot](crate::Snapshot)        |
//! | `checkpoints`     | stream                                     | sealed [watermark](crate::Watermark)      |
//! | `cursors`         | shard, or byte 255 for the catalog         | sealed position in its replicated log     |
//! |                   | byte 254                                   | sealed last revision of the catalog       |
//! |                   | byte 253, shard (a byte), source           | sealed position in the source (varint)    |
//! | `user_attributes` | stream, partition, user                    | sealed attributes JSON                    |
//! | `decisions`       | model id, decision id                      | sealed decision                           |
//! | `decided_for`     | model id, user, decision id                | nothing                                   |
//! | `decisions_erased`| model id                                   | sealed count                              |
//! | `ranking_events`  | model id, byte 0, event id                 | sealed [event](celeris_model::RankingEvent)|
//! |                   | model id, byte 1, decision id              | sealed event id                           |
//!
//! The last four are in a separate database. "Sealed" is explained in [`super::envelope`].
//!
//! [hash]: super::hashing
//! [event]: super::event

use celeris_model::{
    DecisionId, EventId, ItemId, ModelId, Partition, Sequence, Shard, SourceId, StreamName, UserEpoch, UserId,
    VersionId,
};

use super::hashing::{IdHash, UserHash};
use crate::database::KeyRange;

/// The longest text part, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 256;

fn push_text(key: &mut Vec<u8>, text: &str) {
    let prefix = text.len().checked_sub(1).and_then(|length| u8::try_from(length).ok());
    key.push(prefix.expect("texts in keys are checked to be 1 to 256 bytes long"));
    key.extend_from_slice(text.as_bytes());
}

fn push_number(key: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    let significant = &bytes[number.leading_zeros() as usize / 8..];
    key.push(u8::try_from(significant.len()).expect("at most eight"));
    key.extend_from_slice(significant);
}

fn with_texts_after<'a>(first: u8, texts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut key = vec![first];
    texts.into_iter().for_each(|text| push_text(&mut key, text));
    key
}

fn with_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    for text in texts {
        push_text(&mut key, text);
    }
    key
}

/// Prefix of the records, items, observation ids, … of a stream.
pub(crate) fn of_stream(stream: &StreamName) -> Vec<u8> {
    with_texts([stream.as_str()])
}

/// Prefix of all entries of a model.
pub(crate) fn of_model(model: ModelId) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    push_number(&mut key, model.0);
    key
}

/// Key of the note that deleted decisions of a model may be in sorted files.
pub(crate) fn unscrubbed_decisions(model: ModelId) -> Vec<u8> {
    let mut key = of_model(model);
    key.push(0);
    key
}

fn with_text(mut key: Vec<u8>, text: &str) -> Vec<u8> {
    push_text(&mut key, text);
    key
}

/// One record of the log.
pub(crate) fn log(stream: &StreamName, partition: Partition, sequence: Sequence) -> Vec<u8> {
    placed(of_stream(stream), partition, sequence)
}

/// Prefix of a partition, in the columns whose keys begin with stream and partition.
pub(crate) fn of_partition(stream: &StreamName, partition: Partition) -> Vec<u8> {
    let mut key = of_stream(stream);
    key.push(partition.index());
    key
}

pub(crate) fn history_of(stream: &StreamName, user: &UserId) -> Vec<u8> {
    let mut key = of_partition(stream, Partition::of(user));
    push_text(&mut key, user.as_str());
    key
}

/// The attributes of a user; the same key as the prefix of the user's history, in another column family.
pub(crate) fn user_attributes(stream: &StreamName, user: &UserId) -> Vec<u8> {
    history_of(stream, user)
}

/// The stream and the user of a key of attributes.
pub(crate) fn described_user(key: &[u8]) -> Option<(StreamName, UserId)> {
    let mut reader = KeyReader::new(key);
    let stream = StreamName::new(reader.text()?).ok()?;
    let partition = reader.byte()?;
    let user = UserId::new(reader.text()?).ok()?;
    (reader.is_empty() && partition == Partition::of(&user).index()).then_some((stream, user))
}

/// The user of an entry of a history.
pub(crate) fn user_of_history(key: &[u8]) -> Option<&str> {
    let mut reader = KeyReader::new(key);
    let (_stream, _partition) = (reader.text()?, reader.byte()?);
    reader.text()
}

/// The length of the part of a history entry's key that names the user.
pub(crate) fn user_prefix_of_history(key: &[u8]) -> Option<usize> {
    let mut reader = KeyReader::new(key);
    let (_stream, _partition, _user) = (reader.text()?, reader.byte()?, reader.text()?);
    Some(key.len() - reader.0.len())
}

pub(crate) fn history(stream: &StreamName, user: &UserId, epoch: UserEpoch) -> Vec<u8> {
    let mut key = history_of(stream, user);
    push_number(&mut key, epoch.0);
    key
}

/// A client-given observation id. The id itself is stored in the record only, so that it is removed
/// with the record.
pub(crate) fn observation_id(stream: &StreamName, partition: Partition, id: IdHash) -> Vec<u8> {
    let mut key = observations_of_id(stream, partition, id.id_bytes());
    key.extend_from_slice(&id.observation_bytes());
    key
}

/// Prefix of the observations that users of a partition gave one id.
pub(crate) fn observations_of_id(stream: &StreamName, partition: Partition, id: [u8; 8]) -> Vec<u8> {
    let mut key = of_partition(stream, partition);
    key.extend_from_slice(&id);
    key
}

/// The key of the hash function's secret.
pub(crate) const HASH_KEY: &[u8] = &[0];

/// The last epoch of an erased user.
pub(crate) fn erased_user(stream: &StreamName, user: UserHash) -> Vec<u8> {
    let mut key = erased_users_of(stream);
    key.extend_from_slice(&user.bytes());
    key
}

/// The epochs of all erased users of a stream.
pub(crate) fn erased_users_of(stream: &StreamName) -> Vec<u8> {
    with_texts_after(1, [stream.as_str()])
}

pub(crate) fn erasure(stream: &StreamName, partition: Partition, at: Sequence) -> Vec<u8> {
    placed(erasures_of(stream), partition, at)
}

/// All erasures of a stream.
pub(crate) fn erasures_of(stream: &StreamName) -> Vec<u8> {
    with_texts_after(2, [stream.as_str()])
}

/// One range whose old bytes are still on disk, identified by the amendment that blanked records in
/// it.
pub(crate) fn unscrubbed(stream: &StreamName, partition: Partition, at: Sequence) -> Vec<u8> {
    placed(with_texts_after(UNSCRUBBED, [stream.as_str()]), partition, at)
}

pub(crate) fn all_unscrubbed() -> KeyRange {
    KeyRange { from: vec![UNSCRUBBED], to: vec![UNSCRUBBED + 1] }
}

const UNSCRUBBED: u8 = 3;

fn placed(mut key: Vec<u8>, partition: Partition, sequence: Sequence) -> Vec<u8> {
    key.push(partition.index());
    push_number(&mut key, sequence.0);
    key
}

pub(crate) fn item(stream: &StreamName, item: &ItemId) -> Vec<u8> {
    with_texts([stream.as_str(), item.as_str()])
}

/// An item's features as given by a caller.
pub(crate) fn item_features(model: ModelId, item: &ItemId) -> Vec<u8> {
    with_text(of_model(model), item.as_str())
}

/// Prefix of the features frozen by a version.
pub(crate) fn frozen_by(model: ModelId, version: VersionId) -> Vec<u8> {
    let mut key = of_model(model);
    push_number(&mut key, version.0);
    key
}

/// The item of a key of frozen features.
pub(crate) fn frozen_item(key: &[u8]) -> Option<ItemId> {
    parse_frozen(key).map(|(_, item)| item)
}

/// The same key of frozen features in another shard.
pub(crate) fn frozen_in(key: &[u8], shard: Shard) -> Option<Vec<u8>> {
    let (of, item) = parse_frozen(key)?;
    Some(frozen(of, shard, &item))
}

fn parse_frozen(key: &[u8]) -> Option<((ModelId, VersionId), ItemId)> {
    let mut reader = KeyReader::new(key);
    let of = (ModelId(reader.number()?), VersionId(reader.number()?));
    reader.byte()?;
    let item = ItemId::new(reader.text()?).ok()?;
    reader.is_empty().then_some((of, item))
}

/// An item's features frozen by a version for the users of a shard.
pub(crate) fn frozen((model, version): (ModelId, VersionId), shard: Shard, item: &ItemId) -> Vec<u8> {
    let mut key = frozen_by(model, version);
    key.push(shard.index());
    with_text(key, item.as_str())
}

/// The position in the replicated log of the registry and the items.
pub(crate) const CATALOG_CURSOR: &[u8] = &[0xff];

/// The last revision of the registry and the items.
pub(crate) const REVISION: &[u8] = &[0xfe];

/// The position in the replicated log of a shard.
pub(crate) fn cursor(shard: Shard) -> Vec<u8> {
    vec![shard.index()]
}

/// The position up to which a shard has taken the messages of a source.
pub(crate) fn source_position(shard: Shard, source: &SourceId) -> Vec<u8> {
    with_text(vec![SOURCE_POSITION, shard.index()], source.as_str())
}

const SOURCE_POSITION: u8 = 0xfd;

/// The positions in all sources.
pub(crate) fn all_source_positions() -> KeyRange {
    KeyRange { from: vec![SOURCE_POSITION], to: vec![SOURCE_POSITION + 1] }
}

/// The source of a key of its position.
pub(crate) fn source_of_position(key: &[u8]) -> Option<SourceId> {
    let mut reader = KeyReader::new(key);
    let (_kind, _shard) = (reader.byte()?, reader.byte()?);
    let source = SourceId::new(reader.text()?).ok()?;
    reader.is_empty().then_some(source)
}

/// A registry document. The caller guarantees that each part has 1 to [`TEXT_BYTES_MAX`] bytes.
pub(crate) fn registry(parts: &[String]) -> Vec<u8> {
    with_texts(parts.iter().map(String::as_str))
}

/// The snapshot of one user's state under a model.
pub(crate) fn snapshot(stream: &StreamName, user: &UserId, model: ModelId) -> Vec<u8> {
    let mut key = snapshots_of(stream, user);
    push_number(&mut key, model.0);
    key
}

/// Prefix of all snapshots of one user's states; the same key as the user's history, in another
/// column family.
pub(crate) fn snapshots_of(stream: &StreamName, user: &UserId) -> Vec<u8> {
    history_of(stream, user)
}

pub(crate) fn model_of_snapshot(key: &[u8]) -> Option<ModelId> {
    let mut reader = KeyReader::new(key);
    let (_stream, _partition, _user) = (reader.text()?, reader.byte()?, reader.text()?);
    reader.number().map(ModelId)
}

pub(crate) fn decision(model: ModelId, id: &DecisionId) -> Vec<u8> {
    with_text(of_model(model), id.as_str())
}

/// The index entry of a decision by user.
pub(crate) fn decided_for(model: ModelId, user: &UserId, id: &DecisionId) -> Vec<u8> {
    with_text(all_decided_for(model, user), id.as_str())
}

/// Prefix of the decisions for a user.
pub(crate) fn all_decided_for(model: ModelId, user: &UserId) -> Vec<u8> {
    with_text(of_model(model), user.as_str())
}

/// An event of a client.
pub(crate) fn ranking_event(model: ModelId, id: &EventId) -> Vec<u8> {
    let mut key = of_model(model);
    key.push(0);
    with_text(key, id.as_str())
}

/// The index entry of an event by one of its decisions.
pub(crate) fn event_of_decision(model: ModelId, id: &DecisionId) -> Vec<u8> {
    with_text(all_events_of_decisions(model), id.as_str())
}

/// Prefix of the index of events by their decisions.
pub(crate) fn all_events_of_decisions(model: ModelId) -> Vec<u8> {
    let mut key = of_model(model);
    key.push(1);
    key
}

/// Parses a key. Every method returns `None` if the key does not have that part.
pub(crate) struct KeyReader<'a>(&'a [u8]);

impl<'a> KeyReader<'a> {
    pub(crate) fn new(key: &'a [u8]) -> Self {
        Self(key)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?) + 1;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let length = usize::from(self.byte()?);
        let mut bytes = [0; 8];
        bytes[8_usize.checked_sub(length)?..].copy_from_slice(self.bytes(length)?);
        Some(u64::from_be_bytes(bytes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The key as shown in error messages.
pub(crate) fn hex(key: &[u8]) -> String {
    use std::fmt::Write as _;
    key.iter().fold(String::with_capacity(2 * key.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Parses the output of [`hex`]; `None` if malformed.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|digits| std::str::from_utf8(digits).ok());
    digits.map(|digits| u8::from_str_radix(digits.filter(|digits| digits.len() == 2)?, 16).ok()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::ObservationId;

    use super::*;
    use crate::layout::hashing::Hashes;

    #[test]
    fn keys_keep_their_stored_format() {
        // These bytes are on users' disks. A change needs a new format version and a way to read
        // the old one.
        let stream = StreamName::new("films").unwrap();
        let model = ModelId(0x0201);
        let user = UserId::new("alice").unwrap();
        let item_id = ItemId::new("m1").unwrap();
        let partition = Partition::of(&user);
        let (hashes, id) = (Hashes::new([7; 16]), ObservationId::new("o-1").unwrap());
        let cases = [
            (log(&stream, partition, Sequence(0x0102)), "0466696c6d7330020102"),
            (history(&stream, &user, UserEpoch(7)), "0466696c6d733004616c6963650107"),
            (
                observation_id(&stream, partition, hashes.id(&stream, &user, &id)),
                "0466696c6d73308ce002f4561fa0778e18ee9cfe4f8c76a9868ee471adb8d2",
            ),
            (HASH_KEY.to_vec(), "00"),
            (erased_user(&stream, hashes.user(&stream, &user)), "010466696c6d73ca51467d3c4c37aaf9956e581dde7b0a"),
            (erasure(&stream, partition, Sequence(5)), "020466696c6d73300105"),
            (unscrubbed(&stream, partition, Sequence(5)), "030466696c6d73300105"),
            (decided_for(model, &user, &DecisionId::new("d").unwrap()), "02020104616c6963650064"),
            (item(&stream, &item_id), "0466696c6d73016d31"),
            (user_attributes(&stream, &user), "0466696c6d733004616c696365"),
            (item_features(model, &item_id), "020201016d31"),
            (frozen((model, VersionId(3)), Shard::default(), &item_id), "020201010300016d31"),
            (
                source_position(Shard::default(), &SourceId::new("kafka/clicks/3").unwrap()),
                "fd000d6b61666b612f636c69636b732f33",
            ),
            (registry(&["model".to_owned(), "films".to_owned()]), "046d6f64656c0466696c6d73"),
            (decision(model, &DecisionId::new("d").unwrap()), "0202010064"),
        ];
        for (key, expected) in cases {
            assert_eq!(hex(&key), expected);
            assert_eq!(from_hex(expected), Some(key));
        }
    }

    #[test]
    fn numbers_sort_numerically_and_are_decoded() {
        let numbers = [0, 1, 0xff, 0x100, 0xffff, 0x1_0000, u64::from(u32::MAX), 1 << 40, u64::MAX];
        let keys: Vec<Vec<u8>> = numbers
            .iter()
            .map(|number| {
                let mut key = Vec::new();
                push_number(&mut key, *number);
                key
            })
            .collect();
        assert!(keys.is_sorted());
        for (key, number) in keys.iter().zip(numbers) {
            let mut reader = KeyReader::new(key);
            assert_eq!(reader.number(), Some(number));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn texts_are_self_delimiting() {
        let longest = "x".repeat(TEXT_BYTES_MAX);
        let key = with_texts(["a", &longest, "é"]);
        let mut reader = KeyReader::new(&key);
        assert_eq!([reader.text(), reader.text(), reader.text()], [Some("a"), Some(longest.as_str()), Some("é")]);
        assert_ne!(with_texts(["ab", "c"]), with_texts(["a", "bc"]));
        assert!(KeyReader::new(&key[..5]).text().is_some());
        assert!(KeyReader::new(&[3, b'a']).text().is_none());
        assert!(KeyReader::new(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0]).number().is_none());
    }
}
