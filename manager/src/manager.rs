//! The manager: opens the components, and makes the changes that span several of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use celeris_model::{ModelName, RecordKind, StreamName, Timestamp, UserEpoch, UserId, VersionId};
use celeris_pipelines::PipelineSpec;
use celeris_predictor::{LossEvent, Predictor};
use celeris_storage::{
    AppliedRecord, ChangedItem, Position, RegistryBatch, RegistryKey, Storage, StorageError, faults,
};
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::access::ApiKeys;
use crate::cluster::Peers;
use crate::decisions::DecisionMaintenance;
use crate::error::ManagerError;
use crate::following::{Following, FollowingThread};
use crate::leadership::Leadership;
use crate::monitoring::{Behind, Monitoring};
use crate::pipelines::{DescribedPipeline, Pipelines, SharedPipelines, complete_objects};
use crate::policy_evaluation::PolicyEvaluation;
use crate::promotion::Promotion;
use crate::registry::{
    Actor, Event, EventKind, ModelRecord, Registry, VersionStore, VersionsKept, begin_default_rewards,
    complete_versions, link_files, link_versions, model_key,
};
use crate::rewards::RewardFigures;
use crate::settings::{ModelConfig, TrainingOptions};
use crate::studies::{Studies, StudyRecord, TrialData, TrialWorker};
use crate::training::{Training, Uses};
use crate::triggers::AutomaticRetraining;

/// Loss events processed under one lock.
const LOSSES_AT_ONCE: usize = 256;

/// Wait after the queue of loss events is drained. Waking up for each event would slow down the
/// requests that send them.
const LOSSES_GATHER_FOR: Duration = Duration::from_millis(10);

/// Interval of the trigger checks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Limits and training options of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerOptions {
    /// Maximum number of models on this node.
    pub models_max: usize,
    /// Program that trains and supervises trainers: called as `PROGRAM train --job FILE`, and with
    /// the commands of `celeris_sandbox`.
    pub trainer: PathBuf,
    /// Additional trainers and resource limits.
    pub training: TrainingOptions,
    /// Folder from which version directories may be registered.
    pub import_dir: Option<PathBuf>,
}

/// The components that manage the life cycle of all models of a node. Each uses only those before
/// it.
///
/// In a cluster every node has one. That of the node that owns the log of the catalog *leads*: it
/// makes the decisions, trains, and writes the registry ([`Manager::lead`]). The others *follow* what
/// it has written ([`Manager::applied`], [`Manager::observed`]), so that any of them can take over;
/// changes fail there with `NotOwner`.
pub struct Manager {
    leadership: Arc<Leadership>,
    /// Held while the node begins or ceases to lead.
    turning: Mutex<()>,
    /// Of a node in a cluster.
    following: Option<FollowingThread>,
    peers: Option<Peers>,
    storage: Storage,
    predictor: Arc<Predictor>,
    registry: Arc<Registry>,
    versions: Arc<VersionStore>,
    monitoring: Arc<Monitoring>,
    promotion: Arc<Promotion>,
    training: Arc<Training>,
    studies: Arc<Studies>,
    triggers: AutomaticRetraining,
    pipelines: Arc<Pipelines>,
    api_keys: ApiKeys,
    policy_evaluation: PolicyEvaluation,
    rewards: RewardFigures,
    decisions: Arc<DecisionMaintenance>,
}

/// A copy of a data directory.
#[derive(Debug, Clone)]
pub struct CopyForBackup {
    /// Of the log.
    pub position: Position,
    /// How many versions the copy has.
    pub versions: usize,
    /// Versions and objects that the store names and that are not to be had.
    pub missing: Vec<String>,
}

impl Manager {
    /// Opens the registry of a node on its own: loads the active version of every model into the
    /// predictor, and leads. A model that cannot be read is out of service
    /// ([`Registry::unavailable`]). On a copy of a cluster's registry, the same as [`Manager::join`]
    /// without other nodes: versions are neither fetched nor waited for.
    ///
    /// # Errors
    /// `Storage`, or `Io` if the folder of jobs cannot be removed.
    pub fn open(
        storage: Storage,
        predictor: Arc<Predictor>,
        options: ManagerOptions,
    ) -> Result<Arc<Self>, ManagerError> {
        let manager = Self::open_with(storage, predictor, options, None)?;
        if !manager.registry.is_in_cluster() {
            manager.lead()?;
        }
        Ok(manager)
    }

