//! The predictor: its models, its caches, and the first steps of every request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use celeris_model::{ModelError, ModelId, ModelName, Observation, StreamName, Timestamp, UserEpoch, UserId};
use celeris_storage::{Storage, Ticket};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::attribution::Attribution;
use crate::cache::BoundedCache;
use crate::catalog::{Background, Catalogs};
use crate::error::PredictorError;
use crate::exploration::Exploration;
use crate::features::FeatureSource;
use crate::loss::LossEvent;
use crate::out_of_service::OutOfService;
use crate::predictions::PredictionCache;
use crate::propensities::Estimator;
use crate::recommend::seen::SeenCache;
use crate::replay::Replay;
use crate::selection::{Selection, UserViews};
use crate::topk::DecisionLogging;
use crate::users::{Sources, UserEntry, UserKey, UserSnapshot};
use crate::version::{RankingDefaults, ServedModel, ServingVersion};

/// Limits and settings of a predictor.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictorOptions {
    /// Budget in bytes for user states and histories.
    pub user_bytes_max: usize,
    /// Budget in bytes for features of items outside the trained tables.
    pub feature_bytes_max: usize,
    /// Budget in bytes for cached predictions.
    pub prediction_bytes_max: usize,
    /// Budget in bytes for per-user selection states.
    pub selection_bytes_max: usize,
    /// Budget in bytes for seen items.
    pub seen_bytes_max: usize,
    /// The most items of a request whose predictions are cached and looked up; requests of more items are computed. 0
    /// disables the cache.
    pub prediction_items_max: usize,
    /// Capacity of the loss event channel; events beyond it are dropped and counted.
    pub loss_events_max: usize,
    /// Which decisions are recorded, and with which candidates.
    pub decisions: DecisionLogging,
    pub epoch_wait_max: Duration,
    /// How far an observation's timestamp may be ahead of this node's clock.
    pub clock_skew_max: Duration,
}

impl Default for PredictorOptions {
    fn default() -> Self {
        Self {
            user_bytes_max: 1 << 30,
            feature_bytes_max: 128 << 20,
            prediction_bytes_max: 128 << 20,
            selection_bytes_max: 64 << 20,
            seen_bytes_max: 64 << 20,
            prediction_items_max: 4,
            loss_events_max: 65_536,
            decisions: DecisionLogging::default(),
            epoch_wait_max: Duration::from_secs(1),
            clock_skew_max: Duration::from_secs(300),
        }
    }
}

/// One node's local state. Shared by all requests; every method takes `&self`.
///
/// Requires a multi-threaded tokio runtime: disk reads and long computation leave the async threads by
/// `block_in_place`.
pub struct Predictor {
    pub(crate) storage: Storage,
    models: ArcSwap<BTreeMap<ModelName, Arc<ServedModel>>>,
    /// Selections among these models, by name.
    pub(crate) selections: ArcSwap<BTreeMap<ModelName, Arc<Selection>>>,
    pub(crate) user_views: UserViews,
    /// Models and selections that exist but cannot serve, with the reason.
    pub(crate) out_of_service: OutOfService,
    /// Held while the set of models or selections changes; reads never wait for it.
    changing: Mutex<()>,
    pub(crate) catalogs: Catalogs,
    /// Builds graphs and samples the recall of searches.
    pub(crate) background: Background,
    pub(crate) users: BoundedCache<UserKey, Arc<UserEntry>>,
    pub(crate) features: FeatureSource,
    pub(crate) predictions: PredictionCache,
    pub(crate) seen: SeenCache,
    pub(crate) prediction_items_max: usize,
    losses: mpsc::Sender<LossEvent>,
    pub(crate) logging: DecisionLogging,
    pub(crate) attribution: Attribution,
    pub(crate) estimator: Estimator,
    epoch_wait_max: Duration,
    clock_skew_max: Duration,
}

/// A request's user under a model: everything needed to compute a score.
pub(crate) struct RequestContext {
    pub(crate) model: Arc<ServedModel>,
    pub(crate) version: Arc<ServingVersion>,
    pub(crate) entry: Arc<UserEntry>,
    pub(crate) key: UserKey,
    pub(crate) persistence: Persistence,
}

/// Whether an answer may be cached and recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Predictions may be cached, and the decision recorded.
    Kept,
    /// Neither: the history came with the request.
    Nothing,
}

impl Predictor {
    /// Creates a predictor without models, and the receiver of its loss events.
    #[must_use]
    pub fn new(storage: Storage, options: &PredictorOptions) -> (Self, mpsc::Receiver<LossEvent>) {
        let (losses, listener) = mpsc::channel(options.loss_events_max);
        let predictor = Self {
            models: ArcSwap::default(),
            selections: ArcSwap::default(),
            user_views: UserViews::new(options.selection_bytes_max),
            out_of_service: OutOfService::default(),
            changing: Mutex::new(()),
            catalogs: Catalogs::default(),
            background: Background::default(),
            users: BoundedCache::new("users", options.user_bytes_max),
            features: FeatureSource::new(storage.clone(), options.feature_bytes_max),
            predictions: BoundedCache::new("predictions", options.prediction_bytes_max),
            seen: SeenCache::new(options.seen_bytes_max),
            estimator: Estimator::new(storage.clone()),
            storage,
            prediction_items_max: options.prediction_items_max,
            losses,
            logging: options.decisions.clone(),
            attribution: Attribution::new(),
            epoch_wait_max: options.epoch_wait_max,
            clock_skew_max: options.clock_skew_max,
        };
        (predictor, listener)
    }

