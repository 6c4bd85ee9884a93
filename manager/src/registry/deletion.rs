//! Deletion of models and selections: first from the registry, in one write, then all data keyed by
//! their id.
//!
//! Damaged models can be deleted too: the keys of the documents name them, and the id is read from
//! the document or from the name of the versions folder.

use std::collections::BTreeMap;
use std::fs;

use celeris_model::{ModelId, ModelName};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use serde::Deserialize;

use super::keys::{all_deleted_key, deleted_key, model_key, models_key, selection_key, selections_key, versions_key};
use super::{Registry, versions_dir};
use crate::directories::remove_dir;
use crate::error::ManagerError;

/// The part of the document of a model or selection that is needed to delete it; it may be the only
/// readable part.
#[derive(Deserialize)]
struct Identity {
    id: ModelId,
}

/// Names by id of all models and selections, in service or not.
///
/// # Errors
/// [`StorageError`].
pub fn names_by_id(storage: &Storage) -> Result<BTreeMap<ModelId, ModelName>, StorageError> {
    let mut names = BTreeMap::new();
    for prefix in [models_key()?, selections_key()?] {
        for (key, identity) in storage.registry().list::<Identity>(&prefix)? {
            let name = key.parts().get(1).map(|name| ModelName::new(name.as_str()));
            if let (Ok(Identity { id }), Some(Ok(name))) = (identity, name) {
                names.entry(id).or_insert(name);
            }
        }
    }
    Ok(names)
}

impl Registry {
    /// Deletes the documents of a model, in service or not, and stops serving it. The observations
    /// of its stream stay: other models may learn from them, and a model created later on the
    /// stream starts from them. `also` adds the deletion of what other components have in the
    /// registry to the write.
    ///
    /// Returns the id under which the model's other data is left, for
    /// [`Registry::finish_deletion`].
    ///
    /// # Errors
    /// `UnknownModel`, `IsArm` or `Storage`.
    pub(crate) fn delete(
        &self,
        model: &ModelName,
        also: impl FnOnce(ModelId, &mut RegistryBatch) -> Result<(), StorageError>,
    ) -> Result<Option<ModelId>, ManagerError> {
        let _changing = self.lock_changes()?;
        if !self.is_in_registry(&model_key(model)?)? {
            self.model(model)?;
        }
        self.check_no_arm(model)?;
        let id = self.identity_of_model(model)?;
        let mut batch = RegistryBatch::new();
        if let Some(id) = id {
            batch.put(deleted_key(id)?, model)?;
            self.audit.delete(id, &mut batch)?;
            also(id, &mut batch)?;
        }
        for version in self.storage.registry().keys(&versions_key(model)?)? {
            batch.delete(version);
        }
        batch.delete(model_key(model)?);
        self.storage.registry().commit(&batch)?;
        self.predictor.activation().remove(model);
        if let Some(id) = id {
            self.audit.forget(id);
        }
        Ok(id)
    }

    /// Removes the remaining data of a model or selection that the registry no longer names. A new
    /// model of the same name does not see it, since all data is keyed by id.
    pub(crate) fn finish_deletion(&self, (model, id): (&ModelName, ModelId)) -> Result<(), ManagerError> {
        self.storage.delete_model(id)?;
        remove_dir(&versions_dir(&self.storage, (model, id)))?;
        let mut batch = RegistryBatch::new();
        batch.delete(deleted_key(id)?);
        Ok(self.storage.registry().commit(&batch)?)
    }

    /// Finishes deletions that a stopped node had started.
    pub(super) fn finish_deletions(&self) -> Result<(), ManagerError> {
        for (key, model) in self.storage.registry().list::<ModelName>(&all_deleted_key()?)? {
            // Ignore keys of another form.
            let Some(Ok(id)) = key.parts().get(1).map(|id| id.parse().map(ModelId)) else { continue };
            let finished = model.map_err(ManagerError::from).and_then(|model| self.finish_deletion((&model, id)));
            if let Err(error) = finished {
                tracing::warn!(%key, %error, "could not remove all data of a deleted model; the next start retries");
            }
        }
        Ok(())
    }

    /// Returns the id of a model, or `None` if neither its document nor a folder contains it; the
    /// data keyed by the id is then left behind, unreachable.
    pub(super) fn identity_of_model(&self, model: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let read = self.identity_in(&model_key(model)?)?;
        // A damaged document may contain the id of another model.
        match read.filter(|id| versions_dir(&self.storage, (model, *id)).is_dir()) {
            Some(id) => Ok(Some(id)),
            None => self.identity_of_folder(model),
        }
    }

    fn identity_of_folder(&self, model: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let dir = self.storage.dir().join("versions");
        let mut newest = None;
        for entry in fs::read_dir(&dir).map_err(ManagerError::io(&dir))? {
            let folder = entry.map_err(ManagerError::io(&dir))?.file_name();
            let id =
                folder.to_str().and_then(|folder| folder.strip_prefix(model.as_str())?.strip_prefix('.')?.parse().ok());
            newest = newest.max(id.map(ModelId));
        }
        Ok(newest)
    }

    /// Returns the id of a selection, or `None` if its document does not contain one or contains
    /// that of a model.
    pub(super) fn identity_of_selection(&self, name: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let read = self.identity_in(&selection_key(name)?)?;
        let owners = names_by_id(&self.storage)?;
        Ok(read.filter(|id| owners.get(id) == Some(name)))
    }

    /// The readable id of the document of a selection; `None` if there is none.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn id_of_selection(&self, name: &ModelName) -> Result<Option<ModelId>, StorageError> {
        self.identity_in(&selection_key(name)?)
    }

    fn identity_in(&self, key: &RegistryKey) -> Result<Option<ModelId>, StorageError> {
        match self.storage.registry().get::<Identity>(key) {
            Err(StorageError::Document { .. }) => Ok(None),
            other => Ok(other?.map(|Identity { id }| id)),
        }
    }
}
