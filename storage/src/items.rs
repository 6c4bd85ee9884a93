//! Items and their attributes.

use std::ops::ControlFlow;

use celeris_model::{ItemId, StreamName};
use serde_json::{Map, Value};

use crate::database::{Access, Column, KeyRange};
use crate::envelope::{corrupt, sealed, unseal};
use crate::error::StorageError;
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

impl Storage {
    /// Puts one item and answers its revision. Returns once it is durable.
    ///
    /// # Errors
    /// `StorageFull`, `Poisoned`, `Closed` or `Database`.
    pub fn put_item(
        &self,
        stream: &StreamName,
        item: &ItemId,
        attributes: &Map<String, Value>,
    ) -> Result<u64, StorageError> {
        self.put_items(stream, [(item, attributes)])
    }

    /// Puts many items with one sync, all or none, and answers the revision that they share. Returns once they are
    /// durable. The caller bounds how many.
    ///
    /// # Errors
    /// `StorageFull`, `Poisoned`, `Closed` or `Database`.
    pub fn put_items<'a>(
        &self,
        stream: &StreamName,
        items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>,
    ) -> Result<u64, StorageError> {
        self.write_with_revision(|batch, revision| {
            for (item, attributes) in items {
                let key = keys::item(stream, item);
                batch.put(Column::Items, &key, &encode(&key, revision, attributes));
            }
        })
    }

    /// One item.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn item(&self, stream: &StreamName, item: &ItemId) -> Result<Option<ItemRecord>, StorageError> {
        let key = keys::item(stream, item);
        self.database().get(Column::Items, &key)?.map(|value| decode(&key, &value)).transpose()
    }

    /// Up to `limit` items of a stream in key order (by length, then bytewise), from the one behind `after` on.
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
            items.push((item_of(key)?, decode(key, value)?));
            Ok(if items.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(items)
    }

    /// Deletes one item. Returns once that is durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed` or `Database`.
    pub fn delete_item(&self, stream: &StreamName, item: &ItemId) -> Result<(), StorageError> {
        let mut batch = self.database().batch();
        batch.delete(Column::Items, &keys::item(stream, item));
        self.commit(batch)
    }
}

fn encode(key: &[u8], revision: u64, attributes: &Map<String, Value>) -> Vec<u8> {
    let mut body = postcard::to_extend(&revision, Vec::new()).expect("a vector takes any bytes");
    serde_json::to_writer(&mut body, attributes).expect("JSON values have text keys, and a vector takes any bytes");
    sealed(key, &body)
}

fn decode(key: &[u8], value: &[u8]) -> Result<ItemRecord, StorageError> {
    let body = unseal(Column::Items, key, value)?;
    let (revision, json) =
        postcard::take_from_bytes(body).map_err(|error| corrupt(Column::Items, key, &error.to_string()))?;
    let attributes = serde_json::from_slice(json).map_err(|error| corrupt(Column::Items, key, &error.to_string()))?;
    Ok(ItemRecord { attributes, revision })
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
        assert_eq!(decode(b"k", &value).unwrap(), ItemRecord { attributes, revision: 300 });
    }
}
