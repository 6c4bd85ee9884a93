//! The registry: JSON documents that are changed atomically. The manager defines their contents.

use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::catalog_log::CatalogLog;
use crate::database::{Access, Change, Column, Database, KeyRange};
use crate::disk_space::SpaceGuard;
use crate::error::StorageError;
use crate::layout::envelope::{corrupt, sealed, unseal};
use crate::layout::keys::{self, KeyReader, TEXT_BYTES_MAX};

/// The key of a document: its kind, then parts that identify it within the kind. A key is a prefix
/// of the keys that continue after its last part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryKey {
    parts: Vec<String>,
}

impl RegistryKey {
    /// A key of these parts.
    ///
    /// # Errors
    /// [`StorageError::RegistryKey`] if there are no parts, or one is empty or longer than 256
    /// bytes.
    pub fn new<T: Into<String>>(parts: impl IntoIterator<Item = T>) -> Result<Self, StorageError> {
        let parts: Vec<String> = parts.into_iter().map(Into::into).collect();
        if parts.is_empty() || parts.iter().any(|part| part.is_empty() || part.len() > TEXT_BYTES_MAX) {
            return Err(StorageError::RegistryKey { parts });
        }
        Ok(Self { parts })
    }

    #[must_use]
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        let mut reader = KeyReader::new(key);
        let mut parts = Vec::new();
        while !reader.is_empty() {
            parts.push(reader.text()?.to_owned());
        }
        Some(Self { parts })
    }
}

impl fmt::Display for RegistryKey {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.parts.join("/"))
    }
}

/// Changes of several documents, applied atomically by [`Documents::commit`]. The last change of a
/// key wins.
#[derive(Debug, Clone, Default)]
pub struct RegistryBatch {
    /// The document as JSON, or `None` to delete it.
    changes: Vec<(RegistryKey, Option<Vec<u8>>)>,
}

impl RegistryBatch {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates or replaces a document.
    ///
    /// The JSON is parsed back first: JSON has `null` for a number that is not finite, which cannot
    /// be read as a number, so the document and everything that depends on it would be lost.
    ///
    /// # Errors
    /// [`StorageError::Document`] if it cannot be serialised as JSON, or not be read back.
    pub fn put<T>(&mut self, key: RegistryKey, document: &T) -> Result<&mut Self, StorageError>
    where
        T: Serialize + DeserializeOwned,
    {
        let json = serde_json::to_vec(document).map_err(|error| unreadable(&key, &error))?;
        serde_json::from_slice::<T>(&json).map_err(|error| unreadable(&key, &error))?;
        self.changes.push((key, Some(json)));
        Ok(self)
    }

    /// Deletes a document; no effect if it does not exist.
    pub fn delete(&mut self, key: RegistryKey) -> &mut Self {
        self.changes.push((key, None));
        self
    }
}

/// A listed document with its key, or the error of reading it.
pub type ListedDocument<T> = (RegistryKey, Result<T, StorageError>);

/// The documents of the registry.
#[derive(Clone, Copy)]
pub struct Documents<'s> {
    pub(crate) database: &'s Database,
    pub(crate) space: &'s SpaceGuard,
    pub(crate) catalog: &'s CatalogLog,
}

impl Documents<'_> {
    /// One document.
    ///
    /// # Errors
    /// `Document` if it is not a `T`; `Corrupt`, `CorruptLog` or `Database`.
    pub fn get<T: DeserializeOwned>(&self, key: &RegistryKey) -> Result<Option<T>, StorageError> {
        let stored = keys::registry(&key.parts);
        let value = self.database.get(Column::Registry, &stored)?;
        value.map(|value| decode(key, &stored, &value)).transpose()
    }

    /// All documents whose keys begin with the parts of `prefix`, in key order. A document that is
    /// not a `T` is a `Document` error in its place and does not affect the others.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn list<T: DeserializeOwned>(&self, prefix: &RegistryKey) -> Result<Vec<ListedDocument<T>>, StorageError> {
        let mut documents = Vec::new();
        let range = KeyRange::prefix(keys::registry(&prefix.parts));
        self.database.scan(Column::Registry, range, Access::Lookup, |stored, value| {
            let key = RegistryKey::parse(stored);
            let key = key.ok_or_else(|| corrupt(Column::Registry, stored, "its key is not made of texts"))?;
            let document = match decode(&key, stored, value) {
                Err(error) if !matches!(error, StorageError::Document { .. }) => return Err(error),
                document => document,
            };
            documents.push((key, document));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(documents)
    }

    /// The keys that begin with the parts of `prefix`, in order, regardless of the documents'
    /// types.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn keys(&self, prefix: &RegistryKey) -> Result<Vec<RegistryKey>, StorageError> {
        Ok(self.list::<IgnoredAny>(prefix)?.into_iter().map(|(key, _)| key).collect())
    }

    /// Applies all changes of a batch atomically. Returns once they are durable. A batch with a
    /// deletion is accepted even if the disk is nearly full, since it is a step to freeing space.
    ///
    /// # Errors
    /// `StorageFull`, `Poisoned`, `Closed`, `NotOwner`, `Fenced` or `Database`.
    pub fn commit(&self, changes: &RegistryBatch) -> Result<(), StorageError> {
        if changes.changes.iter().all(|(_, json)| json.is_some()) {
            self.space.check_registry()?;
        }
        let change = |(key, json): &(RegistryKey, Option<Vec<u8>>)| {
            let stored = keys::registry(&key.parts);
            match json {
                Some(json) => {
                    let value = sealed(&stored, json);
                    Change::Put(Column::Registry, stored, value)
                }
                None => Change::Delete(Column::Registry, stored),
            }
        };
        self.catalog.commit(|_| changes.changes.iter().map(change).collect()).map(drop)
    }
}

fn decode<T: DeserializeOwned>(key: &RegistryKey, stored: &[u8], value: &[u8]) -> Result<T, StorageError> {
    let json = unseal(Column::Registry, stored, value)?;
    serde_json::from_slice(json).map_err(|error| unreadable(key, &error))
}

fn unreadable(key: &RegistryKey, error: &serde_json::Error) -> StorageError {
    StorageError::Document { key: key.to_string(), reason: error.to_string() }
}
