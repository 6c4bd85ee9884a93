//! Availability of models and selections.
//!
//! At the start, every model of the registry is loaded independently. If a document of the registry
//! or a file of the active version cannot be read, only that model is out of service: requests to
//! it fail with the reason, and all others are served. A selection is out of service if any of its
//! arms is. A model or selection out of service can be deleted, or restored from a backup; the next
//! start tries to load it again. Damage of the store itself makes the start fail.

use std::sync::Arc;
use std::{fs, io};

use celeris_model::{ModelId, ModelName, StreamName, VersionId};
use celeris_predictor::{PredictorError, Unserved};
use celeris_storage::{RegistryKey, StorageError};
use serde::Deserialize;

use super::fetching::is_manifest_of;
use super::keys::{model_key, models_key, selection_key, selections_key, versions_key};
use super::{ModelRecord, Registry, SelectionRecord, names_by_id, versions_dir};
use crate::directories::remove_dir;
use crate::error::ManagerError;

/// Kind of a named object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Model,
    Selection,
}

/// A model or selection that exists but is out of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    pub name: ModelName,
    pub kind: NameKind,
    /// The object that cannot be read, and the error.
    pub reason: Arc<str>,
}

impl Registry {
    /// The models and selections that are out of service, by name.
    ///
    /// # Errors
    /// `Storage`.
    pub fn unavailable(&self) -> Result<Vec<Unavailable>, ManagerError> {
        let out = self.predictor.models().out_of_service();
        let described = |(name, Unserved { reason, .. }): (&ModelName, &Unserved)| {
            let kind = if self.is_in_registry(&selection_key(name)?)? { NameKind::Selection } else { NameKind::Model };
            Ok(Unavailable { name: name.clone(), kind, reason: Arc::clone(reason) })
        };
        out.iter().map(described).collect()
    }

    /// Loads the models of the registry.
    pub(super) fn open_models(&self) -> Result<(), ManagerError> {
        for (key, record) in self.storage.registry().list::<ModelRecord>(&models_key()?)? {
            let opened = record.map_err(ManagerError::from).and_then(|record| self.open_model(&key, &record));
            self.note_opened(&key, opened)?;
        }
        Ok(())
    }

    /// Checks a record of the registry.
    ///
    /// # Errors
    /// `Storage(Document)` if it cannot be served.
    pub(crate) fn check_record(&self, key: &RegistryKey, record: &ModelRecord) -> Result<(), ManagerError> {
        check_name(key, &record.config.name)?;
        record.config.check().map_err(|error| unfit(key, error.to_string()))?;
        // Check that all records are readable, since pruning, activation and rollback need them.
        self.version_records(&record.config.name).map(drop)
    }

    fn open_model(&self, key: &RegistryKey, record: &ModelRecord) -> Result<(), ManagerError> {
        let model = &record.config.name;
        if self.is_in_cluster() {
            self.remove_left_versions(record)?;
            self.check_record(key, record)?;
            self.check_is_here(record)?;
        } else {
            self.remove_unnamed_versions(record)?;
            self.check_record(key, record)?;
        }
        let version = self.load(record, record.active)?;
        self.predictor.activation().activate(&record.config.stream, record.config.serving(), version)?;
        self.audit.begin(record.id, &record.config.stream);
        tracing::info!(%model, version = %record.active, "model serves");
        Ok(())
    }

    /// Opens the selections of the registry whose arms are in service.
    pub(super) fn open_selections(&self) -> Result<(), ManagerError> {
        for key in self.storage.registry().keys(&selections_key()?)? {
            let opened = self.open_selection(&key);
            self.note_opened(&key, opened)?;
        }
        Ok(self.predictor.selections().follow_log()?)
    }

    /// Opens a selection of the registry, if it is still there.
    ///
    /// # Errors
    /// `Storage`, or `Predictor` if an arm is not in service.
    pub(crate) fn open_selection(&self, key: &RegistryKey) -> Result<(), ManagerError> {
        let Some(record) = self.storage.registry().get::<SelectionRecord>(key)? else { return Ok(()) };
        check_name(key, &record.name)?;
        record.check().map_err(|problem| unfit(key, problem))?;
        if names_by_id(&self.storage)?.get(&record.id).is_some_and(|owner| *owner != record.name) {
            return Err(unfit(key, format!("it has the identity {} of another model", record.id)));
        }
        for (arm, id) in record.arms.iter().zip(&record.arm_ids) {
            let serves = self.predictor.models().active(arm)?.model_id;
            if serves != *id {
                return Err(unfit(key, format!("its arm {arm} has the identity {id}, and {arm} now has {serves}")));
            }
        }
        if self.predictor.models().check_in_service(&record.name).is_err() {
            self.predictor.activation().remove(&record.name);
        }
        self.predictor.models().put_selection(record.rule());
        Ok(())
    }

