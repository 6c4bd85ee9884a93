//! The predictor: the components of a node's local state, and the requests that span them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use celeris_model::observation::EARLIEST;
use celeris_model::{ModelName, RecordKind, Shard, Timestamp, UserId};
use celeris_storage::{AppliedGroup, AppliedRecord, Storage, StorageError};
use tokio::sync::mpsc;

use crate::accepted_times::AcceptedTimes;
use crate::activation::Activation;
use crate::attribution::Attribution;
use crate::catalog::ItemCatalog;
use crate::error::PredictorError;
use crate::explain::Explainer;
use crate::features::FeatureStore;
use crate::ingest::{Erased, Ingest};
use crate::loss::LossEvent;
use crate::models::Models;
use crate::ranking::{
    Choice, ChooseRequest, DecisionLog, DecisionLogging, PredictRequest, Predictions, Ranker, Ranking, Scorer, Seed,
    TopkRequest,
};
use crate::recommend::{RecommendRequest, Recommendation, Recommender, Recommending, SeenCache};
use crate::selection::without_segment;
use crate::selections::Selections;
use crate::users::{UserKey, UserStore};

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
    /// The most items of a request whose predictions are cached and looked up; requests of more
    /// items are computed. 0 disables the cache.
    pub prediction_items_max: usize,
    /// Capacity of the loss event channel; events beyond it are dropped and counted.
    pub loss_events_max: usize,
    /// Which decisions are recorded, and with which candidates.
    pub decisions: DecisionLogging,
    pub epoch_wait_max: Duration,
    /// The earliest accepted timestamp of an observation.
    pub earliest_time: Timestamp,
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
            earliest_time: EARLIEST,
            clock_skew_max: Duration::from_secs(300),
        }
    }
}

/// The most items of a prediction that is quick: at 128 dimensions, a fraction of a millisecond of
/// portable code.
const QUICK_ITEMS_MAX: usize = 16;

/// One node's local state. Shared by all requests; every method takes `&self`.
///
/// Methods read from the disk and compute on the thread that calls or polls them, so they belong on
/// threads for computation. Only a prediction for which [`Predictor::is_quick`] holds may run on
/// the threads of the sockets.
pub struct Predictor {
    models: Arc<Models>,
    selections: Arc<Selections>,
    users: Arc<UserStore>,
    features: Arc<FeatureStore>,
    catalog: Arc<ItemCatalog>,
    attribution: Arc<Attribution>,
    scorer: Arc<Scorer>,
    ranker: Ranker,
    recommender: Recommender,
    ingest: Ingest,
    explainer: Explainer,
    activation: Activation,
}

impl Predictor {
    /// Creates a predictor without models, and the receiver of its loss events.
    #[must_use]
    pub fn new(storage: Storage, options: &PredictorOptions) -> (Self, mpsc::Receiver<LossEvent>) {
        let (losses, listener) = mpsc::channel(options.loss_events_max);
        let accepted_times = AcceptedTimes { earliest: options.earliest_time, clock_skew_max: options.clock_skew_max };
        let models = Arc::new(Models::default());
        let features = Arc::new(FeatureStore::new(storage.clone(), options.feature_bytes_max));
        let users = UserStore::new(storage.clone(), features.clone(), options.user_bytes_max, options.epoch_wait_max);
        let users = Arc::new(users);
        let selections = Selections::new(storage.clone(), models.clone(), users.clone(), options.selection_bytes_max);
        let selections = Arc::new(selections);
        let catalog = Arc::new(ItemCatalog::new(storage.clone(), models.clone(), features.clone()));
        let scorer = Scorer::new(features.clone(), options.prediction_bytes_max, options.prediction_items_max);
        let scorer = Arc::new(scorer);
        let decisions = Arc::new(DecisionLog::new(storage.clone(), options.decisions.clone()));
        let attribution = Arc::new(Attribution::new(storage.clone(), models.clone()));
        let predictor = Self {
            ranker: Ranker {
                models: models.clone(),
                selections: selections.clone(),
                users: users.clone(),
                scorer: scorer.clone(),
                decisions: decisions.clone(),
            },
            recommender: Recommender {
                storage: storage.clone(),
                models: models.clone(),
                selections: selections.clone(),
                users: users.clone(),
                features: features.clone(),
                scorer: scorer.clone(),
                decisions,
                seen: SeenCache::new(options.seen_bytes_max),
                accepted_times,
            },
            ingest: Ingest {
                storage: storage.clone(),
                models: models.clone(),
                users: users.clone(),
                features: features.clone(),
                catalog: catalog.clone(),
                attribution: attribution.clone(),
                losses,
                accepted_times,
            },
            explainer: Explainer {
                storage: storage.clone(),
                models: models.clone(),
                users: users.clone(),
                features: features.clone(),
                scorer: scorer.clone(),
            },
            activation: Activation {
                storage,
                models: models.clone(),
                users: users.clone(),
                features: features.clone(),
                catalog: catalog.clone(),
                scorer: scorer.clone(),
            },
            models,
            selections,
            users,
            features,
            catalog,
            attribution,
            scorer,
        };
        (predictor, listener)
    }

