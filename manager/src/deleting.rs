//! Deletion of models and selections: first from the registry, in one write, then all data keyed by their id.
//!
//! Damaged models can be deleted too: the keys of the documents name them, and the id is read from the document or from
//! the name of the versions folder.

use std::collections::BTreeMap;
use std::fs;

use celeris_model::{ModelId, ModelName};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use serde::Deserialize;

use crate::error::ManagerError;
use crate::manager::{Manager, remove_dir};
use crate::pause::{self, Step};
use crate::records::{all_deleted_key, deleted_key, model_key, models_key, versions_key};
use crate::selections::{selection_key, selections_key};

/// The part of the document of a model or selection that is needed to delete it; it may be the only readable part.
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
        for (key, identity) in storage.list_registry::<Identity>(&prefix)? {
            let name = key.parts().get(1).map(|name| ModelName::new(name.as_str()));
            if let (Ok(Identity { id }), Some(Ok(name))) = (identity, name) {
                names.entry(id).or_insert(name);
            }
        }
    }
    Ok(names)
}

impl Manager {
    /// Deletes a model, in service or not, with its versions, features and decisions. The observations of its stream
    /// stay: other models may learn from them, and a model created later on the stream starts from them.
    ///
    /// # Errors
    /// `UnknownModel`, `JobRunning`, `IsArm` or `Storage`.
    pub fn delete(&self, model: &ModelName) -> Result<(), ManagerError> {
        let _changing = self.changing.lock();
        if !self.is_in_registry(&model_key(model)?)? {
            self.model(model)?;
        }
        self.jobs.check_idle(model)?;
        self.check_no_arm(model)?;
        let id = self.identity_of_model(model)?;
        let mut batch = RegistryBatch::new();
        if let Some(id) = id {
            batch.put(deleted_key(id)?, model)?;
            self.events.delete(id, &mut batch)?;
            self.monitors.delete(id, &mut batch)?;
        }
        for version in self.storage.registry_keys(&versions_key(model)?)? {
            batch.delete(version);
        }
        batch.delete(model_key(model)?);
        self.storage.commit_registry(&batch)?;
        self.predictor.remove(model);
        let Some(id) = id else { return Ok(()) };
        self.events.forget(id);
        self.monitors.forget(id);
        self.guards.lock().remove(&id);
        pause::at(Step::Deletion);
        self.finish_deletion((model, id))
    }

    /// Removes the remaining data of a model or selection that the registry no longer names. A new model of the same
    /// name does not see it, since all data is keyed by id.
    pub(crate) fn finish_deletion(&self, (model, id): (&ModelName, ModelId)) -> Result<(), ManagerError> {
        self.storage.delete_model(id)?;
        remove_dir(&self.versions_dir_of((model, id)))?;
        let mut batch = RegistryBatch::new();
        batch.delete(deleted_key(id)?);
        Ok(self.storage.commit_registry(&batch)?)
    }

    /// Finishes deletions that a stopped node had started.
    pub(crate) fn finish_deletions(&self) -> Result<(), ManagerError> {
        for (key, model) in self.storage.list_registry::<ModelName>(&all_deleted_key()?)? {
            // Ignore keys of another form.
            let Some(Ok(id)) = key.parts().get(1).map(|id| id.parse().map(ModelId)) else { continue };
            let finished = model.map_err(ManagerError::from).and_then(|model| self.finish_deletion((&model, id)));
            if let Err(error) = finished {
                tracing::warn!(%key, %error, "could not remove all data of a deleted model; the next start retries");
            }
        }
        Ok(())
    }

    /// Returns the id of a model, or `None` if neither its document nor a folder contains it; the data keyed by the id
    /// is then left behind, unreachable.
    pub(crate) fn identity_of_model(&self, model: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let read = self.identity_in(&model_key(model)?)?;
        // A damaged document may contain the id of another model.
        match read.filter(|id| self.versions_dir_of((model, *id)).is_dir()) {
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

    /// Returns the id of a selection, or `None` if its document does not contain one or contains that of a model.
    pub(crate) fn identity_of_selection(&self, name: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let read = self.identity_in(&selection_key(name)?)?;
        let owners = names_by_id(&self.storage)?;
        Ok(read.filter(|id| owners.get(id) == Some(name)))
    }

    fn identity_in(&self, key: &RegistryKey) -> Result<Option<ModelId>, StorageError> {
        match self.storage.registry::<Identity>(key) {
            Err(StorageError::Document { .. }) => Ok(None),
            other => Ok(other?.map(|Identity { id }| id)),
        }
    }
}
