//! What the trials of a study read, on this machine.

use std::io::{BufReader, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use celeris_manager::{Manager, ManagerOptions, TrainingOptions, TrialData, TrialWorker};
use celeris_predictor::{Predictor, PredictorOptions};
use celeris_storage::{CopyError, Storage, StorageOptions};

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

/// Why there are no records.
#[derive(Debug)]
pub enum FetchError {
    /// The node does not give them: the trial is not this worker's any more.
    Refused(String),
    /// The node ended, or the connection broke.
    Cut(String),
    /// They cannot be kept or read here.
    Failed(Failure),
}

impl From<Failure> for FetchError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Records {
    /// Fetches what the trials of a study read, for a worker of this name.
    ///
    /// # Errors
    /// If the node refuses, what comes is cut off, or the node runs another version.
    pub fn fetch(
        client: &NodeClient,
        study: &str,
        (name, scratch, training): (&str, Option<&Path>, &TrainingOptions),
    ) -> Result<Self, FetchError> {
        let folder = Folder::new(scratch).map_err(|error| Failure::bad_input(format!("--scratch: {error}")))?;
        let path = format!("/v1/studies/{study}/data?worker={}", escaped(name));
        let incoming = client.open(&path).map_err(|failure| match failure {
            Failure::BadInput(why) => FetchError::Refused(why),
            Failure::Other(why) => FetchError::Cut(why),
        })?;
        let mut incoming = BufReader::new(incoming);
        let failed = |error: CopyError| match error {
            CopyError::Storage(error) => FetchError::Failed(error.into()),
            CopyError::Transfer(of) if of.kind() == ErrorKind::InvalidData => {
                FetchError::Failed(Failure::other(format!("{}: {of}", client.url())))
            }
            CopyError::Transfer(_) => FetchError::Cut(error.to_string()),
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
        let manager = Manager::open(storage, Arc::new(predictor), options).map_err(Failure::from)?;
        let worker = manager.trial_worker(data).map_err(Failure::from)?;
        Ok(Self { study: study.to_owned(), worker, _manager: manager, _folder: folder })
    }

    /// Whether the trials of a study read these, which need the data of this number.
    pub fn are_of(&self, study: &str, data: u64) -> bool {
        self.study == study && self.worker.data() == data
    }

    pub fn worker(&self) -> &TrialWorker {
        &self.worker
    }
}
