//! Items and their attributes, and which items were deleted.

use std::ops::ControlFlow;

use celeris_model::{ItemId, ModelId, StreamName};
use serde_json::{Map, Value};

use crate::database::{Access, Column, KeyRange};
use crate::envelope::{corrupt, sealed, unseal};
use crate::error::StorageError;
use crate::features;
use crate::keys::{self, KeyReader};
use crate::store::Storage;

/// What is known of an item besides its features.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemRecord {
    /// As the caller put them.
    pub attributes: Map<String, Value>,
    /// Grows with every change of the item, also across a deletion; not consecutive.
    pub revision: u64,
}

/// One change of an item.
#[derive(Debug, Clone, Copy)]
pub enum ItemWrite<'a> {
    /// These are its attributes from now on; one that was deleted is back.
    Describe(&'a ItemId, &'a Map<String, Value>),
    /// A caller gives these features to it, for one model.
    Give(ModelId, &'a ItemId, &'a [f32]),
    /// It is deleted: a tombstone takes the place of its attributes, and features given for these models are gone.
    Delete(&'a ItemId, &'a [ModelId]),
}

/// An item as it was found on a sweep, not looked into yet, so that many can be at once.
#[derive(Debug)]
pub struct SweptItem {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl SweptItem {
    /// The item with its attributes; `None` in their place where it was deleted.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn read(&self) -> Result<(ItemId, Option<Map<String, Value>>), StorageError> {
        let record = decode(&self.key, &self.value)?;
        Ok((item_of(&self.key)?, record.map(|record| record.attributes)))
    }
}

impl Storage {
    /// Carries out changes in their order, with one sync, all or none, and answers the revision that they share. Returns
    /// once they are durable. The caller bounds how many.
    ///
    /// # Errors
    /// `StorageFull`, `Poisoned`, `Closed` or `Database`.
    pub fn write_items<'a>(
        &self,
        stream: &StreamName,
        writes: impl IntoIterator<Item = ItemWrite<'a>>,
    ) -> Result<u64, StorageError> {
        self.write_with_revision(|batch, revision| {
            for write in writes {
                match write {
                    ItemWrite::Describe(item, attributes) => {
                        let key = keys::item(stream, item);
                        batch.put(Column::Items, &key, &encode(&key, revision, attributes));
                    }
                    ItemWrite::Give(model, item, features) => {
                        let (key, value) = features::encode_given(model, item, revision, features);
                        batch.put(Column::ItemFeatures, &key, &value);
                    }
                    ItemWrite::Delete(item, models) => {
                        let key = keys::item(stream, item);
                        batch.put(Column::Items, &key, &tombstone(&key, revision));
                        for model in models {
                            batch.delete(Column::ItemFeatures, &keys::item_features(*model, item));
                        }
                    }
                }
            }
        })
    }

    /// Visits all items of a stream, those that were deleted too, in parts of `part` items and in key order.
    ///
    /// # Errors
    /// `CorruptLog` or `Database`, or what `visit` answers.
    pub fn sweep_items<E: From<StorageError>>(
        &self,
        stream: &StreamName,
        part: usize,
        mut visit: impl FnMut(Vec<SweptItem>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut found = Vec::with_capacity(part);
        let mut refused = None;
        let range = KeyRange::prefix(keys::of_stream(stream));
        self.database().scan(Column::Items, range, Access::Sweep, |key, value| {
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

    /// One item; `None` where it was never described, or deleted.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn item(&self, stream: &StreamName, item: &ItemId) -> Result<Option<ItemRecord>, StorageError> {
        let key = keys::item(stream, item);
        let stored = self.database().get(Column::Items, &key)?;
        stored.map_or(Ok(None), |value| decode(&key, &value))
    }

    /// Up to `limit` items of a stream in key order (by length, then bytewise), from the one behind `after` on; those that
    /// were deleted are passed over.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn items(
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
        self.database().scan(Column::Items, range, Access::Lookup, |key, value| {
            if let Some(record) = decode(key, value)? {
                items.push((item_of(key)?, record));
            }
            Ok(if items.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(items)
    }
}

fn encode(key: &[u8], revision: u64, attributes: &Map<String, Value>) -> Vec<u8> {
    let mut body = postcard::to_extend(&revision, Vec::new()).expect("a vector takes any bytes");
    serde_json::to_writer(&mut body, attributes).expect("JSON values have text keys, and a vector takes any bytes");
    sealed(key, &body)
}

/// What takes the place of a deleted item: its revision, and no attributes, which even an item without any has.
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

fn item_of(key: &[u8]) -> Result<ItemId, StorageError> {
    let mut reader = KeyReader::new(key);
    let text = reader.text().and_then(|_stream| reader.text());
    text.and_then(|text| ItemId::new(text).ok()).ok_or_else(|| corrupt(Column::Items, key, "its key names no item"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn item_values_are_what_existing_stores_hold() {
        let attributes = serde_json::from_str(r#"{"title":"M"}"#).unwrap();
        let value = encode(b"k", 300, &attributes);
        assert_eq!(unseal(Column::Items, b"k", &value).unwrap(), b"\xac\x02{\"title\":\"M\"}");
        assert_eq!(decode(b"k", &value).unwrap(), Some(ItemRecord { attributes, revision: 300 }));
        let deleted = tombstone(b"k", 300);
        assert_eq!(unseal(Column::Items, b"k", &deleted).unwrap(), b"\xac\x02");
        assert_eq!(decode(b"k", &deleted).unwrap(), None);
    }
}
