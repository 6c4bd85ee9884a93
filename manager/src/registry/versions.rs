//! Changes of the versions of a model: registration, pins and pruning.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use celeris_features::{LoadedVersion, PartNotes};
use celeris_formats::{FormatError, MANIFEST_FILE, Manifest};
use celeris_model::{Decision, ModelId, ModelName, Partition, VersionId};
use celeris_predictor::{Predictor, ServingVersion};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError, Watermark, faults};

use super::keys::{model_key, version_key};
use super::version_directory::{check_fits, serving};
use super::{Actor, Event, EventKind, ModelRecord, Registry, VersionPart, VersionRecord, versions_dir};
use crate::directories::{remove_dir, sync_dir};
use crate::error::ManagerError;
use crate::leadership::Term;
use crate::settings::ModelConfig;

/// The versions of all models, which are added and removed here.
pub struct VersionStore {
    pub(super) storage: Storage,
    pub(super) registry: Arc<Registry>,
    predictor: Arc<Predictor>,
    /// Folder from which version directories may be registered.
    pub(super) import_dir: Option<PathBuf>,
}

impl VersionStore {
    pub(crate) fn new(
        storage: Storage,
        registry: Arc<Registry>,
        predictor: Arc<Predictor>,
        import_dir: Option<PathBuf>,
    ) -> Self {
        Self { storage, registry, predictor, import_dir }
    }

    /// Reads a version directory that is to become a version of the model, from a training of this
    /// node or an external job. Every version enters the registry through this function, which
    /// bounds its numbers. Its contents are untrusted: everything is checked here or by
    /// [`celeris_features::read_version`].
    ///
    /// # Errors
    /// `Features` if the directory is damaged, a number exceeds its bound, or it was trained on
    /// more than the log holds; `WrongVersion` if it belongs to another model.
    pub(crate) fn read_candidate(&self, config: &ModelConfig, dir: &Path) -> Result<LoadedVersion, ManagerError> {
        let loaded = self.registry.read_directory(dir)?;
        check_fits(config, &loaded)?;
        check_watermarks(&loaded.manifest, &self.storage.log().watermark(&config.stream))
            .map_err(|problem| ManagerError::from(FormatError::Manifest { path: dir.join(MANIFEST_FILE), problem }))?;
        Ok(loaded)
    }

    /// Registers a finished version directory as the model's newest version, without activating it,
    /// unless the term is over.
    /// Move and registration are one step: the next start removes a directory that the registry
    /// does not name. `note` receives the active version and the new record to complete; the event
    /// that it returns is written with the registration.
    ///
    /// # Errors
    /// `UnknownModel`, `WrongVersion` if the directory belongs to another model, `Io` or `Storage`.
    pub(crate) fn admit(
        &self,
        (record, term): (&ModelRecord, &Term),
        finished: &Path,
        loaded: LoadedVersion,
        note: impl FnOnce(VersionId, &mut VersionRecord) -> Option<Event>,
    ) -> Result<(VersionRecord, ServingVersion), ManagerError> {
        let _changing = self.registry.lock_changes_in(term)?;
        let mut record = self.registry.current(record)?;
        check_fits(&record.config, &loaded)?;
        let version = record.newest.next();
        let dir = self.registry.version_dir(&record, version);
        let versions_dir = versions_dir(&self.storage, record.identity());
        remove_dir(&dir)?;
        fs::create_dir_all(&versions_dir).map_err(ManagerError::io(&dir))?;
        fs::rename(finished, &dir).map_err(ManagerError::io(&dir))?;
        sync_dir(&versions_dir)?;
        let half_life = record.config.half_life;
        let description = VersionRecord::new(version, loaded.theta.items().len(), half_life, &loaded.manifest);
        let mut description = description.in_dir(&dir)?;
        let parts = loaded.parts.iter().flat_map(|parts| parts.notes());
        let part = |(name, noted): (&str, &PartNotes)| VersionPart {
            part: name.to_owned(),
            unread_fields: noted.unread_fields.clone(),
            is_constant: noted.is_constant,
        };
        description.parts = parts.map(part).collect();
        // Only the node's own jobs know which records the training left out, so assume none.
        let log = || self.storage.log().watermark(&record.config.stream);
        description.holdout_from = Some(description.watermark.clone().unwrap_or_else(log));
        let event = note(record.active, &mut description);
        let serving = serving(&record, (version, half_life), loaded)?;
        record.newest = version;
        let model = &record.config.name;
        let mut batch = RegistryBatch::new();
        batch.put(version_key(model, version)?, &description)?;
        batch.put(model_key(model)?, &record)?;
        self.registry.audit().commit(batch, event.as_slice())?;
        Ok((description, serving))
    }

    /// Exempts a version from pruning.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownVersion` or `Storage`.
    pub fn pin(&self, model: &ModelName, version: VersionId) -> Result<VersionRecord, ManagerError> {
        self.set_pinned(model, version, EventKind::Pinned)
    }

    /// Makes a version subject to pruning again.
    ///
    /// # Errors
    /// Same as [`VersionStore::pin`].
    pub fn unpin(&self, model: &ModelName, version: VersionId) -> Result<VersionRecord, ManagerError> {
        self.set_pinned(model, version, EventKind::Unpinned)
    }

    fn set_pinned(
        &self,
        model: &ModelName,
        version: VersionId,
        kind: EventKind,
    ) -> Result<VersionRecord, ManagerError> {
        let _changing = self.registry.lock_changes()?;
        let of = self.registry.model(model)?;
        let mut record = self.registry.version(model, version)?;
        let pinned = kind == EventKind::Pinned;
        if record.pinned != pinned {
            record.pinned = pinned;
            let mut batch = RegistryBatch::new();
            batch.put(version_key(model, version)?, &record)?;
            let event = Event::now(of.identity(), kind, Actor::Operator, "on request").with("version", version.0);
            self.registry.audit().commit(batch, &[event])?;
        }
        Ok(record)
    }

