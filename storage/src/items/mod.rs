//! Items with their attributes, and tombstones of deleted items.

mod features;

use std::ops::ControlFlow;

use celeris_model::{ItemId, ModelId, StreamName};
use serde_json::{Map, Value};

use crate::catalog_log::{CatalogLog, Changes};
use crate::database::{Access, Change, Column, Database, KeyRange};
use crate::disk_space::SpaceGuard;
use crate::error::StorageError;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::features::encode_given;
use crate::layout::keys::{self, KeyReader};
use crate::log::Log;

pub(crate) use self::features::freeze_for_all;

/// The stored data of an item, without its features.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemRecord {
    /// The attributes as given.
    pub attributes: Map<String, Value>,
    /// The revision of the catalog with its last change: greater with every change, also across a
    /// deletion.
    pub revision: u64,
}

/// One change of an item.
#[derive(Debug, Clone, Copy)]
pub enum ItemWrite<'a> {
    /// Replaces the item's attributes; restores a deleted item.
    Describe(&'a ItemId, &'a Map<String, Value>),
    /// Sets the item's features for one model.
    Give(ModelId, &'a ItemId, &'a [f32]),
    /// Deletes the item: writes a tombstone in place of its attributes, and removes its features
    /// for these models.
    Delete(&'a ItemId, &'a [ModelId]),
}

/// An item whose stored data a commit has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedItem {
    /// The item was described or deleted.
    Described { stream: StreamName, item: ItemId },
    /// The features given for it to a model were set, or deleted with it.
    Given { model: ModelId, item: ItemId },
}

impl ChangedItem {
    /// The item of a change of a single entry; `None` for changes of everything that a model or
    /// version has, which follow its deletion.
    pub(crate) fn by(change: &Change) -> Option<Self> {
        let (Change::Put(column, key, _) | Change::Delete(column, key)) = change else { return None };
        let mut reader = KeyReader::new(key);
        match column {
            Column::Items => {
                let stream = StreamName::new(reader.text()?).ok()?;
                Some(Self::Described { stream, item: ItemId::new(reader.text()?).ok()? })
            }
            Column::ItemFeatures => {
                let model = ModelId(reader.number()?);
                Some(Self::Given { model, item: ItemId::new(reader.text()?).ok()? })
            }
            _ => None,
        }
    }
}

/// An item found by a sweep, not decoded yet, so that decoding can run in parallel.
#[derive(Debug)]
pub struct SweptItem {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl SweptItem {
    /// The item with its attributes; `None` instead of attributes if it was deleted.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn read(&self) -> Result<(ItemId, Option<Map<String, Value>>), StorageError> {
        let record = decode(&self.key, &self.value)?;
        Ok((item_of(Column::Items, &self.key)?, record.map(|record| record.attributes)))
    }
}

/// Items of streams, and features of items outside the trained tables.
#[derive(Clone, Copy)]
pub struct Items<'s> {
    pub(crate) database: &'s Database,
    pub(crate) space: &'s SpaceGuard,
    pub(crate) log: &'s Log,
    pub(crate) catalog: &'s CatalogLog,
}

