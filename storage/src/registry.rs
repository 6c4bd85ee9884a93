//! The registry: JSON documents that change together or not at all. What they mean is the manager's business.

use std::fmt;
use std::ops::ControlFlow;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::database::{Access, Column, KeyRange};
use crate::envelope::{corrupt, sealed, unseal};
use crate::error::StorageError;
use crate::keys::{self, KeyReader, TEXT_BYTES_MAX};
use crate::store::Storage;

/// The name of a document: its kind, then whatever tells it from others of the kind. A key is a prefix of the keys that
/// go on after its last part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryKey {
    parts: Vec<String>,
}

impl RegistryKey {
    /// A key of these parts.
    ///
    /// # Errors
    /// [`StorageError::RegistryKey`] where there is none, or one is empty or longer than 256 bytes.
    pub fn new<T: Into<String>>(parts: impl IntoIterator<Item = T>) -> Result<Self, StorageError> {
        let parts: Vec<String> = parts.into_iter().map(Into::into).collect();
        if parts.is_empty() || parts.iter().any(|part| part.is_empty() || part.len() > TEXT_BYTES_MAX) {
            return Err(StorageError::RegistryKey { parts });
        }
        Ok(Self { parts })
    }

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    fn parse(key: &[u8]) -> Option<Self> {
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

/// Changes of several documents, made in one atomic step by [`Storage::commit_registry`]. The last change of a key wins.
#[derive(Debug, Clone, Default)]
pub struct RegistryBatch {
    /// The document as JSON, or `None` to delete it.
    changes: Vec<(RegistryKey, Option<Vec<u8>>)>,
}

impl RegistryBatch {
    /// No changes yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates or replaces a document.
    ///
    /// What is written is read back first: JSON writes a number that is not finite as `null`, which no reader of a number
    /// takes, so that the document would be lost with all that depends on it.
    ///
    /// # Errors
    /// [`StorageError::Document`] where it cannot be written as JSON, or could not be read again.
    pub fn put<T>(&mut self, key: RegistryKey, document: &T) -> Result<&mut Self, StorageError>
    where
        T: Serialize + DeserializeOwned,
    {
        let json = serde_json::to_vec(document).map_err(|error| unreadable(&key, &error))?;
        serde_json::from_slice::<T>(&json).map_err(|error| unreadable(&key, &error))?;
        self.changes.push((key, Some(json)));
        Ok(self)
    }

    /// Deletes a document; nothing happens where there is none.
    pub fn delete(&mut self, key: RegistryKey) -> &mut Self {
        self.changes.push((key, None));
        self
    }
}

/// A document of a list with its key, or why it cannot be read.
pub type ListedDocument<T> = (RegistryKey, Result<T, StorageError>);

impl Storage {
    /// One document.
    ///
    /// # Errors
    /// `Document` where it is not a `T`; `Corrupt`, `CorruptLog` or `Database`.
    pub fn registry<T: DeserializeOwned>(&self, key: &RegistryKey) -> Result<Option<T>, StorageError> {
        let stored = keys::registry(&key.parts);
        let value = self.database().get(Column::Registry, &stored)?;
        value.map(|value| decode(key, &stored, &value)).transpose()
    }

    /// All documents whose keys begin with the parts of `prefix`, in key order. One that is not a `T` is a `Document` error
    /// in its place, and says nothing about the others.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn list_registry<T: DeserializeOwned>(
        &self,
        prefix: &RegistryKey,
    ) -> Result<Vec<ListedDocument<T>>, StorageError> {
        let mut documents = Vec::new();
        let range = KeyRange::prefix(keys::registry(&prefix.parts));
        self.database().scan(Column::Registry, range, Access::Lookup, |stored, value| {
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

    /// The keys that begin with the parts of `prefix`, in their order, whatever their documents hold.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn registry_keys(&self, prefix: &RegistryKey) -> Result<Vec<RegistryKey>, StorageError> {
        Ok(self.list_registry::<IgnoredAny>(prefix)?.into_iter().map(|(key, _)| key).collect())
    }

    /// Makes all changes of a batch, or none. Returns once they are durable. A batch that deletes something is taken however
    /// full the disk is, since more is deleted after it.
    ///
    /// # Errors
    /// `StorageFull`, `Poisoned`, `Closed` or `Database`.
    pub fn commit_registry(&self, changes: &RegistryBatch) -> Result<(), StorageError> {
        if changes.changes.iter().all(|(_, json)| json.is_some()) {
            self.space().check_registry()?;
        }
        let mut batch = self.database().batch();
        for (key, json) in &changes.changes {
            let stored = keys::registry(&key.parts);
            match json {
                Some(json) => batch.put(Column::Registry, &stored, &sealed(&stored, json)),
                None => batch.delete(Column::Registry, &stored),
            }
        }
        self.commit(batch)
    }
}

fn decode<T: DeserializeOwned>(key: &RegistryKey, stored: &[u8], value: &[u8]) -> Result<T, StorageError> {
    let json = unseal(Column::Registry, stored, value)?;
    serde_json::from_slice(json).map_err(|error| unreadable(key, &error))
}

fn unreadable(key: &RegistryKey, error: &serde_json::Error) -> StorageError {
    StorageError::Document { key: key.to_string(), reason: error.to_string() }
}
