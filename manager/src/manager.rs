//! The manager: creates, lists, deletes and switches models and versions.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use celeris_features::{LoadedVersion, Theta, VersionContents, read_version, write_version};
use celeris_formats::Manifest;
use celeris_model::{ModelId, ModelName, Prior, StreamName, Timestamp, UserEpoch, UserId, VersionId};
use celeris_predictor::{LossEvent, Predictor, ServingVersion};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::decisions::default_rewards;
use crate::error::ManagerError;
use crate::events::{Actor, Event, EventKind, Events};
use crate::guard::GuardStatus;
use crate::jobs::{Job, JobId, Jobs};
use crate::quality::{Behind, MeanLoss, Monitors, Quality, RecentLoss};
use crate::records::{ModelConfig, ModelRecord, VersionRecord, last_id_key, model_key, models_key, version_key};
use crate::training::{Reading, TrainingOptions};

/// Loss events processed under one lock.
const LOSSES_AT_ONCE: usize = 256;

/// Wait after the queue of loss events is drained. Waking up for each event would slow down the requests that send
/// them.
const LOSSES_GATHER_FOR: Duration = Duration::from_millis(10);

/// Interval of the trigger checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Limits and training options of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerOptions {
    /// Maximum number of models on this node.
    pub models_max: usize,
    /// Program that trains and supervises trainers: called as `PROGRAM train --job FILE`, and with the commands of
    /// `celeris_sandbox`.
    pub trainer: PathBuf,
    /// Additional trainers and resource limits.
    pub training: TrainingOptions,
    /// Folder from which version directories may be registered.
    pub import_dir: Option<PathBuf>,
}

/// Manages the life cycle of all models of a node.
pub struct Manager {
    pub(crate) storage: Storage,
    pub(crate) predictor: Arc<Predictor>,
    pub(crate) options: ManagerOptions,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) events: Events,
    pub(crate) monitors: Monitors,
    /// The parts of the log that running trainings have read.
    pub(crate) readings: Mutex<HashMap<JobId, Reading>>,
    /// Number of users erased since the start.
    pub(crate) erased: AtomicU64,
    pub(crate) guards: Mutex<HashMap<ModelId, GuardStatus>>,
    /// Held while a switch is prepared and made. Locked before `changing`.
    pub(crate) switching: Mutex<()>,
    /// Held during a comparison of two versions on request.
    pub(crate) comparing: Mutex<()>,
    /// Held during a policy evaluation on request.
    pub(crate) evaluating: Mutex<()>,
    /// Held while the registry's models or versions are changed, so that read, decision and write are atomic.
    pub(crate) changing: Mutex<()>,
}

impl Manager {
    /// Opens the registry: loads the active version of every model into the predictor, and cleans up unfinished
    /// operations of a stopped node. A model that cannot be read is out of service ([`Manager::unavailable`]).
    ///
    /// # Errors
    /// `Storage`, or `Io` if the folder of jobs cannot be removed.
    pub fn open(
        storage: Storage,
        predictor: Arc<Predictor>,
        options: ManagerOptions,
    ) -> Result<Arc<Self>, ManagerError> {
        let (jobs, interrupted) = Jobs::open(storage.clone(), Timestamp::from(SystemTime::now()))?;
        let events = Events::open(storage.clone())?;
        let monitors = Monitors::new(storage.clone());
        let manager = Self {
            storage,
            predictor,
            options,
            jobs,
            events,
            monitors,
            readings: Mutex::default(),
            erased: AtomicU64::new(0),
            guards: Mutex::default(),
            switching: Mutex::default(),
            comparing: Mutex::default(),
            evaluating: Mutex::default(),
            changing: Mutex::default(),
        };
        manager.finish_deletions()?;
        manager.finish_pruning()?;
        manager.open_models()?;
        manager.open_selections()?;
        manager.monitors.rebuild(SystemTime::now().into())?;
        for job in &interrupted {
            manager.note_failure(job);
        }
        remove_dir(&manager.jobs_dir())?;
        let manager = Arc::new(manager);
        for record in manager.models()? {
            manager.guard(&record);
        }
        Ok(manager)
    }

