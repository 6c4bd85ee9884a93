//! Cursors of the default rewards: up to which decision a model's default rewards are written.

use celeris_model::{DecisionId, ModelId};
use celeris_storage::{RegistryBatch, RegistryKey, StorageError};
use uuid::Uuid;

pub(crate) fn cursors_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["default_rewards"])
}

pub(crate) fn cursor_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["default_rewards".to_owned(), model.to_string()])
}

/// Adds to `batch`, the write that sets the default reward of a model or selection, a cursor behind
/// all decisions made so far: their ids are UUIDs of version 7, which ascend also within a
/// millisecond.
pub(crate) fn begin_default_rewards(model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
    let now = DecisionId::new(Uuid::now_v7().to_string()).expect("a UUID is a valid id");
    batch.put(cursor_key(model)?, &now)?;
    Ok(())
}