    /// Removes the oldest versions beyond the model's `keep_versions`. The active version, the
    /// target of a rollback, the previous version of a running guard, and pinned versions are kept,
    /// and do not count.
    ///
    /// The registry is changed first: the versions that it names are always complete, and the next
    /// start removes directories left by a crash.
    ///
    /// # Errors
    /// `UnknownModel`, `Storage` or `Io`.
    pub(crate) fn prune(&self, record: &ModelRecord, term: &Term) -> Result<Vec<VersionId>, ManagerError> {
        let (model, id) = record.identity();
        let pruned = {
            let _changing = self.registry.lock_changes_in(term)?;
            let mut record = self.registry.current(record)?;
            let protected = protected(&record);
            let unprotected = |version: &VersionRecord| !version.pinned && !protected.contains(&version.version);
            let pruned: Vec<VersionId> = self
                .registry
                .versions(model)?
                .into_iter()
                .filter(unprotected)
                .skip(record.config.keep_versions as usize)
                .map(|version| version.version)
                .collect();
            if pruned.is_empty() {
                return Ok(pruned);
            }
            record.served.retain(|version| !pruned.contains(version));
            let mut batch = RegistryBatch::new();
            let mut events = Vec::new();
            for version in &pruned {
                batch.delete(version_key(model, *version)?);
                batch.put(pruned_key(id, *version)?, &(model.clone(), id, *version))?;
                let why = format!("the model keeps {} versions", record.config.keep_versions);
                events
                    .push(Event::now(record.identity(), EventKind::Pruned, Actor::Job, why).with("version", version.0));
            }
            batch.put(model_key(model)?, &record)?;
            self.registry.audit().commit(batch, &events)?;
            pruned
        };
        faults::reach("pruning");
        for version in &pruned {
            remove_pruned(&self.storage, (model, id), *version)?;
        }
        Ok(pruned)
    }

    /// Returns the version under which a decision was made, or `None` if it has been pruned.
    ///
    /// # Errors
    /// `UnknownModel`, `Storage`, or `Features` if the version cannot be read.
    pub fn of_decision(&self, decision: &Decision) -> Result<Option<Arc<ServingVersion>>, ManagerError> {
        let model = decision.scored_by();
        let active = self.predictor.models().active(model)?;
        if active.id == decision.version {
            return Ok(Some(active));
        }
        let record = self.registry.model(model)?;
        match self.registry.version(model, decision.version) {
            Ok(_) => Ok(Some(Arc::new(self.registry.load(&record, decision.version)?))),
            Err(ManagerError::UnknownVersion { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Removes the files of a pruned version.
fn remove_pruned(storage: &Storage, model: (&ModelName, ModelId), version: VersionId) -> Result<(), ManagerError> {
    remove_dir(&versions_dir(storage, model).join(version.to_string()))?;
    storage.items().delete_frozen(model.1, version)?;
    let mut batch = RegistryBatch::new();
    batch.delete(pruned_key(model.1, version)?);
    Ok(storage.registry().commit(&batch)?)
}

/// Finishes prunings that a stopped node had started.
pub(super) fn finish_pruning(storage: &Storage) -> Result<(), ManagerError> {
    let pruned = storage.registry().list::<(ModelName, ModelId, VersionId)>(&all_pruned_key()?)?;
    for (_, pruned) in pruned {
        match pruned {
            Ok((model, id, version)) => {
                if let Err(error) = remove_pruned(storage, (&model, id), version) {
                    tracing::warn!(%model, %version, %error, "cannot remove all files of a pruned version; retried at start");
                }
            }
            Err(error) => tracing::error!(%error, "cannot read which pruned versions to remove"),
        }
    }
    Ok(())
}

/// The versions that must not be pruned.
fn protected(record: &ModelRecord) -> BTreeSet<VersionId> {
    let mut protected = BTreeSet::from([record.active]);
    protected.extend(record.served.last());
    protected.extend(record.guarding.as_ref().map(|guarding| guarding.against));
    protected
}

/// Checks that a version was not trained on more than the log holds: triggers and erasure receipts
/// rely on it.
fn check_watermarks(manifest: &Manifest, log: &Watermark) -> Result<(), String> {
    let of_training = watermark("watermark", &manifest.watermark, log)?;
    let Some(warm) = &manifest.warm else { return Ok(()) };
    watermark("warm.cold_watermark", &warm.cold_watermark, of_training.as_ref().unwrap_or(log)).map(drop)
}

/// A watermark of a manifest, which must be at or before `end`; `None` for null.
fn watermark(field: &str, value: &serde_json::Value, end: &Watermark) -> Result<Option<Watermark>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let read: Watermark = serde_json::from_value(value.clone())
        .map_err(|error| format!("{field} is not null and not one sequence for each partition: {error}"))?;
    match Partition::all().find(|partition| read.get(*partition) > end.get(*partition)) {
        None => Ok(Some(read)),
        Some(partition) => Err(format!(
            "{field} says {} in partition {}, where there are {} records to train on; register a version that was \
             trained on this model's stream",
            read.get(partition).0,
            partition.index(),
            end.get(partition).0
        )),
    }
}

/// Pruned versions whose files may still exist.
fn all_pruned_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["pruned"])
}

fn pruned_key(model: ModelId, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["pruned".to_owned(), model.to_string(), version.to_string()])
}
