//! Keys of the documents of models, versions and selections.

use celeris_model::{ModelId, ModelName, VersionId};
use celeris_storage::{RegistryKey, StorageError};

/// The id that was allocated last.
pub(crate) fn last_id_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["last_model_id"])
}

/// All deleted models and selections of which data may be left.
pub(crate) fn all_deleted_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["deleted"])
}

pub(crate) fn deleted_key(id: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["deleted".to_owned(), id.to_string()])
}

pub(crate) fn models_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["model"])
}

pub(crate) fn model_key(model: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["model", model.as_str()])
}

pub(crate) fn versions_key(model: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["version", model.as_str()])
}

/// The number is padded, so that keys sort numerically.
pub(crate) fn version_key(model: &ModelName, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["version".to_owned(), model.to_string(), format!("{version:020}", version = version.0)])
}

/// All versions that are being prepared on the nodes of a cluster.
pub(crate) fn prepared_keys() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["prepared"])
}

/// The version that a model is about to be switched to.
pub(crate) fn prepared_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["prepared".to_owned(), model.to_string()])
}

pub(crate) fn selections_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["selection"])
}

pub(crate) fn selection_key(name: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["selection", name.as_str()])
}
