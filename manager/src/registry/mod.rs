//! The registry: documents of models, versions and selections, their audit log, and the directories
//! of versions.
//!
//! The registry in storage is authoritative: a version exists once the registry names it. Every
//! change is one atomic write, with its events in the audit log. A change locks the registry
//! (`lock_changes`) while it reads, decides and writes.

mod audit;
mod backup;
mod deletion;
mod erasures;
mod fetching;
mod gate_report;
mod importing;
mod keys;
mod opening;
mod records;
mod reward_cursors;
mod selections;
mod version_directory;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use celeris_features::{LoadedVersion, read_version_sharing};
use celeris_model::{ModelId, ModelName, VersionId};
use celeris_predictor::{Predictor, ServingVersion};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::{Mutex, MutexGuard};
use serde::de::IgnoredAny;

pub use self::audit::{Actor, AuditLog, Event, EventKind, EventPage, NumberedEvent};
pub(crate) use self::backup::{VersionsKept, complete_versions, link_files, link_versions};
pub use self::deletion::names_by_id;
pub use self::erasures::{AffectedVersion, ErasedSpan, erased_users};
pub(crate) use self::erasures::{began_with_erased, trained_on_erased};
pub use self::fetching::VersionFile;
pub use self::gate_report::{GateReport, Verdict};
pub(crate) use self::keys::{
    model_key, models_key, prepared_key, prepared_keys, selections_key, version_key, versions_key,
};
pub use self::opening::{NameKind, Unavailable};
pub use self::records::{Guarding, ModelRecord, SERVED_MAX, VersionPart, VersionRecord, WarmRecord};
pub(crate) use self::reward_cursors::{begin_default_rewards, cursor_key, cursors_key};
pub use self::selections::{NewSelection, ScopeKind, SelectionRecord};
pub(crate) use self::version_directory::{UNTRAINED, serving, versions_dir};
pub use self::versions::VersionStore;

use self::keys::{last_id_key, selection_key};
use self::opening::unfit;
use self::versions::finish_pruning;
use crate::error::ManagerError;
use crate::leadership::{Leadership, Term};
use crate::pipelines::SharedPipelines;

/// Models, versions and selections of a node.
pub struct Registry {
    storage: Storage,
    predictor: Arc<Predictor>,
    /// Maximum number of models and selections on this node.
    models_max: usize,
    audit: AuditLog,
    leadership: Arc<Leadership>,
    pipelines: Arc<SharedPipelines>,
    /// Held while models or versions are changed, so that read, decision and write are atomic.
    changing: Mutex<()>,
}

impl Registry {
    /// Opens the registry: loads the active version of every model and the selections into the
    /// predictor. A model that cannot be read is out of service ([`Registry::unavailable`]). A node on
    /// its own finishes deletions and prunings first; one of a cluster writes nothing.
    ///
    /// # Errors
    /// `Storage`, or `Predictor` if the selections cannot read the log.
    pub(crate) fn open(
        storage: Storage,
        predictor: Arc<Predictor>,
        models_max: usize,
        leadership: Arc<Leadership>,
        pipelines: Arc<SharedPipelines>,
    ) -> Result<Arc<Self>, ManagerError> {
        let audit = AuditLog::open(storage.clone())?;
        let registry =
            Self { storage, predictor, models_max, audit, leadership, pipelines, changing: Mutex::default() };
        if !registry.is_in_cluster() {
            registry.finish_interrupted()?;
        }
        registry.open_models()?;
        registry.open_selections()?;
        Ok(Arc::new(registry))
    }

