//! A node of a cluster that follows the registry: brings its memory and its files in line with what
//! the node that leads has written.
//!
//! What is cheap is done at once with each commit of the catalog ([`Following::applied`]): settings,
//! monitors, events, jobs, items, the removal of models, and the switch to a version that is
//! prepared. The rest is done by a thread (`reconcile.rs`), which compares the registry with what
//! the predictor serves, so that it does not matter how many commits it has missed: versions are
//! fetched, loaded and warmed, objects of pipelines are fetched, and files of deleted models and versions are removed. It tries again
//! what fails. Until then a model serves the version before, or is out of service if there is none.
//!
//! Nothing is written to the registry here. The thread runs on the node that leads too, which may
//! begin to lead before it has all versions; what that node changes itself is in line already.

mod reconcile;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use celeris_model::{ModelId, ModelName, VersionId};
use celeris_predictor::{Predictor, Prepared};
use celeris_storage::{ChangedItem, RegistryKey, Storage, StorageError};
use parking_lot::{Condvar, Mutex};

use self::reconcile::Retry;
use crate::cluster::{Peers, readiness_of};
use crate::error::ManagerError;
use crate::monitoring::Monitoring;
use crate::pipelines::Pipelines;
use crate::registry::{ModelRecord, Registry, VersionStore, names_by_id};
use crate::training::Training;

/// Changed items that wait to be read again, after a failure. Beyond it the oldest are dropped: they
/// are read when the node starts again.
const ITEMS_WAITING_MAX: usize = 1 << 20;

/// Kinds of documents that the thread compares with files or versions in memory.
const RECONCILED: [&str; 7] = ["model", "version", "selection", "prepared", "deleted", "pruned", "pipeline"];

/// The components that are brought in line.
pub(crate) struct Following {
    pub(crate) storage: Storage,
    pub(crate) predictor: Arc<Predictor>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) versions: Arc<VersionStore>,
    pub(crate) monitoring: Arc<Monitoring>,
    pub(crate) training: Arc<Training>,
    pub(crate) pipelines: Arc<Pipelines>,
    /// `None` if versions are not fetched.
    pub(crate) peers: Option<Peers>,
    pub(crate) state: Mutex<State>,
    pub(crate) woken: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    is_woken: bool,
    /// Whether the thread compares.
    is_working: bool,
    is_stopping: bool,
    /// Changed items that could not be taken in.
    items: Vec<ChangedItem>,
    /// Whether a document could not be read, so that all are read again.
    is_stale: bool,
    /// Versions that are loaded and warm, and not active yet.
    prepared: HashMap<ModelId, Prepared>,
    /// Versions whose directory was found whole.
    here: HashSet<(ModelId, VersionId)>,
    /// What has failed.
    retries: HashMap<(ModelId, VersionId), Retry>,
}

/// The thread; it ends when this is dropped.
pub(crate) struct FollowingThread {
    following: Arc<Following>,
    thread: Option<JoinHandle<()>>,
}

impl FollowingThread {
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(following: Arc<Following>) -> io::Result<Self> {
        let worker = Arc::clone(&following);
        let thread = std::thread::Builder::new().name("celeris-follow".to_owned()).spawn(move || worker.run())?;
        Ok(Self { following, thread: Some(thread) })
    }

    pub(crate) fn following(&self) -> &Following {
        &self.following
    }
}

impl Drop for FollowingThread {
    fn drop(&mut self) {
        self.following.state.lock().is_stopping = true;
        self.following.woken.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that follows the registry panicked");
        }
    }
}

impl Following {
    /// Takes in one commit of another node, which the store has applied.
    pub(crate) fn applied(&self, documents: &[RegistryKey], items: &[ChangedItem]) {
        if !items.is_empty() {
            self.take_in(items);
        }
        if let Err(error) = self.take_in_documents(documents) {
            tracing::warn!(%error, "documents of the registry cannot be read; retrying");
            self.state.lock().is_stale = true;
            self.wake();
        } else if documents.iter().filter_map(|key| key.parts().first()).any(|kind| RECONCILED.contains(&kind.as_str()))
        {
            self.wake();
        }
    }

    /// Versions that this node serves or has prepared, as reports of readiness name them.
    pub(crate) fn ready(&self) -> Vec<String> {
        let models = self.predictor.models();
        let active = models.names().into_iter().filter_map(|name| models.active(&name).ok());
        let mut ready: BTreeSet<(ModelId, VersionId)> = active.map(|version| (version.model_id, version.id)).collect();
        ready.extend(self.state.lock().prepared.iter().map(|(model, prepared)| (*model, prepared.version().id)));
        ready.into_iter().map(readiness_of).collect()
    }