impl Items<'_> {
    /// Applies changes in order, and returns the last of their revisions. Returns once they are durable.
    /// All are one commit, with one sync, except that in a cluster a commit ends where it would
    /// exceed what the replicated log takes; after an error, the commits before it are applied. The
    /// caller bounds their number.
    ///
    /// # Errors
    /// `StorageFull`, `Poisoned`, `Closed`, `NotOwner`, `Fenced` or `Database`.
    pub fn write<'a>(
        &self,
        stream: &StreamName,
        writes: impl IntoIterator<Item = ItemWrite<'a>>,
    ) -> Result<u64, StorageError> {
        self.space.check()?;
        let mut writes = writes.into_iter().peekable();
        loop {
            let revision = self.catalog.commit(|revision| {
                let mut changes = Changes::new();
                let mut bytes = 0;
                while let Some(write) = writes.next_if(|_| bytes < self.catalog.commit_bytes()) {
                    let first = changes.len();
                    push_write(&mut changes, (stream, revision), write);
                    bytes += changes[first..].iter().map(Change::bytes).sum::<usize>();
                }
                changes
            })?;
            if writes.peek().is_none() {
                return Ok(revision);
            }
        }
    }

    /// Visits all items of a stream, including deleted ones, in chunks of `part` items and in key
    /// order.
    ///
    /// # Errors
    /// `CorruptLog` or `Database`, or the error of `visit`.
    pub fn sweep<E: From<StorageError>>(
        &self,
        stream: &StreamName,
        part: usize,
        mut visit: impl FnMut(Vec<SweptItem>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut found = Vec::with_capacity(part);
        let mut refused = None;
        let range = KeyRange::prefix(keys::of_stream(stream));
        self.database.scan(Column::Items, range, Access::Sweep, |key, value| {
            found.push(SweptItem { key: key.to_vec(), value: value.to_vec() });
            if found.len() < part {
                return Ok(ControlFlow::Continue(()));
            }
            refused = visit(std::mem::replace(&mut found, Vec::with_capacity(part))).err();
            Ok(if refused.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        match refused {
            Some(error) => Err(error),
            None => visit(found),
        }
    }

    /// Visits the items of a stream that observations have noted ([`crate::Append::notes_item`]), in
    /// key order. They stay when all their observations are retracted or erased.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn sweep_observed(&self, stream: &StreamName, mut visit: impl FnMut(ItemId)) -> Result<(), StorageError> {
        let range = KeyRange::prefix(keys::of_stream(stream));
        self.database.scan(Column::ObservedItems, range, Access::Sweep, |key, _| {
            visit(item_of(Column::ObservedItems, key)?);
            Ok(ControlFlow::Continue(()))
        })
    }

    /// One item; `None` if it was never described, or was deleted.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn get(&self, stream: &StreamName, item: &ItemId) -> Result<Option<ItemRecord>, StorageError> {
        let key = keys::item(stream, item);
        let stored = self.database.get(Column::Items, &key)?;
        stored.map_or(Ok(None), |value| decode(&key, &value))
    }

    /// Up to `limit` items of a stream after `after`, in key order (by length, then bytewise);
    /// deleted items are skipped.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn list(
        &self,
        stream: &StreamName,
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<(ItemId, ItemRecord)>, StorageError> {
        let mut items = Vec::new();
        if limit == 0 {
            return Ok(items);
        }
        let all = KeyRange::prefix(keys::of_stream(stream));
        let range = match after {
            Some(item) => all.after(keys::item(stream, item)),
            None => all,
        };
        self.database.scan(Column::Items, range, Access::Lookup, |key, value| {
            if let Some(record) = decode(key, value)? {
                items.push((item_of(Column::Items, key)?, record));
            }
            Ok(if items.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(items)
    }
}

/// Adds the changes that a write makes under this revision.
fn push_write(changes: &mut Changes, (stream, revision): (&StreamName, u64), write: ItemWrite<'_>) {
    match write {
        ItemWrite::Describe(item, attributes) => {
            let key = keys::item(stream, item);
            let value = encode(&key, revision, attributes);
            changes.push(Change::Put(Column::Items, key, value));
        }
        ItemWrite::Give(model, item, features) => {
            let (key, value) = encode_given(model, item, revision, features);
            changes.push(Change::Put(Column::ItemFeatures, key, value));
        }
        ItemWrite::Delete(item, models) => {
            let key = keys::item(stream, item);
            let value = tombstone(&key, revision);
            changes.push(Change::Put(Column::Items, key, value));
            let features = |model: &ModelId| keys::item_features(*model, item);
            changes.extend(models.iter().map(|model| Change::Delete(Column::ItemFeatures, features(model))));
        }
    }
}

fn encode(key: &[u8], revision: u64, attributes: &Map<String, Value>) -> Vec<u8> {
    let mut body = postcard::to_extend(&revision, Vec::new()).expect("a vector takes any bytes");
    serde_json::to_writer(&mut body, attributes).expect("JSON values have text keys, and a vector takes any bytes");
    sealed(key, &body)
}

/// The value of a deleted item: its revision without attributes; an item with no attributes has an
/// empty JSON object.
fn tombstone(key: &[u8], revision: u64) -> Vec<u8> {
    sealed(key, &postcard::to_extend(&revision, Vec::new()).expect("a vector takes any bytes"))
}

/// `None` for a tombstone.
fn decode(key: &[u8], value: &[u8]) -> Result<Option<ItemRecord>, StorageError> {
    let body = unseal(Column::Items, key, value)?;
    let (revision, json): (u64, &[u8]) =
        postcard::take_from_bytes(body).map_err(|error| corrupt(Column::Items, key, &error.to_string()))?;
    if json.is_empty() {
        return Ok(None);
    }
    let attributes = serde_json::from_slice(json).map_err(|error| corrupt(Column::Items, key, &error.to_string()))?;
    Ok(Some(ItemRecord { attributes, revision }))
}

fn item_of(column: Column, key: &[u8]) -> Result<ItemId, StorageError> {
    let mut reader = KeyReader::new(key);
    let text = reader.text().and_then(|_stream| reader.text());
    text.and_then(|text| ItemId::new(text).ok()).ok_or_else(|| corrupt(column, key, "its key names no item"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn item_values_keep_their_stored_format() {
        let attributes = serde_json::from_str(r#"{"title":"M"}"#).unwrap();
        let value = encode(b"k", 300, &attributes);
        assert_eq!(unseal(Column::Items, b"k", &value).unwrap(), b"\xac\x02{\"title\":\"M\"}");
        assert_eq!(decode(b"k", &value).unwrap(), Some(ItemRecord { attributes, revision: 300 }));
        let deleted = tombstone(b"k", 300);
        assert_eq!(unseal(Column::Items, b"k", &deleted).unwrap(), b"\xac\x02");
        assert_eq!(decode(b"k", &deleted).unwrap(), None);
    }
}