    /// Whether a prediction is known to take microseconds: of few items, for a user whose state is in
    /// memory, without waiting for an epoch, after which the state may have to be rebuilt.
    #[must_use]
    pub fn is_quick(&self, request: &PredictRequest) -> bool {
        request.items.len() <= QUICK_ITEMS_MAX
            && request.min_epoch.is_none()
            && self.ranker.is_warm(&request.model, &request.user)
    }

    /// Scores items for a user. Unknown users are scored from the prior, unknown items from the
    /// average item.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `Model` for a context that does not fit the stream, `Segment`, `EpochNotReached` or
    /// `Storage`.
    pub async fn predict(&self, request: &PredictRequest) -> Result<Predictions, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        self.models.check_context(&request.model, request.context.as_deref())?;
        match self.models.selection(&request.model) {
            Some(selection) => self.ranker.predict_by_selection(&selection, request).await,
            None => {
                without_segment(&request.model, request.segment.as_ref())?;
                self.ranker.predict_by_model(request).await
            }
        }
    }

    /// Ranks items for a user and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `NoItems`, `Model` for a context that does not fit the stream, `Segment`, `EpochNotReached`,
    /// `Bandit` or `Storage`.
    pub async fn topk(&self, request: &TopkRequest) -> Result<Ranking, PredictorError> {
        if request.items.is_empty() {
            return Err(PredictorError::NoItems);
        }
        self.models.check_context(&request.model, request.context.as_deref())?;
        let seed = Seed::of(request.seed);
        match self.models.selection(&request.model) {
            Some(selection) => self.ranker.topk_by_selection(&selection, request, seed).await,
            None => {
                without_segment(&request.model, request.segment.as_ref())?;
                self.ranker.topk_by_model(request, seed).await
            }
        }
    }

    /// Chooses one of a few items with the probability of each, and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `NoItems`, `Bandit` or `Storage`.
    pub async fn choose(&self, request: &ChooseRequest) -> Result<Choice, PredictorError> {
        self.ranker.choose(request).await
    }

    /// Recommends from the whole catalog, and records the decision.
    ///
    /// # Errors
    /// `UnknownModel`, `Field`, `Model` for a context that does not fit the stream, `Segment`, `EpochNotReached`,
    /// `Bandit` or `Storage`.
    pub async fn recommend(&self, request: &RecommendRequest) -> Result<Recommendation, PredictorError> {
        request.check()?;
        self.models.check_context(&request.model, request.context.as_deref())?;
        let (seed, now) = (Seed::of(request.seed), SystemTime::now().into());
        let recommending = Recommending { request, model: &request.model, selection: None, seed, now };
        match self.models.selection(&request.model) {
            Some(selection) => self.recommender.recommend_by_selection(&selection, recommending).await,
            None => {
                without_segment(&request.model, request.segment.as_ref())?;
                self.recommender.recommend_by_model(recommending).await
            }
        }
    }

    /// Erases a user of the model's stream: history, states, cached predictions and decisions, for
    /// every model of the stream, including models out of service.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`; decisions may then be erased while the user is not, and the
    /// call can be retried.
    pub async fn erase(&self, model: &ModelName, user: &UserId) -> Result<Erased, PredictorError> {
        let erased = self.ingest.erase(model, user).await?;
        self.purge(&UserKey { stream: erased.stream.clone(), user: user.clone() });
        Ok(erased)
    }

    /// Drops what is in memory of an erased user.
    fn purge(&self, key: &UserKey) {
        self.users.purge(&key.stream, &key.user);
        self.scorer.purge(&key.user);
        self.selections.purge(&key.user);
        self.recommender.purge(key);
    }

    /// Erases the decisions of users whose erasure is about to be applied to the store with a group of
    /// another node's records: after a crash in between, the group is applied again. Blocks the thread.
    ///
    /// # Errors
    /// `Storage`; the call can be repeated.
    pub fn applying(&self, group: &AppliedGroup) -> Result<(), StorageError> {
        let mut erasures = group.records.iter().filter(|applied| applied.record.kind == RecordKind::Erase);
        erasures.try_for_each(|AppliedRecord { stream, record, .. }| self.ingest.erase_decisions(stream, record))
    }

    /// Brings memory in line with a group of another node's records, which was applied to the store
    /// just before. Blocks the thread.
    ///
    /// # Errors
    /// `Storage`; the call can be repeated.
    pub fn applied(&self, group: &AppliedGroup) -> Result<(), PredictorError> {
        // What is in memory of users of other nodes is a view of the records applied so far.
        self.features.note_changes(&group.frozen);
        let mut users: HashSet<UserKey> = HashSet::new();
        for AppliedRecord { stream, record, .. } in &group.records {
            users.insert(UserKey { stream: stream.clone(), user: record.user.clone() });
        }
        users.extend(group.described.iter().cloned().map(|(stream, user)| UserKey { stream, user }));
        users.iter().for_each(|user| self.users.discard(user));
        for AppliedRecord { stream, record, .. } in &group.records {
            if let Some(facts) = &record.decision {
                self.attribution.forget(&facts.id);
            }
            match record.kind {
                RecordKind::Erase => self.purge(&UserKey { stream: stream.clone(), user: record.user.clone() }),
                RecordKind::Observe | RecordKind::Correct | RecordKind::Retract => {}
            }
        }
        let noted = group.records.iter().filter(|applied| applied.notes_item);
        let items = noted.filter_map(|applied| Some((&applied.stream, applied.record.item.as_ref()?)));
        for (stream, item) in items {
            if let Some(catalog) = self.catalog.loaded(stream) {
                self.catalog.list_observed(&catalog, item)?;
            }
        }
        Ok(())
    }

    /// Drops what is in memory of the users of a shard that this node has lost, including events that
    /// are not in the log. The node has ended its term; it must not begin another one before this
    /// returns. Blocks the thread while requests use the users' states.
    pub fn forget_shard(&self, shard: Shard) {
        // In this order: what is dropped first is not built again from what is dropped later.
        self.features.forget_shard(shard);
        self.attribution.forget_all();
        self.users.forget_shard(shard);
    }

    /// The models and selections by name.
    #[must_use]
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// The states of selections.
    #[must_use]
    pub fn selections(&self) -> &Selections {
        &self.selections
    }

    /// The items that may be recommended.
    #[must_use]
    pub fn catalog(&self) -> &ItemCatalog {
        &self.catalog
    }

    /// The decisions that rewards belong to.
    #[must_use]
    pub fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    /// Observations, corrections and retractions.
    #[must_use]
    pub fn ingest(&self) -> &Ingest {
        &self.ingest
    }

    /// Similar items, and recommendations.
    #[must_use]
    pub fn recommender(&self) -> &Recommender {
        &self.recommender
    }

    /// Explanations and replays.
    #[must_use]
    pub fn explainer(&self) -> &Explainer {
        &self.explainer
    }

    /// Versions that begin or cease to serve.
    #[must_use]
    pub fn activation(&self) -> &Activation {
        &self.activation
    }
}