    /// What has failed and is tried again, in words.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.state.lock().retries.values().map(|retry| retry.reason.clone()).collect()
    }

    /// Has the thread compare everything.
    pub(crate) fn wake(&self) {
        self.state.lock().is_woken = true;
        self.woken.notify_all();
    }

    /// Waits until the thread has compared everything, at most for this time.
    pub(crate) fn settle(&self, at_most: Duration) {
        let mut state = self.state.lock();
        // What is not done by then goes on.
        let _ = self.woken.wait_while_for(&mut state, |state| state.is_woken || state.is_working, at_most);
    }

    fn take_in(&self, items: &[ChangedItem]) {
        if let Err(error) = self.predictor.catalog().take_in_applied(items) {
            tracing::warn!(%error, "changed items cannot be read; retrying");
            let mut state = self.state.lock();
            state.items.extend_from_slice(items);
            let excess = state.items.len().saturating_sub(ITEMS_WAITING_MAX);
            state.items.drain(..excess);
            drop(state);
            self.wake();
        }
    }

    fn take_in_documents(&self, documents: &[RegistryKey]) -> Result<(), ManagerError> {
        let mut models = BTreeSet::new();
        for key in documents {
            let [kind, of, ..] = key.parts() else { continue };
            let id = || of.parse().ok().map(ModelId);
            match kind.as_str() {
                "events" => id().map_or(Ok(()), |id| self.registry.audit().reload_of(id))?,
                "job" => self.training.jobs().reload(of)?,
                "quality" => models.extend(id().and_then(|id| self.monitoring.name_of(id))),
                "model" => models.extend(ModelName::new(of.as_str()).ok()),
                "selection" => {
                    if let Ok(name) = ModelName::new(of.as_str()) {
                        self.bring_selection_in_line(&name)?;
                    }
                }
                _ => {}
            }
        }
        models.iter().try_for_each(|model| self.bring_in_line(model))
    }

    /// Brings the memory in line with the record of a model, as far as that is quick.
    fn bring_in_line(&self, model: &ModelName) -> Result<(), ManagerError> {
        let _changing = self.registry.lock_for_others();
        let activation = self.predictor.activation();
        let record = match self.registry.any_model(model) {
            // The thread takes it out of service.
            Err(StorageError::Document { .. }) => return Ok(()),
            record => record?,
        };
        let served = self.predictor.models().active(model).ok();
        let is_of = |record: &ModelRecord| served.as_ref().is_none_or(|served| served.model_id == record.id);
        if !record.as_ref().is_some_and(is_of) {
            activation.remove(model);
            let ids: BTreeSet<ModelId> = names_by_id(&self.storage)?.into_keys().collect();
            self.monitoring.retain(&ids);
            self.registry.audit().retain(&ids);
            self.state.lock().prepared.retain(|id, _| ids.contains(id));
        }
        let Some(record) = record else { return Ok(()) };
        self.registry.audit().begin(record.id, &record.config.stream);
        self.monitoring.bring_in_line(&record)?;
        let served = served.filter(|served| served.model_id == record.id);
        if served.as_ref().is_none_or(|served| served.id != record.active) {
            if let Some(prepared) = self.take_prepared(&record) {
                self.switch(&record, prepared);
                return Ok(());
            }
            if served.is_none() {
                self.registry.take_unfetched_out(&record)?;
            }
        }
        activation.configure(model, record.config.serving());
        Ok(())
    }

    fn bring_selection_in_line(&self, name: &ModelName) -> Result<(), ManagerError> {
        let _changing = self.registry.lock_for_others();
        let id = self.registry.id_of_selection(name)?;
        let models = self.predictor.models();
        if models.selection_ids().iter().any(|(other, served)| other == name && Some(*served) != id) {
            models.remove_selection(name);
        }
        if id.is_none() {
            self.predictor.activation().remove(name);
        }
        Ok(())
    }

    /// The active version of a model, if it was prepared.
    fn take_prepared(&self, record: &ModelRecord) -> Option<Prepared> {
        let mut state = self.state.lock();
        let is_active = state.prepared.get(&record.id).is_some_and(|prepared| prepared.version().id == record.active);
        if is_active { state.prepared.remove(&record.id) } else { None }
    }

    /// Serves the active version of a model.
    ///
    /// The caller guarantees that it holds the lock of changes.
    fn switch(&self, record: &ModelRecord, prepared: Prepared) {
        let (model, activation) = (&record.config.name, self.predictor.activation());
        if self.predictor.models().active(model).is_err() {
            // It is not out of service any more.
            activation.remove(model);
        }
        activation.switch(record.config.serving(), prepared);
        tracing::info!(%model, version = %record.active, "version serves");
        activation.release(record.identity(), &[record.active]);
    }
}
