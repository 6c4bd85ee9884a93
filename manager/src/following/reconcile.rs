//! The work of the thread: compares the registry with versions in memory and with files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_model::{ModelId, ModelName, VersionId};
use celeris_predictor::{PredictorError, Prepared};
use celeris_storage::{RegistryKey, StorageError};

use super::{Following, State};
use crate::directories::remove_dir;
use crate::error::ManagerError;
use crate::low_priority::at_low_priority;
use crate::promotion::{Preparing, WARMING_MAX};
use crate::registry::{ModelRecord, VersionRecord, models_key, names_by_id, prepared_keys, selections_key};

/// Wait after the first failure; doubled after each, up to the longest.
const RETRY_AFTER: Duration = Duration::from_millis(250);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// A version that could not be prepared.
pub(crate) struct Retry {
    attempts: u32,
    at: Instant,
    pub(super) reason: String,
}

impl Retry {
    fn after(attempts: u32, reason: String) -> Self {
        let wait = RETRY_AFTER.saturating_mul(1 << attempts.min(10)).min(RETRY_AFTER_MAX);
        Self { attempts: attempts + 1, at: Instant::now() + wait, reason }
    }
}

impl Following {
    pub(super) fn run(self: Arc<Self>) {
        self.state.lock().is_working = true;
        loop {
            let failed = match self.reconcile() {
                Ok(()) => None,
                // The node is stopping.
                Err(
                    ManagerError::Storage(StorageError::Closed)
                    | ManagerError::Predictor(PredictorError::Storage(StorageError::Closed)),
                ) => return,
                Err(error) => {
                    tracing::warn!(%error, "this node cannot follow the registry; retrying");
                    Some(Instant::now() + RETRY_AFTER_MAX)
                }
            };
            let mut state = self.state.lock();
            state.is_working = false;
            self.woken.notify_all();
            let next = state.retries.values().map(|retry| retry.at).chain(failed).min();
            while !state.is_woken && !state.is_stopping {
                match next {
                    Some(at) if self.woken.wait_until(&mut state, at).timed_out() => break,
                    Some(_) => {}
                    None => self.woken.wait(&mut state),
                }
            }
            if state.is_stopping {
                return;
            }
            (state.is_woken, state.is_working) = (false, true);
        }
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    fn reconcile(&self) -> Result<(), ManagerError> {
        self.read_stale()?;
        self.remove_deleted()?;
        let objects = self.pipelines.fetch_objects();
        let mut wanted = BTreeSet::new();
        let mut records = Vec::new();
        for (key, record) in self.storage.registry().list::<ModelRecord>(&models_key()?)? {
            match record.map_err(ManagerError::from) {
                Ok(record) => {
                    let version = record.active;
                    wanted.insert((record.id, version));
                    let served = self.attempt((&record, version), || self.serve(&key, &record));
                    if let Some(Err(error)) = served
                        && self.predictor.models().active(&record.config.name).is_err()
                    {
                        self.registry.note_opened(&key, Err(error))?;
                    }
                    records.push(record);
                }
                Err(error) => self.registry.note_opened(&key, Err(error))?,
            }
        }
        wanted.extend(self.prepare_all(&records)?);
        for record in &records {
            wanted.extend(self.keep_files(record)?);
        }
        self.state.lock().retries.retain(|of, _| wanted.contains(of));
        self.open_selections()?;
        objects
    }

    /// Reads again what could not be read when it was applied.
    fn read_stale(&self) -> Result<(), ManagerError> {
        let items = std::mem::take(&mut self.state.lock().items);
        if !items.is_empty() {
            self.take_in(&items);
        }
        if std::mem::take(&mut self.state.lock().is_stale) {
            let read = || {
                self.registry.audit().reload()?;
                let documents: Vec<RegistryKey> = ["model", "selection", "job"]
                    .into_iter()
                    .map(|kind| self.storage.registry().keys(&RegistryKey::new([kind])?))
                    .collect::<Result<Vec<_>, StorageError>>()?
                    .concat();
                self.take_in_documents(&documents)
            };
            read().inspect_err(|_| self.state.lock().is_stale = true)?;
        }
        Ok(())
    }

    /// Performs work on a version unless it has failed a short time ago; `None` then. A failure is
    /// noted and returned.
    fn attempt(
        &self,
        (record, version): (&ModelRecord, VersionId),
        work: impl FnOnce() -> Result<(), ManagerError>,
    ) -> Option<Result<(), ManagerError>> {
        let of = (record.id, version);
        let attempts = {
            let state = self.state.lock();
            let waits = |retry: &&Retry| retry.at > Instant::now();
            if state.is_stopping || state.retries.get(&of).as_ref().is_some_and(waits) {
                return None;
            }
            state.retries.get(&of).map_or(0, |retry| retry.attempts)
        };
        let outcome = work();
        let mut state = self.state.lock();
        match &outcome {
            Ok(()) => drop(state.retries.remove(&of)),
            Err(error) => {
                let model = &record.config.name;
                tracing::warn!(%model, %version, %error, attempts, "a version is not ready on this node; retrying");
                let reason = format!("version {version} of {model}: {error}");
                state.retries.insert(of, Retry::after(attempts, reason));
            }
        }
        Some(outcome)
    }

    /// Serves the active version of a model, unless it does already.
    fn serve(&self, key: &RegistryKey, record: &ModelRecord) -> Result<(), ManagerError> {
        if self.serves(record) {
            return Ok(());
        }
        self.registry.check_record(key, record)?;
        let prepared = match self.take_prepared(record) {
            Some(prepared) => prepared,
            None => self.prepared(record, record.active)?,
        };
        let _changing = self.registry.lock_for_others();
        let current = self.registry.any_model(&record.config.name)?;
        let Some(current) = current.filter(|now| (now.id, now.active) == (record.id, record.active)) else {
            // The commit that has changed it has woken the thread.
            return Ok(());
        };
        if !self.serves(&current) {
            self.switch(&current, prepared);
        }
        self.registry.audit().begin(current.id, &current.config.stream);
        Ok(self.monitoring.bring_in_line(&current)?)
    }

    fn serves(&self, record: &ModelRecord) -> bool {
        let active = self.predictor.models().active(&record.config.name);
        active.is_ok_and(|active| (active.model_id, active.id) == (record.id, record.active))
    }

    /// Fetches, loads and warms a version.
    fn prepared(&self, record: &ModelRecord, version: VersionId) -> Result<Prepared, ManagerError> {
        let model = &record.config.name;
        self.get(record, &self.registry.version(model, version)?)?;
        let loaded = match self.registry.load(record, version) {
            Ok(loaded) => loaded,
            Err(error) => {
                if self.peers.is_some() && self.versions.remove_if_damaged(record, version)? {
                    self.state.lock().here.remove(&(record.id, version));
                }
                return Err(error);
            }
        };
        let activation = self.predictor.activation();
        let is_served = self.predictor.models().active(model).is_ok_and(|active| active.model_id == record.id);
        let warm = || {
            if is_served {
                activation.prepare(activation.hot(model)?, loaded, Instant::now() + WARMING_MAX)
            } else {
                activation.prepare_cold(&record.config.stream, loaded)
            }
        };
        Ok(at_low_priority("celeris-warm", warm)??)
    }

    /// Fetches a version unless it is here.
    fn get(&self, record: &ModelRecord, version: &VersionRecord) -> Result<(), ManagerError> {
        let of = (record.id, version.version);
        if self.state.lock().here.contains(&of) {
            return Ok(());
        }
        if !self.versions.is_here(record, version) {
            let Some(peers) = &self.peers else {
                let model = record.config.name.clone();
                return Err(ManagerError::NotFetched { model, version: version.version });
            };
            self.versions.fetch(record, version, &*peers.source, || self.is_stopping())?;
            tracing::info!(model = %record.config.name, version = %version.version, "fetched a version of another node");
        }
        self.state.lock().here.insert(of);
        Ok(())
    }

    /// Prepares the versions that models are about to be switched to, and drops the others. Returns
    /// the versions.
    fn prepare_all(&self, records: &[ModelRecord]) -> Result<BTreeSet<(ModelId, VersionId)>, ManagerError> {
        let mut wanted = BTreeMap::new();
        // The node that leads prepares its versions itself.
        if !self.registry.is_leading() {
            for (key, preparing) in self.storage.registry().list::<Preparing>(&prepared_keys()?)? {
                let id = key.parts().get(1).and_then(|id| id.parse().ok()).map(ModelId);
                if let (Some(id), Ok(preparing)) = (id, preparing) {
                    wanted.insert(id, preparing.version);
                }
            }
        }
        for record in records {
            // Not if it is active by now: then the commit that is being applied finds it.
            let current = self.registry.any_model(&record.config.name)?;
            let waits = current.is_some_and(|current| !self.serves(&current) && self.is_prepared(&current));
            if !waits && self.prepared_version(record.id) != wanted.get(&record.id).copied() {
                self.state.lock().prepared.remove(&record.id);
            }
        }
        for record in records {
            let Some(version) = wanted.get(&record.id) else { continue };
            if record.active == *version || self.prepared_version(record.id).is_some() {
                continue;
            }
            self.attempt((record, *version), || {
                let prepared = self.prepared(record, *version)?;
                self.state.lock().prepared.insert(record.id, prepared);
                Ok(())
            });
        }
        Ok(wanted.into_iter().collect())
    }

    fn prepared_version(&self, model: ModelId) -> Option<VersionId> {
        self.state.lock().prepared.get(&model).map(|prepared| prepared.version().id)
    }

    fn is_prepared(&self, record: &ModelRecord) -> bool {
        self.prepared_version(record.id) == Some(record.active)
    }

    /// Fetches the versions of a model that are not here, which a rollback may activate, and removes
    /// those that the registry does not name any more. Returns the versions that are to be here.
    fn keep_files(&self, record: &ModelRecord) -> Result<Vec<(ModelId, VersionId)>, ManagerError> {
        let versions = match self.registry.version_records(&record.config.name) {
            // The model is out of service.
            Err(ManagerError::Storage(StorageError::Document { .. })) => return Ok(Vec::new()),
            versions => versions?,
        };
        if self.peers.is_some() {
            for version in &versions {
                self.attempt((record, version.version), || self.get(record, version));
            }
        }
        if !self.registry.is_leading() {
            self.registry.remove_pruned_versions(record)?;
        }
        let tried = versions.iter().filter(|_| self.peers.is_some());
        Ok(tried.map(|version| (record.id, version.version)).collect())
    }

    fn open_selections(&self) -> Result<(), ManagerError> {
        for key in self.storage.registry().keys(&selections_key()?)? {
            let _changing = self.registry.lock_for_others();
            let Some(Ok(name)) = key.parts().get(1).map(|name| ModelName::new(name.as_str())) else { continue };
            let id = self.registry.id_of_selection(&name)?;
            let served = self.predictor.models().selection_ids();
            if id.is_some_and(|id| served.contains(&(name, id))) {
                continue;
            }
            let opened = self.registry.open_selection(&key);
            self.registry.note_opened(&key, opened)?;
        }
        Ok(())
    }

    /// Removes what this node has of models and selections that another node has deleted.
    fn remove_deleted(&self) -> Result<(), ManagerError> {
        if self.registry.is_leading() {
            return Ok(());
        }
        // Read before the names: ids up to it are not used again.
        let last = self.registry.last_id()?;
        let names = names_by_id(&self.storage)?;
        let registry = self.storage.registry();
        if registry.keys(&models_key()?)?.len() + registry.keys(&selections_key()?)?.len() != names.len() {
            // A document without a readable id may be that of any folder.
            return Ok(());
        }
        let is_deleted = |id: ModelId| id <= last && !names.contains_key(&id);
        for id in self.storage.decisions().models()?.into_iter().filter(|id| is_deleted(*id)) {
            self.storage.delete_own_data(id)?;
        }
        let dir = self.storage.dir().join("versions");
        let entries = match fs::read_dir(&dir) {
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(ManagerError::io(&dir))?,
        };
        for entry in entries {
            let entry = entry.map_err(ManagerError::io(&dir))?;
            let folder = entry.file_name();
            let id = folder.to_str().and_then(|folder| folder.rsplit_once('.')?.1.parse().ok()).map(ModelId);
            if let Some(id) = id.filter(|id| is_deleted(*id)) {
                self.storage.delete_own_data(id)?;
                remove_dir(&entry.path())?;
            }
        }
        self.state.lock().forget_deleted(&names);
        Ok(())
    }
}

impl State {
    fn forget_deleted(&mut self, names: &BTreeMap<ModelId, ModelName>) {
        self.here.retain(|(model, _)| names.contains_key(model));
    }
}
