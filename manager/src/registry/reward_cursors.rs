//! Cursors of the default rewards: up to which decision a model's default rewards are written.

use std::time::SystemTime;

use celeris_model::{DecisionId, ModelId};
use celeris_storage::{RegistryBatch, RegistryKey, StorageError};

pub(crate) fn cursors_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["default_rewards"])
}

pub(crate) fn cursor_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["default_rewards".to_owned(), model.to_string()])
}

/// Adds to `batch`, the write that sets the default reward of a model or selection, a cursor that
/// starts at the current time.
pub(crate) fn begin_default_rewards(model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
    batch.put(cursor_key(model)?, &DecisionId::first_at(SystemTime::now().into()))?;
    Ok(())
}