    /// Makes `version` the active version of its model, and creates the model if it does not serve yet. Requests in
    /// progress finish on their version.
    ///
    /// # Errors
    /// `Storage`.
    pub fn activate(
        &self,
        stream: &StreamName,
        defaults: RankingDefaults,
        version: ServingVersion,
    ) -> Result<(), PredictorError> {
        let version = Arc::new(version);
        self.equip(stream, &version)?;
        self.flip(stream, defaults, version);
        Ok(())
    }

    /// Makes a version that has a search index the active one of its model.
    pub(crate) fn flip(&self, stream: &StreamName, defaults: RankingDefaults, version: Arc<ServingVersion>) {
        let catalog = Arc::clone(version.retrieval().catalog());
        let _changing = self.changing.lock();
        let models = self.models.load();
        let before = models.get(&version.model).filter(|before| before.id == version.model_id);
        // Enlist before dismissing, so that items in both tables stay in the catalog throughout.
        catalog.enlist(&version);
        self.background.want_graph(&version);
        if let Some(model) = before
            && model.stream == *stream
            && model.defaults == defaults
        {
            catalog.dismiss(&model.active.swap(version));
            return;
        }
        let name = version.model.clone();
        let shadow = before.and_then(|model| model.shadow.load_full());
        let exploration = before.map_or_else(|| Arc::new(Exploration::new()), |model| model.exploration.clone());
        let model = ServedModel {
            name: name.clone(),
            id: version.model_id,
            stream: stream.clone(),
            catalog,
            defaults,
            active: version.into(),
            exploration,
            shadow: shadow.into(),
        };
        let before = before.cloned();
        let mut models = BTreeMap::clone(&models);
        models.insert(name, Arc::new(model));
        self.models.store(Arc::new(models));
        if let Some(before) = before {
            before.catalog.dismiss(&before.active.load());
        }
    }

    pub fn remove(&self, model: &ModelName) {
        let _changing = self.changing.lock();
        self.out_of_service.remove(model);
        let mut models = BTreeMap::clone(&self.models.load());
        let removed = models.remove(model);
        self.models.store(Arc::new(models));
        if let Some(removed) = removed {
            removed.catalog.dismiss(&removed.active.load());
            self.release_states(&removed, &[]);
        }
    }

    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn active(&self, model: &ModelName) -> Result<Arc<ServingVersion>, PredictorError> {
        Ok(self.model(model)?.active.load_full())
    }

    /// Names of the serving models, in order.
    #[must_use]
    pub fn served(&self) -> Vec<ModelName> {
        self.models.load().keys().cloned().collect()
    }

    /// Checks the numbers and the timestamp of an observation.
    pub(crate) fn check_observation(&self, observation: &Observation) -> Result<(), ModelError> {
        let skew = i64::try_from(self.clock_skew_max.as_millis()).unwrap_or(i64::MAX);
        let now = Timestamp::from(SystemTime::now());
        observation.validate(Timestamp(now.0.saturating_add(skew)))
    }