    /// Takes a model out of service whose active version is not on this node yet.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn take_unfetched_out(&self, record: &ModelRecord) -> Result<(), ManagerError> {
        let model = record.config.name.clone();
        self.note_opened(&model_key(&model)?, Err(ManagerError::NotFetched { model, version: record.active }))
    }

    /// Fails unless the active version of a model is on this node of a cluster.
    fn check_is_here(&self, record: &ModelRecord) -> Result<(), ManagerError> {
        let model = &record.config.name;
        let version = self.version(model, record.active)?;
        if is_manifest_of(&self.version_dir(record, record.active), &version) {
            return Ok(());
        }
        Err(ManagerError::NotFetched { model: model.clone(), version: record.active })
    }

    /// Takes a model or selection that could not be opened out of service. Errors of the store
    /// itself are returned.
    pub(crate) fn note_opened(&self, key: &RegistryKey, opened: Result<(), ManagerError>) -> Result<(), ManagerError> {
        let Err(error) = opened else { return Ok(()) };
        if is_of_the_store(&error) {
            return Err(error);
        }
        match key.parts().get(1).map(|name| ModelName::new(name.as_str())) {
            Some(Ok(name)) => {
                let reason = error.to_string();
                if self.predictor.models().out_of_service().get(&name).is_some_and(|out| *out.reason == *reason) {
                    return Ok(());
                }
                if matches!(error, ManagerError::NotFetched { .. }) {
                    tracing::info!(%name, %error, "is out of service until then");
                } else {
                    tracing::error!(%name, %error, "cannot be opened and is out of service");
                }
                self.predictor.activation().remove(&name);
                let (id, stream) = self.owner_and_stream(key, &name)?;
                self.predictor.models().take_out_of_service(&name, Unserved { reason: reason.into(), id, stream });
            }
            _ => tracing::error!(%key, %error, "the registry holds a document under a name that no model can have"),
        }
        Ok(())
    }

    /// The id and stream of `name`, as far as its document is readable.
    fn owner_and_stream(
        &self,
        key: &RegistryKey,
        name: &ModelName,
    ) -> Result<(Option<ModelId>, Option<StreamName>), ManagerError> {
        #[derive(Deserialize)]
        struct OfModel {
            config: OfSelection,
        }
        #[derive(Deserialize)]
        struct OfSelection {
            stream: StreamName,
        }
        let is_model = *key == model_key(name)?;
        let read = if is_model {
            self.storage.registry().get::<OfModel>(key).map(|found| found.map(|OfModel { config }| config.stream))
        } else {
            self.storage.registry().get::<OfSelection>(key).map(|found| found.map(|OfSelection { stream }| stream))
        };
        let stream = match read {
            Err(StorageError::Document { .. }) => None,
            other => other?,
        };
        let id = if is_model { self.identity_of_model(name) } else { self.identity_of_selection(name) };
        let id = match id {
            Err(ManagerError::Io { .. }) => None,
            other => other?,
        };
        Ok((id, stream))
    }

    /// Removes version directories that the registry does not name, left by an interrupted switch.
    fn remove_unnamed_versions(&self, record: &ModelRecord) -> Result<(), ManagerError> {
        self.remove_versions(record, |_| true)
    }

    /// Removes what a node of a cluster that has stopped has left. A version with a number that the
    /// registry does not have yet stays: its registration may still have to be applied.
    fn remove_left_versions(&self, record: &ModelRecord) -> Result<(), ManagerError> {
        self.remove_versions(record, |number| number.is_none_or(|version| version <= record.newest))
    }

    /// Removes the directories of versions that another node has pruned.
    ///
    /// # Errors
    /// `Storage` or `Io`.
    pub(crate) fn remove_pruned_versions(&self, record: &ModelRecord) -> Result<(), ManagerError> {
        self.remove_versions(record, |number| number.is_some_and(|version| version <= record.newest))
    }

    /// Removes those of the directories that are not named by the registry for whose number, if they
    /// have one, `is_left` holds.
    fn remove_versions(
        &self,
        record: &ModelRecord,
        is_left: impl Fn(Option<VersionId>) -> bool,
    ) -> Result<(), ManagerError> {
        let keys = self.storage.registry().keys(&versions_key(&record.config.name)?)?;
        let named: Vec<u64> = keys.iter().filter_map(|key| key.parts().last()?.parse().ok()).collect();
        let dir = versions_dir(&self.storage, record.identity());
        let entries = match fs::read_dir(&dir) {
            // The model was made on another node.
            Err(missing) if self.is_in_cluster() && missing.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(ManagerError::io(&dir))?,
        };
        for entry in entries {
            let entry = entry.map_err(ManagerError::io(&dir))?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(VersionId);
            if !named.iter().any(|version| entry.file_name() == version.to_string().as_str()) && is_left(number) {
                tracing::warn!(path = %entry.path().display(), "removing an unfinished version");
                remove_dir(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Whether an error affects more than one model: the disk, or the store as a whole.
fn is_of_the_store(error: &ManagerError) -> bool {
    match error {
        ManagerError::Storage(error) | ManagerError::Predictor(PredictorError::Storage(error)) => {
            !matches!(error, StorageError::Document { .. })
        }
        _ => false,
    }
}

/// The name in a document must match its key.
fn check_name(key: &RegistryKey, name: &ModelName) -> Result<(), ManagerError> {
    if key.parts().get(1).is_some_and(|part| part == name.as_str()) {
        return Ok(());
    }
    Err(unfit(key, format!("its name is {name}")))
}

/// The error for a document that can be parsed but has invalid contents.
pub(super) fn unfit(key: &RegistryKey, reason: String) -> ManagerError {
    StorageError::Document { key: key.to_string(), reason }.into()
}