    /// Processes loss events and checks the triggers periodically, until the predictor is dropped.
    pub async fn listen(self: Arc<Self>, mut losses: mpsc::Receiver<LossEvent>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut events = Vec::with_capacity(LOSSES_AT_ONCE);
        loop {
            tokio::select! {
                taken = losses.recv_many(&mut events, LOSSES_AT_ONCE) => {
                    if taken == 0 {
                        return;
                    }
                    let behind = if losses.is_empty() { Behind::Nothing } else { Behind::Events };
                    self.monitors.add(&events, SystemTime::now().into(), behind);
                    events.clear();
                    if behind == Behind::Nothing {
                        tokio::time::sleep(LOSSES_GATHER_FOR).await;
                    }
                }
                _ = looks.tick() => tokio::task::block_in_place(|| {
                    match self.monitors.keep() {
                        // The node is stopping. The next process that opens the store reads the losses from the log.
                        Ok(()) | Err(StorageError::Closed) => {}
                        Err(error) => {
                            tracing::warn!(%error, "could not write the baseline loss of a version; retrying");
                        }
                    }
                    if let Err(error) = self.predictor.follow_log() {
                        tracing::warn!(%error, "selections could not read the log; they retry on the next request");
                    }
                    self.pull_triggers();
                }),
            }
        }
    }

    /// The model's recent loss.
    #[must_use]
    pub fn recent_loss(&self, model: ModelId) -> Option<RecentLoss> {
        self.monitors.recent(model)
    }

