//! Copies of one stream for another machine: the records up to a watermark with their sequences, the items,
//! and what one model was given of them, as they are stored.
//!
//! A store made of a copy gives its readers the same records, histories and items, to the bit. It has neither
//! the ids of observations nor the erased users of the original, so that it takes no observations.
//!
//! The form is that of this version of the program, which both sides must run: for each entry a byte for its
//! column, the lengths of key and value in four bytes each, little-endian, then these; at the end a byte
//! [`END`] and the number of entries in eight bytes.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use celeris_model::{ModelId, Partition, StreamName};

use crate::database::{Access, Column, Database, Durability, KeyRange};
use crate::error::StorageError;
use crate::layout::envelope::corrupt;
use crate::layout::event::Entry;
use crate::layout::keys;
use crate::log::Watermark;

/// The columns of a copy; an entry names one by its place here.
const COLUMNS: [Column; 6] =
    [Column::Log, Column::History, Column::Items, Column::ItemFeatures, Column::Registry, Column::UserAttributes];

/// In place of a column: the copy is complete.
const END: u8 = 0xff;

/// The longest key and value of an entry, in bytes: more than any is.
const KEY_BYTES_MAX: usize = 4 << 10;
const VALUE_BYTES_MAX: usize = 64 << 20;

/// Bytes that are written at once.
const BATCH_BYTES: usize = 1 << 20;

/// The documents of a stream that its records need, by kind.
const DOCUMENTS: [&str; 1] = ["context_fields"];

/// What a copy has.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamCopy {
    pub stream: StreamName,
    /// The records up to here.
    pub watermark: Watermark,
    /// The model whose features of items are copied.
    pub model: ModelId,
}

/// Why a copy could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It could not be sent, or did not arrive whole.
    #[error("a copy of the records was not transferred whole: {0}")]
    Transfer(#[from] io::Error),
}

impl StreamCopy {
    /// Writes the copy. Memory does not grow with the stream.
    pub(crate) fn write(&self, database: &Database, into: &mut dyn Write) -> Result<(), CopyError> {
        let mut writer = EntryWriter { into, count: 0 };
        for partition in Partition::all() {
            let up_to = self.watermark.get(partition);
            let from = keys::of_partition(&self.stream, partition);
            let range = KeyRange { from, to: keys::log(&self.stream, partition, up_to.next()) };
            writer.copy(database, Column::Log, range, |_, _| Ok(true))?;
            let range = KeyRange::prefix(keys::of_partition(&self.stream, partition));
            writer.copy(database, Column::History, range, |key, value| {
                let user = keys::user_prefix_of_history(key);
                let user = user.ok_or_else(|| corrupt(Column::History, key, "its key names no user"))?;
                Ok(Entry::decode(key, user, value)?.sequence <= up_to)
            })?;
        }
        let of_stream = || KeyRange::prefix(keys::of_stream(&self.stream));
        writer.copy(database, Column::Items, of_stream(), |_, _| Ok(true))?;
        // The key of a user's attributes is the prefix of the user's history.
        writer.copy(database, Column::UserAttributes, of_stream(), |key, _| self.has_history(database, key))?;
        writer.copy(database, Column::ItemFeatures, KeyRange::prefix(keys::of_model(self.model)), |_, _| Ok(true))?;
        for kind in DOCUMENTS {
            let key = keys::registry(&[kind.to_owned(), self.stream.to_string()]);
            writer.copy(database, Column::Registry, KeyRange::prefix(key), |_, _| Ok(true))?;
        }
        writer.end()
    }

