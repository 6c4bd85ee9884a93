//! Deletion of models and selections: from the registry first, in one write, then whatever is kept by their identity.
//!
//! What is deleted need not be readable: the keys of its documents name them, and its identity is found by the document,
//! or by the folder of its versions.

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

/// Of the document of a model or selection, what may be all of it that can be read.
#[derive(Deserialize)]
struct Identity {
    id: ModelId,
}

/// What has decisions, models and selections, whether in service or not: their names by their identities.
pub(crate) fn deciding(storage: &Storage) -> Result<BTreeMap<ModelId, ModelName>, StorageError> {
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
    /// Deletes a model, in service or not, with its versions, features and decisions. Its stream's observations stay: other models may
    /// learn from them, and a model created anew on the stream starts from them.
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

    /// Removes what is left of a model or selection that the registry does not name any more. Nothing of it can be met under
    /// its name, since everything is kept by its identity.
    pub(crate) fn finish_deletion(&self, (model, id): (&ModelName, ModelId)) -> Result<(), ManagerError> {
        self.storage.delete_model(id)?;
        remove_dir(&self.versions_dir_of((model, id)))?;
        let mut batch = RegistryBatch::new();
        batch.delete(deleted_key(id)?);
        Ok(self.storage.commit_registry(&batch)?)
    }

    /// Removes what a stopped node had begun to delete.
    pub(crate) fn finish_deletions(&self) -> Result<(), ManagerError> {
        for (key, model) in self.storage.list_registry::<ModelName>(&all_deleted_key()?)? {
            // A key of another form is none of ours.
            let Some(Ok(id)) = key.parts().get(1).map(|id| id.parse().map(ModelId)) else { continue };
            let finished = model.map_err(ManagerError::from).and_then(|model| self.finish_deletion((&model, id)));
            if let Err(error) = finished {
                tracing::warn!(%key, %error, "a deleted model is not removed whole; the next start tries again");
            }
        }
        Ok(())
    }

    /// The identity of a model. `None` where neither its document nor a folder tells it; what is kept by the identity is left
    /// behind then, where nothing meets it.
    pub(crate) fn identity_of_model(&self, model: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let read = self.identity_in(&model_key(model)?)?;
        // A damaged identity may be another's.
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

    /// The identity of a selection; `None` where its document does not tell it, or tells a model's.
    pub(crate) fn identity_of_selection(&self, name: &ModelName) -> Result<Option<ModelId>, ManagerError> {
        let read = self.identity_in(&selection_key(name)?)?;
        let owners = deciding(&self.storage)?;
        Ok(read.filter(|id| owners.get(id) == Some(name)))
    }

    fn identity_in(&self, key: &RegistryKey) -> Result<Option<ModelId>, StorageError> {
        match self.storage.registry::<Identity>(key) {
            Err(StorageError::Document { .. }) => Ok(None),
            other => Ok(other?.map(|Identity { id }| id)),
        }
    }
}