    /// All quality figures of a model.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn quality(&self, model: &ModelName) -> Result<Quality, ManagerError> {
        let described = self.monitors.describe(self.model(model)?.id, SystemTime::now().into());
        described.ok_or_else(|| ManagerError::UnknownModel { model: model.clone() })
    }

    /// Mean loss of one user's observations; `None` if the user is not among the most recently active users.
    #[must_use]
    pub fn user_quality(&self, model: ModelId, user: &UserId) -> Option<MeanLoss> {
        self.monitors.user(model, user)
    }

    /// Removes a user who was erased from a stream by the event of this epoch from the monitors, which also drop later
    /// loss events for the user's observations before it. Restarts trainings that have read the user's events.
    pub fn forget_user(&self, stream: &StreamName, user: &UserId, erased: UserEpoch) {
        self.erased.fetch_add(1, Ordering::AcqRel);
        self.monitors.forget_user(stream, user, erased);
    }

    /// All models in service, by name; see [`Manager::unavailable`] for the others.
    ///
    /// # Errors
    /// `Storage`.
    pub fn models(&self) -> Result<Vec<ModelRecord>, ManagerError> {
        let out = self.predictor.out_of_service();
        let records = self.storage.list_registry::<ModelRecord>(&models_key()?)?;
        let in_service = |(_, record): &(RegistryKey, Result<ModelRecord, StorageError>)| {
            !record.as_ref().is_ok_and(|record| out.contains_key(&record.config.name))
        };
        // Models that cannot be read were taken out of service at the start.
        Ok(records.into_iter().filter(in_service).filter_map(|(_, record)| record.ok()).collect())
    }

    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `Predictor` if the model is out of service, or `Storage`.
    pub fn model(&self, model: &ModelName) -> Result<ModelRecord, ManagerError> {
        self.predictor.check_in_service(model)?;
        if let Some(found) = self.storage.registry(&model_key(model)?)? {
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

    /// The current record of a model; fails if the model was deleted and created again under its name.
    pub(crate) fn current(&self, record: &ModelRecord) -> Result<ModelRecord, ManagerError> {
        let (model, id) = record.identity();
        let current = self.model(model)?;
        if current.id == id { Ok(current) } else { Err(ManagerError::UnknownModel { model: model.clone() }) }
    }

    /// An id that no model or selection has used before; it is allocated when `batch` is written.
    ///
    /// The caller guarantees that it holds `changing` until then.
    pub(crate) fn new_id(&self, batch: &mut RegistryBatch) -> Result<ModelId, ManagerError> {
        let last: Option<ModelId> = self.storage.registry(&last_id_key()?)?;
        let id = last.unwrap_or_default().next();
        batch.put(last_id_key()?, &id)?;
        Ok(id)
    }

    ///
    /// # Errors
    /// `UnknownJob`.
    pub fn job(&self, job: &str) -> Result<Job, ManagerError> {
        self.jobs.get(job)
    }

    /// Creates a model that serves at once, from an untrained version: users start with zero weights and learn from
    /// their first observation on.
    ///
    /// # Errors
    /// `ModelExists`, `TooManyModels`, `Dim`, `Storage`, or `Features` if the version cannot be written.
    pub fn create(&self, config: ModelConfig) -> Result<ModelRecord, ManagerError> {
        config.check()?;
        config.trainer.check(&config.trainer.engine, &self.options.training)?;
        let _changing = self.changing.lock();
        if self.is_taken(&config.name)? {
            return Err(ManagerError::ModelExists { model: config.name });
        }
        if self.names()? >= self.options.models_max {
            return Err(ManagerError::TooManyModels { max: self.options.models_max });
        }
        let mut batch = RegistryBatch::new();
        let version = VersionId(1);
        let record = ModelRecord {
            id: self.new_id(&mut batch)?,
            config,
            created: Timestamp::from(SystemTime::now()),
            active: version,
            newest: version,
            served: Vec::new(),
            guarding: None,
        };
        // A directory of this name is left from an interrupted creation: the registry does not name it.
        let dir = self.version_dir(&record, version);
        remove_dir(&dir)?;
        let manifest = write_untrained(&dir, &record.config)?;
        let serving = self.load(&record, version)?;
        batch.put(version_key(&record.config.name, version)?, &VersionRecord::new(version, 0, &manifest))?;
        batch.put(model_key(&record.config.name)?, &record)?;
        if record.config.default_reward.is_some() {
            default_rewards::begin(record.id, &mut batch)?;
        }
        self.monitors.start(&record);
        let created = Event::now(record.identity(), EventKind::Created, Actor::Operator, "on request")
            .between(None, Some(version))
            .with("dim", record.config.dim);
        self.commit_noting(batch, &[created]).inspect_err(|_| self.monitors.forget(record.id))?;
        self.predictor.activate(&record.config.stream, record.config.defaults(), serving)?;
        Ok(record)
    }

    pub(crate) fn load(&self, record: &ModelRecord, version: VersionId) -> Result<ServingVersion, ManagerError> {
        let dir = self.version_dir(record, version);
        let loaded = read_version(&dir)?;
        check_fits(&record.config, &loaded)?;
        Ok(serving(record, version, loaded)?.kept_in(dir))
    }

    pub(crate) fn versions_dir(&self, record: &ModelRecord) -> PathBuf {
        self.versions_dir_of(record.identity())
    }

    pub(crate) fn versions_dir_of(&self, model: (&ModelName, ModelId)) -> PathBuf {
        versions_dir(&self.storage, model)
    }

    pub(crate) fn version_dir(&self, record: &ModelRecord, version: VersionId) -> PathBuf {
        self.versions_dir(record).join(version.to_string())
    }

    pub(crate) fn jobs_dir(&self) -> PathBuf {
        self.storage.dir().join("jobs")
    }
}

/// Folder of a model's versions: the name is for readability, the id makes it unique.
pub(crate) fn versions_dir(storage: &Storage, (model, id): (&ModelName, ModelId)) -> PathBuf {
    storage.dir().join("versions").join(format!("{model}.{id}"))
}

/// A loaded version as a serving version of this model.
pub(crate) fn serving(
    record: &ModelRecord,
    version: VersionId,
    loaded: LoadedVersion,
) -> Result<ServingVersion, ManagerError> {
    let LoadedVersion { theta, prior, cold_map, .. } = loaded;
    let model = (record.config.name.clone(), record.id);
    Ok(ServingVersion::new(model, version, theta, record.config.learning(prior))?.with_cold_map(cold_map))
}

fn write_untrained(dir: &Path, config: &ModelConfig) -> Result<Manifest, ManagerError> {
    let contents = VersionContents {
        model: config.name.clone(),
        theta: &Theta::untrained(config.dim),
        // With this prior, one observation of the constant feature moves a new user's bias half of the way to the
        // label.
        prior: &Prior::isotropic(config.dim, 1.0, 1.0)?,
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
