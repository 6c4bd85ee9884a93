//! The manager: models created, listed, deleted, switched from version to version.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use celeris_features::{LoadedVersion, Manifest, Theta, VersionContents, read_version, write_version};
use celeris_model::{ModelName, Prior, Timestamp, VersionId};
use celeris_predictor::{LossEvent, Predictor, ServingVersion};
use celeris_storage::{CatalogBatch, Storage};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind, Events};
use crate::jobs::{Job, Jobs};
use crate::losses::{LossWindows, RecentLoss};
use crate::records::{DIM_MAX, DIM_MIN, ModelConfig, ModelRecord, VersionRecord, model_key, models_key, version_key};
use crate::watch::WatchStatus;

/// The bounds and the trainer of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerOptions {
    /// Models on this node.
    pub models_max: usize,
    /// The program that trains: called as `PROGRAM train --job FILE`.
    pub trainer: PathBuf,
}

/// The life cycle of all models of a node.
pub struct Manager {
    pub(crate) storage: Storage,
    pub(crate) predictor: Arc<Predictor>,
    pub(crate) options: ManagerOptions,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) events: Events,
    losses: LossWindows,
    /// How watches stand.
    pub(crate) watches: Mutex<HashMap<ModelName, WatchStatus>>,
    /// Held while a switch is prepared and made. Taken before `changing`.
    pub(crate) switching: Mutex<()>,
    /// Held while two versions are compared on request.
    pub(crate) comparing: Mutex<()>,
    /// Held while the catalog's models or versions change, so that a change is read, decided and written as one.
    pub(crate) changing: Mutex<()>,
}

impl Manager {
    /// Opens the catalog: loads every model's active version into the predictor, and removes what a stopped node left
    /// half done.
    ///
    /// # Errors
    /// `Storage` or `Features`, naming the file of an active version that cannot be read.
    pub fn open(
        storage: Storage,
        predictor: Arc<Predictor>,
        options: ManagerOptions,
    ) -> Result<Arc<Self>, ManagerError> {
        let (jobs, interrupted) = Jobs::open(storage.clone(), Timestamp::from(SystemTime::now()))?;
        let events = Events::open(storage.clone())?;
        let losses = LossWindows::default();
        let manager = Self {
            storage,
            predictor,
            options,
            jobs,
            events,
            losses,
            watches: Mutex::default(),
            switching: Mutex::default(),
            comparing: Mutex::default(),
            changing: Mutex::default(),
        };
        manager.finish_pruning()?;
        for job in &interrupted {
            manager.note_failure(job);
        }
        for record in manager.models()? {
            let model = &record.config.name;
            manager.remove_unnamed_versions(model)?;
            let version = manager.load(&record.config, record.active)?;
            manager.predictor.activate(&record.config.stream, record.config.defaults(), version);
            tracing::info!(%model, version = %record.active, "model serves");
        }
        remove_dir(&manager.jobs_dir())?;
        let manager = Arc::new(manager);
        for record in manager.models()? {
            manager.watch(&record);
        }
        Ok(manager)
    }

    /// Takes in loss events until the predictor is gone.
    pub async fn listen(self: Arc<Self>, mut losses: mpsc::Receiver<LossEvent>) {
        while let Some(event) = losses.recv().await {
            self.losses.add(&event);
        }
    }

    /// How well a model has predicted lately.
    #[must_use]
    pub fn recent_loss(&self, model: &ModelName) -> Option<RecentLoss> {
        self.losses.recent(model)
    }

    /// All models, by name.
    ///
    /// # Errors
    /// `Storage`.
    pub fn models(&self) -> Result<Vec<ModelRecord>, ManagerError> {
        let records = self.storage.list_catalog::<ModelRecord>(&models_key()?)?;
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// One model.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn model(&self, model: &ModelName) -> Result<ModelRecord, ManagerError> {
        let found = self.storage.catalog(&model_key(model)?)?;
        found.ok_or_else(|| ManagerError::UnknownModel { model: model.clone() })
    }

    /// One job.
    ///
    /// # Errors
    /// `UnknownJob`.
    pub fn job(&self, job: &str) -> Result<Job, ManagerError> {
        self.jobs.get(job)
    }