    /// Whether the copy has events of the user whose history has this prefix.
    fn has_history(&self, database: &Database, prefix: &[u8]) -> Result<bool, StorageError> {
        let mut found = false;
        database.scan(Column::History, KeyRange::prefix(prefix.to_vec()), Access::Lookup, |key, value| {
            let (_, user) = keys::described_user(prefix)
                .ok_or_else(|| corrupt(Column::UserAttributes, prefix, "its key names no user"))?;
            let sequence = Entry::decode(key, prefix.len(), value)?.sequence;
            found = sequence <= self.watermark.get(Partition::of(&user));
            Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(found)
    }
}

struct EntryWriter<'w> {
    into: &'w mut dyn Write,
    count: u64,
}

impl EntryWriter<'_> {
    /// Writes the entries of a range for which `is_wanted`.
    fn copy(
        &mut self,
        database: &Database,
        column: Column,
        range: KeyRange,
        is_wanted: impl Fn(&[u8], &[u8]) -> Result<bool, StorageError>,
    ) -> Result<(), CopyError> {
        let place = COLUMNS.iter().position(|of| *of == column).expect("the column is one of a copy");
        let mut sent = Ok(());
        database.scan(column, range, Access::Sweep, |key, value| {
            if is_wanted(key, value)? {
                sent = self.entry(place as u8, key, value);
            }
            Ok(if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(sent?)
    }

    fn entry(&mut self, place: u8, key: &[u8], value: &[u8]) -> io::Result<()> {
        let length = |part: &[u8]| u32::try_from(part.len()).map(u32::to_le_bytes).map_err(io::Error::other);
        self.into.write_all(&[place])?;
        self.into.write_all(&length(key)?)?;
        self.into.write_all(&length(value)?)?;
        self.into.write_all(key)?;
        self.into.write_all(value)?;
        self.count += 1;
        Ok(())
    }

    fn end(self) -> Result<(), CopyError> {
        self.into.write_all(&[END])?;
        Ok(self.into.write_all(&self.count.to_le_bytes())?)
    }
}

/// Writes the entries of a copy into a store that has none.
pub(crate) fn read(database: &Database, from: &mut dyn Read) -> Result<(), CopyError> {
    let invalid = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem);
    let mut batch = database.batch();
    let mut count: u64 = 0;
    loop {
        let [place] = array(from)?;
        if place == END {
            break;
        }
        let column = COLUMNS.get(usize::from(place)).ok_or_else(|| invalid("an entry has an unknown column"))?;
        let mut length = |most: usize| -> io::Result<usize> {
            let length = u32::from_le_bytes(array(from)?) as usize;
            if length > most { Err(invalid("an entry is too long")) } else { Ok(length) }
        };
        let (key, value) = (length(KEY_BYTES_MAX)?, length(VALUE_BYTES_MAX)?);
        let mut bytes = vec![0; key + value];
        from.read_exact(&mut bytes)?;
        let (key, value) = bytes.split_at(key);
        batch.put(*column, key, value);
        count += 1;
        if batch.bytes() >= BATCH_BYTES {
            std::mem::replace(&mut batch, database.batch()).commit(Durability::Buffered)?;
        }
    }
    if u64::from_le_bytes(array(from)?) != count {
        return Err(invalid("its number of entries is not the one that was sent").into());
    }
    Ok(batch.commit(Durability::Synced)?)
}

fn array<const N: usize>(from: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{ItemId, Record, RecordKind, Sequence, Timestamp, UserEpoch, UserId};

    use super::*;
    use crate::options::StorageOptions;
    use crate::{AckMode, Append, Appended, ItemWrite, Storage};

    fn stream(name: &str) -> StreamName {
        StreamName::new(name).unwrap()
    }

    fn user(number: u64) -> UserId {
        UserId::new(format!("user-{number}")).unwrap()
    }

    async fn append(storage: &Storage, (of, user): (&str, u64), epoch: u64, targets: Vec<Sequence>) {
        let record = Record {
            kind: if targets.is_empty() { RecordKind::Observe } else { RecordKind::Retract },
            user: self::user(user),
            user_epoch: UserEpoch(epoch),
            item: targets.is_empty().then(|| ItemId::new(format!("item-{epoch}")).unwrap()),
            label: epoch as f32,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(epoch.cast_signed()),
            observation_id: None,
            decision: None,
            context: None,
            predictions: Vec::new(),
            targets,
        };
        let (frozen, notes_item, source) = (Vec::new(), true, None);
        let append = Append { stream: stream(of), record, frozen, notes_item, source, ack: AckMode::Wait };
        let Appended::New(placed) = storage.log().append(append).unwrap() else { panic!("it is new") };
        placed.durable().await.unwrap();
    }

    /// A store with two streams of three users, one of whom has taken back an observation.
    async fn filled(dir: &std::path::Path) -> Storage {
        let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
        for epoch in 1..=6 {
            for number in 0..3 {
                append(&storage, ("films", number), epoch, Vec::new()).await;
                append(&storage, ("books", number), epoch, Vec::new()).await;
            }
        }
        let (first, _) = storage.histories().of(&stream("films"), &user(1)).unwrap()[2].clone();
        append(&storage, ("films", 1), 7, vec![first]).await;
        storage
    }

    #[tokio::test]
    async fn a_copy_has_the_records_of_its_stream_up_to_the_watermark_in_their_places() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let original = filled(dirs[0].path()).await;
        let watermark = original.log().watermark(&stream("films"));
        append(&original, ("films", 0), 7, Vec::new()).await;
        let copy = StreamCopy { stream: stream("films"), watermark: watermark.clone(), model: ModelId(1) };
        let mut bytes = Vec::new();
        original.write_copy(&copy, &mut bytes).unwrap();
        let target = dirs[1].path().join("copy");
        let copied = Storage::open_copy(&target, &StorageOptions::default(), &mut bytes.as_slice()).unwrap();
        assert_eq!(copied.position().into_iter().collect::<Vec<_>>(), [(stream("films"), watermark)]);
        for number in 0..3 {
            let of = |storage: &Storage| storage.histories().of(&stream("films"), &user(number)).unwrap();
            let mut expected = of(&original);
            expected.retain(|(_, record)| record.user_epoch <= UserEpoch(6) || number == 1);
            assert_eq!(of(&copied), expected, "user {number}");
            assert!(copied.histories().of(&stream("books"), &user(number)).unwrap().is_empty());
        }
        assert_eq!(copied.histories().of(&stream("films"), &user(1)).unwrap().len(), 6, "one of 7 was retracted");
        copied.verify().unwrap();
    }

    #[tokio::test]
    async fn a_copy_that_is_cut_off_or_changed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let original = filled(&dir.path().join("original")).await;
        let item = ItemId::new("item-1").unwrap();
        let attributes = serde_json::json!({"year": 1995}).as_object().unwrap().clone();
        original.items().write(&stream("films"), [ItemWrite::Describe(&item, &attributes)]).unwrap();
        let of_user = serde_json::json!({"age": 31}).as_object().unwrap().clone();
        for name in ["films", "books"] {
            original.user_attributes().put(&stream(name), &user(1), &of_user).unwrap().durable().await.unwrap();
        }
        let quiet = original.user_attributes().put(&stream("films"), &user(9), &of_user);
        quiet.unwrap().durable().await.unwrap();
        let watermark = original.log().watermark(&stream("films"));
        let copy = StreamCopy { stream: stream("films"), watermark, model: ModelId(1) };
        let mut bytes = Vec::new();
        original.write_copy(&copy, &mut bytes).unwrap();
        let open = |name: &str, mut bytes: &[u8]| {
            Storage::open_copy(&dir.path().join(name), &StorageOptions::default(), &mut bytes)
        };
        let whole = open("whole", &bytes).unwrap();
        assert_eq!(
            whole.items().get(&stream("films"), &item).unwrap(),
            original.items().get(&stream("films"), &item).unwrap()
        );
        assert_eq!(whole.user_attributes().get(&stream("films"), &user(1)).unwrap(), Some(of_user));
        assert_eq!(whole.user_attributes().get(&stream("books"), &user(1)).unwrap(), None, "another stream");
        assert_eq!(whole.user_attributes().get(&stream("films"), &user(9)).unwrap(), None, "a user without events");
        for (place, end) in [bytes.len() - 1, bytes.len() / 2, 1, 0].into_iter().enumerate() {
            assert!(matches!(open(&format!("cut-{place}"), &bytes[..end]), Err(CopyError::Transfer(_))), "{end}");
        }
        let mut of_another = bytes.clone();
        of_another[0] = 9;
        assert!(matches!(open("column", &of_another), Err(CopyError::Transfer(_))));
        let mut longer = bytes.clone();
        longer[5..9].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            matches!(open("longer", &longer), Err(CopyError::Transfer(_))),
            "no more is reserved than an entry has"
        );
    }
}