    /// Opens this node's copy of the registry of a cluster: loads the versions that are here, and
    /// follows. Writes nothing to the registry.
    ///
    /// # Errors
    /// As [`Manager::open`], and `Io` if no thread can be started.
    pub fn join(
        storage: Storage,
        predictor: Arc<Predictor>,
        options: ManagerOptions,
        peers: Peers,
    ) -> Result<Arc<Self>, ManagerError> {
        Self::open_with(storage, predictor, options, Some(peers))
    }

    fn open_with(
        storage: Storage,
        predictor: Arc<Predictor>,
        options: ManagerOptions,
        peers: Option<Peers>,
    ) -> Result<Arc<Self>, ManagerError> {
        let ManagerOptions { models_max, trainer, training: training_options, import_dir } = options;
        let leadership = Arc::<Leadership>::default();
        let shared = SharedPipelines::open(&storage, peers.clone())?;
        let registry =
            Registry::open(storage.clone(), predictor.clone(), models_max, Arc::clone(&leadership), shared.clone())?;
        let versions = Arc::new(VersionStore::new(storage.clone(), registry.clone(), predictor.clone(), import_dir));
        let monitoring = Arc::new(Monitoring::new(storage.clone()));
        let models = registry.models()?;
        for record in &models {
            monitoring.resume(record)?;
        }
        monitoring.rebuild(SystemTime::now().into())?;
        let promotion =
            Promotion::new(storage.clone(), predictor.clone(), registry.clone(), monitoring.clone(), peers.clone());
        let pipelines = Arc::new(Pipelines::open(storage.clone(), leadership.clone(), shared)?);
        let api_keys = ApiKeys::open(storage.clone(), leadership.clone())?;
        let uses = Uses {
            pipelines: pipelines.clone(),
            registry: registry.clone(),
            versions: versions.clone(),
            monitoring: monitoring.clone(),
            promotion: promotion.clone(),
        };
        let training = Training::open(storage.clone(), uses, (trainer, training_options))?;
        let following = Following {
            storage: storage.clone(),
            predictor: predictor.clone(),
            registry: registry.clone(),
            versions: versions.clone(),
            monitoring: monitoring.clone(),
            training: training.clone(),
            pipelines: pipelines.clone(),
            peers: peers.clone(),
            state: Mutex::default(),
            woken: Condvar::new(),
        };
        let studies = Studies::new(storage.clone(), registry.clone(), training.clone());
        let following = registry.is_in_cluster().then(|| FollowingThread::start(Arc::new(following))).transpose();
        let manager = Self {
            leadership,
            turning: Mutex::default(),
            following: following.map_err(ManagerError::io("thread"))?,
            peers,
            storage: storage.clone(),
            triggers: AutomaticRetraining {
                storage: storage.clone(),
                registry: registry.clone(),
                monitoring: monitoring.clone(),
                training: training.clone(),
                studies: studies.clone(),
                rests_until: Mutex::default(),
            },
            pipelines,
            api_keys,
            policy_evaluation: PolicyEvaluation::new(
                storage.clone(),
                predictor.clone(),
                registry.clone(),
                versions.clone(),
            ),
            rewards: RewardFigures::new(storage.clone(), predictor.clone(), registry.clone()),
            studies,
            decisions: Arc::new(DecisionMaintenance::new(storage, predictor.clone(), registry.clone())),
            predictor,
            registry,
            versions,
            monitoring,
            promotion,
            training,
        };
        Ok(Arc::new(manager))
    }

    /// Writes a copy of the data directory as of one moment into `folder`, which is created: the store, the versions that
    /// it names and the objects of its pipelines. In a cluster, what is not on this node is fetched from the others. Files
    /// that never change are linked. Blocks the thread.
    ///
    /// # Errors
    /// `Storage` or `Io`; `Fetch` if a version that serves is not to be had. The folder is to be removed then.
    pub fn copy_for_backup(&self, folder: &Path) -> Result<CopyForBackup, ManagerError> {
        let data_dir = self.storage.dir();
        let link = || {
            link_versions(data_dir, folder)?;
            link_files(&data_dir.join("objects"), &folder.join("objects"))
        };
        // Before the store is copied, for the versions that are pruned meanwhile; and after, for those that are new.
        link()?;
        let position = self.storage.copy_for_backup(folder)?;
        link()?;
        let source = self.peers.as_ref().map(|peers| &*peers.source);
        let VersionsKept { kept: versions, mut missing } = complete_versions(&self.storage, folder, source)?;
        missing.extend(complete_objects(&self.storage, folder, source)?);
        Ok(CopyForBackup { position, versions, missing })
    }

