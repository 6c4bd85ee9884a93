//! The fields of the contexts of each stream, a document of the registry.
//!
//! A field is defined, with its number and its type, before the first record that has it is appended. In a cluster the
//! owner of the catalog defines fields; other nodes ask it, and wait until their copy has the definition.

use std::time::{Duration, Instant};

use celeris_model::{StreamField, StreamFields, StreamName};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};

use super::ItemCatalog;
use crate::error::PredictorError;
use crate::index::StreamCatalog;

/// How long an observation waits until the fields of its context are defined by another node.
const DEFINED_WITHIN: Duration = Duration::from_secs(3);

/// Has the owner of the catalog define fields of a stream; returns whether it has answered. Blocks the thread.
pub type DefineElsewhere = Box<dyn Fn(&StreamName, &[StreamField]) -> bool + Send + Sync>;

/// After a failure, other observations fail at once for this time, so that they do not take all threads.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const KIND: &str = "context_fields";

fn key(stream: &StreamName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new([KIND, stream.as_str()])
}

/// The fields of a stream in the store.
pub(crate) fn read(storage: &Storage, stream: &StreamName) -> Result<StreamFields, StorageError> {
    Ok(storage.registry().get(&key(stream)?)?.unwrap_or_default())
}

impl ItemCatalog {
    /// In a cluster, how fields are defined by another node. The first call counts.
    pub fn define_elsewhere_by(&self, define: DefineElsewhere) {
        let _ = self.define_elsewhere.set(define);
    }

    /// Defines fields that the stream does not have, while there is room. Blocks the thread.
    ///
    /// # Errors
    /// `UndefinedFields` if another node owns the catalog and does not answer in time, or `Storage`.
    pub(crate) fn define_fields(&self, catalog: &StreamCatalog, added: &[StreamField]) -> Result<(), PredictorError> {
        match self.define_fields_here(&catalog.stream, added) {
            Err(error) if error.is_of_other_node() => {}
            defined => return defined,
        }
        let undefined = || PredictorError::UndefinedFields { stream: catalog.stream.clone() };
        if self.undefined_until.lock().is_some_and(|until| Instant::now() < until) {
            return Err(undefined());
        }
        let until = Instant::now() + DEFINED_WITHIN;
        let is_defined = |fields: &StreamFields| fields.extended(added) == *fields;
        if self.define_elsewhere.get().is_some_and(|define| define(&catalog.stream, added)) {
            catalog.wait_for_fields(until, is_defined);
        }
        if is_defined(&catalog.fields()) {
            return Ok(());
        }
        *self.undefined_until.lock() = Some(Instant::now() + RETRY_AFTER);
        Err(undefined())
    }

    /// Defines fields of a stream as the owner of the catalog. Blocks the thread.
    ///
    /// # Errors
    /// `UndefinedFields` if no model of the stream serves, or `Storage`, with `NotOwner` or `Fenced` if another node
    /// owns the catalog.
    pub fn define_fields_here(&self, stream: &StreamName, added: &[StreamField]) -> Result<(), PredictorError> {
        let undefined = || PredictorError::UndefinedFields { stream: stream.clone() };
        let catalog = self.loaded(stream).ok_or_else(undefined)?;
        let _one_at_a_time = self.defining.lock();
        let defined = read(&self.storage, stream)?;
        let fields = defined.extended(added);
        if fields != defined {
            let mut batch = RegistryBatch::new();
            batch.put(key(stream)?, &fields)?;
            self.storage.registry().commit(&batch)?;
        }
        catalog.set_fields(fields);
        Ok(())
    }

    /// Takes in the definitions among changed documents of the registry, which the store has applied.
    ///
    /// # Errors
    /// Those of the store.
    pub fn take_in_fields(&self, documents: &[RegistryKey]) -> Result<(), StorageError> {
        for document in documents {
            let [kind, stream] = document.parts() else { continue };
            let Some(stream) = StreamName::new(stream.as_str()).ok().filter(|_| kind == KIND) else { continue };
            if let Some(catalog) = self.loaded(&stream) {
                catalog.set_fields(read(&self.storage, &stream)?);
            }
        }
        Ok(())
    }
}