    /// Fails if neither a model nor a selection of this name serves.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn check_serves(&self, name: &ModelName) -> Result<(), PredictorError> {
        self.model(&self.of_stream(name)).map(drop)
    }

    /// A replay of histories of the stream of `version`'s model under `version`, which need not serve.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn replay<'v>(&self, version: &'v ServingVersion) -> Result<Replay<'v>, PredictorError> {
        let stream = self.served_as(version)?.stream.clone();
        Ok(Replay::new(self.storage.clone(), self.features.untracked(), stream, version))
    }

    pub(crate) fn served_models(&self) -> arc_swap::Guard<Arc<BTreeMap<ModelName, Arc<ServedModel>>>> {
        self.models.load()
    }

    /// The serving model that `version` belongs to; fails if another model was created under its name since.
    pub(crate) fn served_as(&self, version: &ServingVersion) -> Result<Arc<ServedModel>, PredictorError> {
        let served = self.model(&version.model)?;
        if served.id == version.model_id {
            Ok(served)
        } else {
            Err(PredictorError::UnknownModel { model: version.model.clone() })
        }
    }

    pub(crate) fn change_selections(&self, change: impl FnOnce(&mut BTreeMap<ModelName, Arc<Selection>>)) {
        let _changing = self.changing.lock();
        let mut selections = BTreeMap::clone(&self.selections.load());
        change(&mut selections);
        self.selections.store(Arc::new(selections));
    }

    pub(crate) fn model(&self, name: &ModelName) -> Result<Arc<ServedModel>, PredictorError> {
        let models = self.models.load();
        models.get(name).cloned().ok_or_else(|| match (self.selection(name), self.check_in_service(name)) {
            (Some(selection), _) => selection.is_no_model(),
            (None, Err(out)) => out,
            (None, Ok(())) => PredictorError::UnknownModel { model: name.clone() },
        })
    }

    /// The active versions of all models that learn from `stream`, by model name.
    pub(crate) fn learners(&self, stream: &StreamName) -> Vec<Arc<ServingVersion>> {
        let models = self.models.load();
        models.values().filter(|model| model.stream == *stream).map(|model| model.active.load_full()).collect()
    }

    /// The models and selections on `stream`, in service or not.
    pub(crate) fn all_on(&self, stream: &StreamName) -> Vec<ModelId> {
        let models = self.models.load();
        let mut ids: Vec<ModelId> =
            models.values().filter(|model| model.stream == *stream).map(|model| model.id).collect();
        ids.extend(self.selections_of(stream));
        ids.extend(self.out_of_service.on(stream));
        ids
    }

    /// The id of the model or selection, under which its decisions are stored.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn decides_as(&self, name: &ModelName) -> Result<ModelId, PredictorError> {
        match self.selection(name) {
            Some(selection) => Ok(selection.rule.id),
            None => Ok(self.model(name)?.id),
        }
    }

    pub(crate) fn subject(&self, model: &ModelName, user: &UserId) -> Result<RequestContext, PredictorError> {
        let model = self.model(model)?;
        let key = UserKey { stream: model.stream.clone(), user: user.clone() };
        let entry = self.users.get_or_insert_with(&key, UserEntry::new);
        Ok(RequestContext { version: model.active.load_full(), model, entry, key, persistence: Persistence::Kept })
    }

    pub(crate) fn sources<'a>(&'a self, key: &'a UserKey) -> Sources<'a> {
        Sources::new(&self.storage, &self.features, key)
    }

    /// The user's current state.
    pub(crate) fn moment(&self, subject: &RequestContext) -> Result<UserSnapshot, PredictorError> {
        let RequestContext { version, entry, key, .. } = subject;
        let rebuilding = (!entry.is_warm(version)).then(Instant::now);
        let sources = self.sources(key);
        let mut user = entry.lock(&sources, version)?;
        let state = user.state();
        let moment =
            UserSnapshot { model: state.model(version, &sources)?, epoch: state.epoch, pending: state.pending() };
        drop(user);
        if let Some(started) = rebuilding {
            self.record_user_load(started.elapsed());
            self.users.update_weight(key);
        }
        Ok(moment)
    }

    /// Records the time taken to load a user, which is what cache hits save.
    pub(crate) fn record_user_load(&self, took: Duration) {
        self.users.record_load(took);
    }

    pub(crate) fn update_weight(&self, key: &UserKey) {
        self.users.update_weight(key);
    }

    /// Drops the user's cache entry, unless a request uses it.
    pub(crate) fn purge_user(&self, stream: &StreamName, user: &UserId) {
        self.users.purge(|key| key.user == *user && key.stream == *stream);
    }

    /// Waits until the user has reached the epoch `wanted`, at most `epoch_wait_max`.
    pub(crate) async fn reach(
        &self,
        subject: &RequestContext,
        wanted: Option<UserEpoch>,
    ) -> Result<(), PredictorError> {
        let Some(wanted) = wanted else { return Ok(()) };
        let current = || -> Result<UserEpoch, PredictorError> {
            compute(subject.entry.is_warm(&subject.version), || {
                Ok(subject.entry.lock(&self.sources(&subject.key), &subject.version)?.state().epoch)
            })
        };
        let arrival = async {
            loop {
                let changed = subject.entry.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if current()? >= wanted {
                    return Ok(());
                }
                changed.await;
            }
        };
        match tokio::time::timeout(self.epoch_wait_max, arrival).await {
            Ok(reached) => reached,
            Err(_elapsed) => Err(PredictorError::EpochNotReached { wanted, current: current()? }),
        }
    }

    /// Waits until `pending` is durable. If the write fails, discards the user's state in memory.
    pub(crate) async fn settle(
        &self,
        subject: &RequestContext,
        pending: Option<&Ticket>,
    ) -> Result<(), PredictorError> {
        let Some(ticket) = pending else { return Ok(()) };
        if let Err(error) = ticket.durable().await {
            subject.entry.discard();
            return Err(error.into());
        }
        Ok(())
    }

    /// Sends a loss event; drops and counts it if the channel is full.
    pub(crate) fn report(&self, event: LossEvent) {
        if self.losses.try_send(event).is_err() {
            metrics::counter!("celeris_loss_events_dropped_total").increment(1);
        }
    }
}

/// Runs long work off the async threads, and quick work in place.
pub(crate) fn compute<T>(quick: bool, work: impl FnOnce() -> T) -> T {
    if quick { work() } else { tokio::task::block_in_place(work) }
}
