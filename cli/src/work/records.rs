//! What the trials of a study read, on this machine.

use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use celeris_manager::{Manager, ManagerOptions, TrainingOptions, TrialData, TrialWorker};
use celeris_predictor::{Predictor, PredictorOptions};
use celeris_storage::{CopyError, Storage, StorageOptions};

use super::Assigned;
use crate::Failure;
use crate::node_client::{NodeClient, escaped};
use crate::scratch::Folder;

/// The only model of the store.
const MODELS_MAX: usize = 1;

/// A store with the records and items of a study, which is removed when this is dropped.
pub struct Records {
    study: String,
    worker: TrialWorker,
    /// Keeps the store and its caches open.
    _manager: Arc<Manager>,
    /// Last, so that the store is closed before it is removed.
    _folder: Folder,
}

impl Records {
    /// Fetches what the trials of a study read, for a worker of this name.
    ///
    /// # Errors
    /// If the node refuses, what comes is cut off, or the node runs another version.
    pub fn fetch(
        client: &NodeClient,
        assigned: &Assigned,
        (name, scratch, training): (&str, Option<&Path>, &TrainingOptions),
    ) -> Result<Self, Failure> {
        let folder = Folder::new(scratch).map_err(|error| Failure::bad_input(format!("--scratch: {error}")))?;
        let path = format!("/v1/studies/{}/data?worker={}", assigned.study, escaped(name));
        let mut incoming = BufReader::new(client.open(&path)?);
        let failed = |error: CopyError| match error {
            CopyError::Storage(error) => Failure::from(error),
            CopyError::Transfer(_) => Failure::other(format!("{}: {error}", client.url())),
        };
        let data = TrialData::read(&mut incoming).map_err(failed)?;
        // Trainers run in another working folder and must find the same files.
        let dir = std::path::absolute(folder.path().join("data")).map_err(Failure::other)?;
        let storage = Storage::open_copy(&dir, &StorageOptions::default(), &mut incoming).map_err(failed)?;
        let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
        let options = ManagerOptions {
            models_max: MODELS_MAX,
            trainer: std::env::current_exe().map_err(Failure::other)?,
            training: training.clone(),
            import_dir: None,
        };
        let manager = Manager::open(storage, Arc::new(predictor), options)?;
        let worker = manager.trial_worker(data)?;
        Ok(Self { study: assigned.study.clone(), worker, _manager: manager, _folder: folder })
    }

    /// Whether a trial reads these.
    pub fn are_of(&self, assigned: &Assigned) -> bool {
        self.study == assigned.study && self.worker.data() == assigned.data
    }

    pub fn worker(&self) -> &TrialWorker {
        &self.worker
    }
}