    /// Creates a model that serves at once, from a version that knows nothing: users start at zero weights, and learn
    /// from their first observation on.
    ///
    /// # Errors
    /// `ModelExists`, `TooManyModels`, `Dim`, `Storage`, or `Features` where the version cannot be written.
    pub fn create(&self, config: ModelConfig) -> Result<ModelRecord, ManagerError> {
        if !(DIM_MIN..=DIM_MAX).contains(&config.dim) {
            return Err(ManagerError::Dim { min: DIM_MIN, max: DIM_MAX, received: config.dim });
        }
        config.check_life()?;
        let _changing = self.changing.lock();
        let models = self.models()?;
        if models.iter().any(|record| record.config.name == config.name) {
            return Err(ManagerError::ModelExists { model: config.name });
        }
        if models.len() >= self.options.models_max {
            return Err(ManagerError::TooManyModels { max: self.options.models_max });
        }
        let version = VersionId(1);
        // A directory of this name is what an interrupted creation left: the catalog does not know it.
        let dir = self.version_dir(&config.name, version);
        remove_dir(&dir)?;
        let manifest = write_untrained(&dir, &config)?;
        let serving = self.load(&config, version)?;
        let record = ModelRecord {
            config,
            created: Timestamp::from(SystemTime::now()),
            active: version,
            newest: version,
            served: Vec::new(),
            watching: None,
        };
        let mut batch = CatalogBatch::new();
        batch.put(version_key(&record.config.name, version)?, &VersionRecord::new(version, 0, &manifest))?;
        batch.put(model_key(&record.config.name)?, &record)?;
        let created = Event::now(&record.config.name, EventKind::Created, Actor::Operator, "on request")
            .between(None, Some(version))
            .with("dim", record.config.dim);
        self.commit_noting(batch, &[created])?;
        self.predictor.activate(&record.config.stream, record.config.defaults(), serving);
        Ok(record)
    }

    /// Deletes a model with its versions, features and decisions. Its stream's observations stay: other models may
    /// learn from them, and a model created anew on the stream starts from them.
    ///
    /// # Errors
    /// `UnknownModel`, `JobRunning` or `Storage`.
    pub fn delete(&self, model: &ModelName) -> Result<(), ManagerError> {
        let _changing = self.changing.lock();
        self.model(model)?;
        self.jobs.check_idle(model)?;
        let mut batch = CatalogBatch::new();
        for version in self.versions(model)? {
            batch.delete(version_key(model, version.version)?);
        }
        batch.delete(model_key(model)?);
        self.events.delete(model, &mut batch)?;
        self.storage.commit_catalog(&batch)?;
        self.events.forget(model);
        self.predictor.remove(model);
        self.losses.forget(model);
        self.storage.delete_model(model)?;
        remove_dir(&self.versions_dir(model))
    }

    pub(crate) fn load(&self, config: &ModelConfig, version: VersionId) -> Result<ServingVersion, ManagerError> {
        let LoadedVersion { theta, prior, .. } = read_version(&self.version_dir(&config.name, version))?;
        Ok(ServingVersion::new(config.name.clone(), version, theta, config.learning(prior))?)
    }

    pub(crate) fn versions_dir(&self, model: &ModelName) -> PathBuf {
        self.storage.dir().join("versions").join(model.as_str())
    }

    pub(crate) fn version_dir(&self, model: &ModelName, version: VersionId) -> PathBuf {
        self.versions_dir(model).join(version.to_string())
    }

    pub(crate) fn jobs_dir(&self) -> PathBuf {
        self.storage.dir().join("jobs")
    }

    /// Removes version directories that the catalog does not name: an interrupted switch left them.
    fn remove_unnamed_versions(&self, model: &ModelName) -> Result<(), ManagerError> {
        let named: Vec<String> = self.versions(model)?.iter().map(|record| record.version.to_string()).collect();
        let dir = self.versions_dir(model);
        for entry in fs::read_dir(&dir).map_err(ManagerError::io(&dir))? {
            let entry = entry.map_err(ManagerError::io(&dir))?;
            if !named.iter().any(|name| entry.file_name() == name.as_str()) {
                tracing::warn!(path = %entry.path().display(), "removing an unfinished version");
                remove_dir(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn write_untrained(dir: &Path, config: &ModelConfig) -> Result<Manifest, ManagerError> {
    let contents = VersionContents {
        model: config.name.clone(),
        theta: &Theta::untrained(config.dim),
        // One observation of the constant feature moves a newcomer's bias half of the way to the label.
        prior: &Prior::isotropic(config.dim, 1.0, 1.0)?,
        user_weights: None,
        label_range: None,
        algorithm: "untrained".to_owned(),
        parent: None,
        watermark: serde_json::Value::Null,
        created: Timestamp::from(SystemTime::now()),
        metrics: BTreeMap::new(),
    };
    Ok(write_version(dir, &contents)?)
}

pub(crate) fn check_fits(config: &ModelConfig, loaded: &LoadedVersion) -> Result<(), ManagerError> {
    let wrong = |what, expected: String, found: String| ManagerError::WrongVersion { what, expected, found };
    if loaded.manifest.model != config.name {
        return Err(wrong("model", config.name.to_string(), loaded.manifest.model.to_string()));
    }
    if loaded.manifest.dim != config.dim {
        return Err(wrong("dim", config.dim.to_string(), loaded.manifest.dim.to_string()));
    }
    Ok(())
}

pub(crate) fn remove_dir(dir: &Path) -> Result<(), ManagerError> {
    match fs::remove_dir_all(dir) {
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(ManagerError::io(dir)),
    }
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), ManagerError> {
    fs::File::open(dir).and_then(|file| file.sync_all()).map_err(ManagerError::io(dir))
}