    /// Begins to lead: finishes what was interrupted, and starts guards, triggers and trainings. In a
    /// cluster, call it when this node has become the owner of the log of the catalog, whose end the
    /// registry has reached. No effect if it leads already. Blocks the thread.
    ///
    /// # Errors
    /// `Storage`, with `NotOwner` or `Fenced` if another node has taken over meanwhile; or `Io`. The
    /// node does not lead then.
    pub fn lead(&self) -> Result<(), ManagerError> {
        let _turning = self.turning.lock();
        if self.leadership.is_leading() {
            return Ok(());
        }
        {
            let _changing = self.registry.lock_for_others();
            self.leadership.begin();
        }
        self.take_over().inspect_err(|error| {
            tracing::info!(%error, "this node could not begin to lead");
            self.leadership.end();
            self.promotion.stop_guards();
        })
    }

    fn take_over(&self) -> Result<(), ManagerError> {
        let term = self.registry.term()?;
        self.registry.audit().reload()?;
        self.training.interrupt()?;
        self.studies.resume(&term)?;
        self.promotion.withdraw_prepared()?;
        if self.registry.is_in_cluster() {
            self.registry.finish_interrupted()?;
        }
        for record in self.registry.models()? {
            self.promotion.guard(&record, &term);
        }
        if let Some(following) = &self.following {
            following.following().wake();
        }
        Ok(())
    }

    /// Ceases to lead: another node owns the log of the catalog, or will. Running trainings stop, and
    /// so do triggers and guards; changes fail from now on. No effect if the node does not lead.
    pub fn follow(&self) {
        // Before the lock, so that a node that is about to lead notices.
        self.leadership.end();
        let _turning = self.turning.lock();
        self.promotion.stop_guards();
        if let Some(following) = &self.following {
            following.following().wake();
        }
    }