    /// The audit log of all models.
    #[must_use]
    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    /// Finishes the deletions and prunings of a node that has stopped, or does not lead any more.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn finish_interrupted(&self) -> Result<(), ManagerError> {
        self.finish_deletions()?;
        finish_pruning(&self.storage)
    }

    /// The term in which this node leads.
    ///
    /// # Errors
    /// `Storage(NotOwner)` if it does not.
    pub(crate) fn term(&self) -> Result<Term, ManagerError> {
        self.leadership.term()
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.leadership.is_leading()
    }

    /// Whether this node is one of a cluster.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.storage.replica().is_some()
    }

    /// Locks models and versions against other changes, so that a change reads, decides and writes
    /// atomically.
    ///
    /// # Errors
    /// `Storage(NotOwner)` unless this node leads.
    pub(crate) fn lock_changes(&self) -> Result<MutexGuard<'_, ()>, ManagerError> {
        let changing = self.changing.lock();
        self.term()?;
        Ok(changing)
    }

    /// The same for a change that belongs to a term.
    ///
    /// # Errors
    /// `Storage(NotOwner)` once the term is over.
    pub(crate) fn lock_changes_in(&self, term: &Term) -> Result<MutexGuard<'_, ()>, ManagerError> {
        let changing = self.changing.lock();
        term.check()?;
        Ok(changing)
    }

    /// Locks models and versions against changes of this node, to bring the memory in line with
    /// those of others.
    pub(crate) fn lock_for_others(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// The readable records of all models, in service or not.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn all_models(&self) -> Result<Vec<ModelRecord>, StorageError> {
        let records = self.storage.registry().list::<ModelRecord>(&models_key()?)?;
        Ok(records.into_iter().filter_map(|(_, record)| record.ok()).collect())
    }

    /// The record of a model, in service or not; `None` if there is none of that name.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn any_model(&self, model: &ModelName) -> Result<Option<ModelRecord>, StorageError> {
        self.storage.registry().get(&model_key(model)?)
    }

    /// All models in service, by name; see [`Registry::unavailable`] for the others.
    ///
    /// # Errors
    /// `Storage`.
    pub fn models(&self) -> Result<Vec<ModelRecord>, ManagerError> {
        let out = self.predictor.models().out_of_service();
        let records = self.storage.registry().list::<ModelRecord>(&models_key()?)?;
        let in_service = |(_, record): &(RegistryKey, Result<ModelRecord, StorageError>)| {
            !record.as_ref().is_ok_and(|record| out.contains_key(&record.config.name))
        };
        // Models that cannot be read were taken out of service at the start.
        Ok(records.into_iter().filter(in_service).filter_map(|(_, record)| record.ok()).collect())
    }

    /// # Errors
    /// `UnknownModel`, `IsSelection`, `Predictor` if the model is out of service, or `Storage`.
    pub fn model(&self, model: &ModelName) -> Result<ModelRecord, ManagerError> {
        self.predictor.models().check_in_service(model)?;
        if let Some(found) = self.storage.registry().get(&model_key(model)?)? {
            return Ok(found);
        }
        Err(match self.selection(model)? {
            Some(selection) => {
                let arms = selection.arms.iter().map(ModelName::as_str).collect::<Vec<_>>().join(", ");
                ManagerError::IsSelection { model: model.clone(), arms }
            }
            None => ManagerError::UnknownModel { model: model.clone() },
        })
    }

    /// The current record of a model; fails if the model was deleted and created again under its
    /// name.
    pub(crate) fn current(&self, record: &ModelRecord) -> Result<ModelRecord, ManagerError> {
        let (model, id) = record.identity();
        let current = self.model(model)?;
        if current.id == id { Ok(current) } else { Err(ManagerError::UnknownModel { model: model.clone() }) }
    }

    /// # Errors
    /// `UnknownVersion` or `Storage`.
    pub fn version(&self, model: &ModelName, version: VersionId) -> Result<VersionRecord, ManagerError> {
        let found = self.storage.registry().get(&version_key(model, version)?)?;
        found.ok_or_else(|| ManagerError::UnknownVersion { model: model.clone(), version })
    }

    /// The versions of a model, newest first.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn versions(&self, model: &ModelName) -> Result<Vec<VersionRecord>, ManagerError> {
        self.model(model)?;
        self.version_records(model)
    }

    /// The versions of a model, in service or not.
    pub(crate) fn version_records(&self, model: &ModelName) -> Result<Vec<VersionRecord>, ManagerError> {
        let mut versions = Vec::new();
        for (key, record) in self.storage.registry().list::<VersionRecord>(&versions_key(model)?)?.into_iter().rev() {
            let record = record?;
            if key != version_key(model, record.version)? {
                return Err(unfit(&key, format!("its version is {}", record.version)));
            }
            versions.push(record);
        }
        Ok(versions)
    }

    /// Reads a version of a model from its directory.
    ///
    /// # Errors
    /// `Features` for a damaged version, or `WrongVersion`.
    pub(crate) fn load(&self, record: &ModelRecord, version: VersionId) -> Result<ServingVersion, ManagerError> {
        let half_life = self.version(&record.config.name, version)?.half_life;
        version_directory::load(&self.version_dir(record, version), record, (version, half_life), &self.pipelines)
    }

    /// Reads a version directory; what its parts need is shared with what is in memory.
    ///
    /// # Errors
    /// `Features`.
    pub(crate) fn read_directory(&self, dir: &Path) -> Result<LoadedVersion, ManagerError> {
        Ok(read_version_sharing(dir, self.pipelines.compiled())?)
    }

    pub(crate) fn version_dir(&self, record: &ModelRecord, version: VersionId) -> PathBuf {
        versions_dir(&self.storage, record.identity()).join(version.to_string())
    }

    /// Fails if a model or selection has the name, in service or not, or if the node has no room
    /// for another.
    ///
    /// # Errors
    /// `ModelExists`, `TooManyModels` or `Storage`.
    pub(crate) fn check_vacant(&self, name: &ModelName) -> Result<(), ManagerError> {
        if self.is_in_registry(&model_key(name)?)? || self.is_in_registry(&selection_key(name)?)? {
            return Err(ManagerError::ModelExists { model: name.clone() });
        }
        let names = self.storage.registry().keys(&models_key()?)?.len()
            + self.storage.registry().keys(&selections_key()?)?.len();
        if names >= self.models_max {
            return Err(ManagerError::TooManyModels { max: self.models_max });
        }
        Ok(())
    }

    /// Whether the registry has a document under this key, readable or not.
    fn is_in_registry(&self, key: &RegistryKey) -> Result<bool, StorageError> {
        Ok(self.storage.registry().get::<IgnoredAny>(key)?.is_some())
    }

    /// The id that was allocated last.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn last_id(&self) -> Result<ModelId, StorageError> {
        Ok(self.storage.registry().get(&last_id_key()?)?.unwrap_or_default())
    }

    /// Has the next model get this id, in a registry without models.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn begin_ids_at(&self, id: ModelId) -> Result<(), ManagerError> {
        let mut batch = RegistryBatch::new();
        batch.put(last_id_key()?, &ModelId(id.0.saturating_sub(1)))?;
        Ok(self.storage.registry().commit(&batch)?)
    }

    /// An id that no model or selection has used before; it is allocated when `batch` is written.
    ///
    /// The caller guarantees that it holds the lock of changes until then.
    pub(crate) fn new_id(&self, batch: &mut RegistryBatch) -> Result<ModelId, ManagerError> {
        let id = self.last_id()?.next();
        batch.put(last_id_key()?, &id)?;
        Ok(id)
    }

    /// Writes the directory of the first version of a new model, which is untrained, and adds model
    /// and version to `batch`.
    ///
    /// # Errors
    /// `Features` or `Io` if the version cannot be written.
    pub(crate) fn write_untrained(
        &self,
        record: &ModelRecord,
        batch: &mut RegistryBatch,
    ) -> Result<ServingVersion, ManagerError> {
        let (version, dir) = (record.active, self.version_dir(record, record.active));
        let manifest = version_directory::write_untrained(&dir, &record.config, SystemTime::now().into())?;
        let half_life = record.config.half_life;
        let description = VersionRecord::new(version, 0, half_life, &manifest).in_dir(&dir)?;
        batch.put(version_key(&record.config.name, version)?, &description)?;
        batch.put(model_key(&record.config.name)?, record)?;
        version_directory::load(&dir, record, (version, half_life), &self.pipelines)
    }
}