    /// Whether this node makes the decisions about models.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leadership.is_leading()
    }

    /// Takes in one commit to the catalog by another node, which the store has applied: the documents
    /// and items that it has changed. Call it for each, in order, before records that were appended
    /// after it are applied. What takes longer is done by a thread.
    pub fn applied(&self, documents: &[RegistryKey], items: &[ChangedItem]) {
        self.api_keys.take_in(documents);
        self.pipelines.take_in(documents);
        if let Some(following) = &self.following {
            following.following().applied(documents, items);
        }
    }

    /// Takes in records of users of another node, which the store has applied: their losses, so that
    /// the quality monitors of every node are those of the whole cluster, and erasures. Those of this
    /// node's users come from [`Ingest`](celeris_predictor::Ingest), so none counts twice.
    pub fn observed(&self, records: &[AppliedRecord]) {
        let now = Timestamp::from(SystemTime::now());
        let mut events = Vec::new();
        for AppliedRecord { stream, record, .. } in records {
            if record.kind == RecordKind::Erase {
                self.monitoring.add(&events, now, Behind::Nothing);
                events.clear();
                self.forget_user(stream, &record.user, record.user_epoch);
            }
            events.extend(LossEvent::of(record));
        }
        self.monitoring.add(&events, now, Behind::Nothing);
    }

    /// Waits until what was applied so far is in force here, at most for this time. Blocks the thread.
    pub fn settle(&self, at_most: Duration) {
        if let Some(following) = &self.following {
            following.following().settle(at_most);
        }
    }

    /// The versions that this node serves or has prepared, for reports to the node that leads: the id
    /// of the model and the version, as in `7/12`.
    #[must_use]
    pub fn ready(&self) -> Vec<String> {
        self.following.as_ref().map(|following| following.following().ready()).unwrap_or_default()
    }

    /// What this node could not take over of the registry, and tries again.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.following.as_ref().map(|following| following.following().problems()).unwrap_or_default()
    }

    /// Documents of models, versions and selections, and their audit log.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Registration, pins and pruning of versions.
    #[must_use]
    pub fn versions(&self) -> &VersionStore {
        &self.versions
    }

    /// Prediction quality.
    #[must_use]
    pub fn monitoring(&self) -> &Monitoring {
        &self.monitoring
    }

    /// Gate, switch, guard and rollback.
    #[must_use]
    pub fn promotion(&self) -> &Promotion {
        &self.promotion
    }

    /// Retrain jobs.
    #[must_use]
    pub fn training(&self) -> &Arc<Training> {
        &self.training
    }

    /// Searches for settings.
    #[must_use]
    pub fn studies(&self) -> &Arc<Studies> {
        &self.studies
    }

    /// Declared pipelines and their objects.
    #[must_use]
    pub fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// Keys of clients.
    #[must_use]
    pub fn api_keys(&self) -> &ApiKeys {
        &self.api_keys
    }

    /// Off-policy evaluation.
    #[must_use]
    pub fn policy_evaluation(&self) -> &PolicyEvaluation {
        &self.policy_evaluation
    }

    /// Rewards by day, version and policy.
    #[must_use]
    pub fn rewards(&self) -> &RewardFigures {
        &self.rewards
    }

    /// Background work on recorded decisions.
    #[must_use]
    pub fn decisions(&self) -> &Arc<DecisionMaintenance> {
        &self.decisions
    }

    /// Processes loss events and checks the triggers periodically, until the predictor is dropped.
    pub async fn listen(self: Arc<Self>, mut losses: mpsc::Receiver<LossEvent>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut events = Vec::with_capacity(LOSSES_AT_ONCE);
        let mut deciding: Option<JoinHandle<()>> = None;
        loop {
            tokio::select! {
                taken = losses.recv_many(&mut events, LOSSES_AT_ONCE) => {
                    if taken == 0 {
                        return;
                    }
                    let behind = if losses.is_empty() { Behind::Nothing } else { Behind::Events };
                    self.monitoring.add(&events, SystemTime::now().into(), behind);
                    events.clear();
                    if behind == Behind::Nothing {
                        tokio::time::sleep(LOSSES_GATHER_FOR).await;
                    }
                }
                _ = looks.tick() => {
                    let is_deciding = deciding.as_ref().is_some_and(|deciding| !deciding.is_finished());
                    if self.leadership.is_leading() && !is_deciding {
                        let manager = Arc::clone(&self);
                        // In a cluster a write may wait for other nodes, and losses must not wait for it.
                        deciding = Some(tokio::task::spawn_blocking(move || {
                            manager.keep_baselines();
                            manager.triggers.check_triggers();
                            manager.studies.advance();
                            manager.apply_studies();
                        }));
                    }
                    let selections = self.predictor.selections();
                    if let Err(error) = selections.follow_log().and_then(|()| selections.store_if_due()) {
                        tracing::warn!(%error, "selections could not read the log or store their states; retrying");
                    }
                },
            }
        }
    }

    fn keep_baselines(&self) {
        match self.monitoring.keep() {
            // The node is stopping, or another one leads. The next process that opens the store reads
            // the losses from the log.
            Ok(()) | Err(StorageError::Closed | StorageError::NotOwner | StorageError::Fenced) => {}
            Err(error) => tracing::warn!(%error, "could not write the baseline loss of a version; retrying"),
        }
    }

    /// Creates a model that serves at once, from an untrained version: users start with zero
    /// weights and learn from their first observation on.
    ///
    /// # Errors
    /// `ModelExists`, `TooManyModels`, `Dim`, `Storage`, or `Features` if the version cannot be
    /// written.
    pub fn create(&self, mut config: ModelConfig) -> Result<ModelRecord, ManagerError> {
        config.check()?;
        config.trainer.check(&config.trainer.engine, self.training.options())?;
        let _changing = self.registry.lock_changes()?;
        self.complete_parts(&mut config)?;
        self.studies.check_scheduled(&config)?;
        self.registry.check_vacant(&config.name)?;
        let mut batch = RegistryBatch::new();
        let version = VersionId(1);
        let record = ModelRecord {
            id: self.registry.new_id(&mut batch)?,
            config,
            created: Timestamp::from(SystemTime::now()),
            active: version,
            newest: version,
            served: Vec::new(),
            guarding: None,
        };
        let serving = self.registry.write_untrained(&record, &mut batch)?;
        if record.config.default_reward.is_some() {
            begin_default_rewards(record.id, &mut batch)?;
        }
        self.begin(&record, batch).inspect_err(|_| {
            self.monitoring.forget(record.id);
            self.registry.audit().forget(record.id);
        })?;
        self.predictor.activation().activate(&record.config.stream, record.config.serving(), serving)?;
        Ok(record)
    }

    /// Makes a store that has the records of a study's data, and nothing else, ready for trials of the study.
    ///
    /// # Errors
    /// As [`Manager::create`].
    pub fn trial_worker(&self, data: TrialData) -> Result<TrialWorker, ManagerError> {
        self.registry.begin_ids_at(data.model_id())?;
        let record = self.create(data.config())?;
        let dir = self.storage.dir().join("trial");
        Ok(TrialWorker::new(self.training.clone(), record, data, (dir, self.registry.term()?)))
    }

    /// Writes a new model to the registry and begins to monitor it.
    fn begin(&self, record: &ModelRecord, mut batch: RegistryBatch) -> Result<(), ManagerError> {
        self.monitoring.start(record);
        self.registry.audit().begin(record.id, &record.config.stream);
        let baseline = self.monitoring.begin_version(record.id, (record.active, None), &mut batch)?;
        let created = Event::now(record.identity(), EventKind::Created, Actor::Operator, "on request")
            .between(None, Some(record.active))
            .with("dim", record.config.dim);
        self.registry.audit().commit(batch, &[created])?;
        if let Some(baseline) = baseline {
            self.monitoring.serve(record.id, baseline);
        }
        Ok(())
    }

    /// Changes settings of a model: `change` is applied to a copy, which is checked, written and
    /// audited.
    ///
    /// # Errors
    /// `UnknownModel`, an error of `change` or of a check, or `Storage`; nothing is changed then.
    pub fn configure(
        &self,
        model: &ModelName,
        change: impl FnOnce(&mut ModelConfig) -> Result<(), ManagerError>,
    ) -> Result<ModelRecord, ManagerError> {
        let _changing = self.registry.lock_changes()?;
        let mut record = self.registry.model(model)?;
        let before = record.config.clone();
        change(&mut record.config)?;
        record.config.check()?;
        if record.config.features != before.features {
            self.complete_parts(&mut record.config)?;
        }
        if record.config.trainer != before.trainer {
            record.config.trainer.check(&record.config.trainer.engine, self.training.options())?;
        }
        if record.config == before {
            return Ok(record);
        }
        if record.config.triggers.study != before.triggers.study {
            self.studies.check_scheduled(&record.config)?;
        }
        let mut event = Event::now(record.identity(), EventKind::Configured, Actor::Operator, "on request")
            .between(Some(record.active), Some(record.active));
        for (setting, from, to) in differences(&before, &record.config) {
            event = event.with(&setting, serde_json::json!({ "from": from, "to": to }));
        }
        let mut batch = RegistryBatch::new();
        batch.put(model_key(model)?, &record)?;
        if before.default_reward.is_none() && record.config.default_reward.is_some() {
            begin_default_rewards(record.id, &mut batch)?;
        }
        self.registry.audit().commit(batch, &[event])?;
        self.predictor.activation().configure(model, record.config.serving());
        self.monitoring.configure(record.id, &record.config.triggers);
        Ok(record)
    }

    /// Deletes a model, in service or not, with its versions, features and decisions. The
    /// observations of its stream stay: other models may learn from them, and a model created later
    /// on the stream starts from them.
    ///
    /// # Errors
    /// `UnknownModel`, `JobRunning`, `StudyRunning`, `IsArm` or `Storage`.
    pub fn delete(&self, model: &ModelName) -> Result<(), ManagerError> {
        self.registry.term()?;
        self.training.jobs().check_idle(model)?;
        self.studies.check_idle(model)?;
        let deleted = self.registry.delete(model, |id, batch| self.monitoring.delete(id, batch))?;
        let Some(id) = deleted else { return Ok(()) };
        self.monitoring.forget(id);
        self.promotion.forget(id);
        faults::reach("deletion");
        self.registry.finish_deletion((model, id))
    }

    /// Gives a model the best settings that a study has found, and trains it with them.
    ///
    /// # Errors
    /// `UnknownStudy`, `StudyRunning`, `StudyWithoutResult`, `JobRunning`, or the errors of
    /// [`Manager::configure`]. If the training cannot start, the model has the settings already.
    pub fn apply_study(&self, study: &str) -> Result<StudyRecord, ManagerError> {
        self.studies.apply(study, |study, change| {
            let record = self.configure(&study.model, change)?;
            self.registry.audit().commit(RegistryBatch::new(), &[study.tuned_event()])?;
            Ok(record)
        })
    }

    /// Applies the settings of studies that have ended, where that was asked for.
    fn apply_studies(&self) {
        for study in self.studies.to_apply() {
            let Err(error) = self.apply_study(study.study.as_str()) else { continue };
            // A training that runs is waited for.
            if matches!(error, ManagerError::JobRunning { .. }) || error.is_of_other_node() {
                continue;
            }
            tracing::warn!(study = %study.study, %error, "the settings of a study were not applied");
            if let Err(error) = self.studies.give_up(&study.study, &error) {
                tracing::warn!(study = %study.study, %error, "a study could not be closed; retrying");
            }
        }
    }

    /// Checks the computed parts of a model, and fills in their columns. The caller guarantees that it holds the lock of
    /// changes until the model is written, so that the pipelines stay.
    fn complete_parts(&self, config: &mut ModelConfig) -> Result<(), ManagerError> {
        config.features.complete((config.dim, config.loss), |pipeline| self.pipelines.outline(pipeline))
    }

    /// Declares a pipeline, or its next revision.
    ///
    /// # Errors
    /// `Pipeline` if the declaration is invalid or names an object that is not there,
    /// `TooManyPipelines`; `PipelineInUse` if models have a part of it whose columns it would change; or `Storage`, with
    /// `NotOwner` unless this node leads.
    pub fn declare_pipeline(&self, spec: PipelineSpec) -> Result<DescribedPipeline, ManagerError> {
        let _changing = self.registry.lock_changes()?;
        self.pipelines.declare(spec, |name, outline| {
            let differs = |columns: usize| outline.dim.is_some_and(|dim| dim as usize != columns);
            self.check_unused(name, differs, "another number of columns needs another name")
        })
    }

    /// Deletes a pipeline, and the objects that no other one names. Versions that were trained with it keep what they need.
    ///
    /// # Errors
    /// `UnknownPipeline`, `PipelineInUse` if models have a part of it, or `Storage`, with `NotOwner` unless this node leads.
    pub fn delete_pipeline(&self, name: &str) -> Result<(), ManagerError> {
        let _changing = self.registry.lock_changes()?;
        self.check_unused(name, |_| true, "take it out of their `features` first")?;
        self.pipelines.delete(name)
    }

    /// Fails if models have a part of a pipeline for whose columns `matters` holds.
    fn check_unused(
        &self,
        pipeline: &str,
        matters: impl Fn(usize) -> bool,
        advice: &'static str,
    ) -> Result<(), ManagerError> {
        let uses = |record: &ModelRecord| {
            record.config.features.computed().any(|(_, of_part, columns)| of_part == pipeline && matters(columns))
        };
        let users: Vec<String> = self
            .registry
            .all_models()?
            .iter()
            .filter(|record| uses(record))
            .map(|record| record.config.name.to_string())
            .collect();
        if users.is_empty() {
            return Ok(());
        }
        Err(ManagerError::PipelineInUse { pipeline: pipeline.to_owned(), models: users.join(", "), advice })
    }

    /// Removes a user who was erased from a stream by the event of this epoch from the monitors,
    /// which also drop later loss events for the user's observations before it. Restarts trainings
    /// that have read the user's events.
    pub fn forget_user(&self, stream: &StreamName, user: &UserId, erased: UserEpoch) {
        self.training.readings().note_erasure();
        self.studies.note_erasure();
        self.monitoring.forget_user(stream, user, erased);
    }
}

/// The settings that differ, each with its old and new value.
fn differences(before: &ModelConfig, after: &ModelConfig) -> Vec<(String, serde_json::Value, serde_json::Value)> {
    let as_json = |config: &ModelConfig| serde_json::to_value(config).expect("a configuration is plain data");
    let (before, after) = (as_json(before), as_json(after));
    // An unset setting is absent.
    let names: BTreeSet<&String> =
        [&before, &after].into_iter().filter_map(|one| one.as_object()).flat_map(|one| one.keys()).collect();
    let value = |config: &serde_json::Value, name: &String| config.get(name).cloned().unwrap_or_default();
    let settings = names.into_iter().map(|name| (name.clone(), value(&before, name), value(&after, name)));
    settings.filter(|(_, from, to)| from != to).collect()
}
