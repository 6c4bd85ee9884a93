//! Getting a version ready before it serves, so that a switch finds warm what was warm.
//!
//! Three things are hot, and the caches know which: the users most recently asked for, the items outside the trained
//! table whose features were resolved, and the predictions that were cached. For each, what the next version says is
//! computed in small steps and put beside what serves, least recently used last. A preparation may take what is free of
//! a cache's budget, and at least a quarter of it; [`Warmed`] says how much of what is hot fitted.
//!
//! A state prepared before the switch has not learnt from what is observed afterwards; it catches up when it is first
//! asked for, by one rank-one step an observation. So nothing that arrives during a preparation is missing or counted
//! twice: a state is always that of the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_model::{ItemId, ModelId, ModelName, StreamName, UserEpoch, UserId, VersionId};

use crate::error::PredictorError;
use crate::features::FeatureSource;
use crate::node::Predictor;
use crate::predictions::{CachedPrediction, PredictionKey};
use crate::scoring;
use crate::users::{Preparation, Sources, UserEntry, UserKey};
use crate::version::{RankingDefaults, ServedModel, ServingVersion};

/// What was hot at one moment under a model's active version.
pub struct Hot {
    stream: StreamName,
    users: Vec<(UserKey, Arc<UserEntry>)>,
    users_of: usize,
    items: Vec<ItemId>,
    items_of: usize,
    /// By user and epoch.
    predictions: Vec<(UserId, UserEpoch, Vec<ItemId>)>,
    predictions_of: usize,
}

/// How many of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Those prepared.
    pub prepared: usize,
    /// All that were hot.
    pub of: usize,
}

/// What a preparation came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Warmed {
    /// User states.
    pub users: Share,
    /// Features of items outside the trained table.
    pub features: Share,
    /// Cached predictions.
    pub predictions: Share,
    /// How long it took.
    pub took: Duration,
}

/// A version that is ready to serve.
pub struct Prepared {
    stream: StreamName,
    version: Arc<ServingVersion>,
    /// What is warm under it.
    pub warmed: Warmed,
}

impl Prepared {
    /// The version.
    #[must_use]
    pub fn version(&self) -> &Arc<ServingVersion> {
        &self.version
    }
}

impl Predictor {
    /// What is hot under the active version of `model`, and fits. Reads the caches, and does not compute.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn hot(&self, model: &ModelName) -> Result<Hot, PredictorError> {
        let served = self.model(model)?;
        let (stream, active) = (served.stream.clone(), served.active.load_full());
        let state_bytes = active.newcomer.bytes();
        let users =
            self.users.hottest(|key, entry| (key.stream == stream && entry.has_learnt()).then_some(state_bytes));
        let (items, items_of) = self.features.hottest(&active);
        let predictions = self.predictions.hottest(|key, _| {
            (key.version == active.serial).then(|| size_of::<PredictionKey>() + key.item.heap_bytes())
        });
        let predictions_of = predictions.of;
        let mut keys: Vec<PredictionKey> = predictions.entries.into_iter().map(|(key, _)| key).collect();
        keys.sort_by(|a, b| (&a.user, a.epoch).cmp(&(&b.user, b.epoch)));
        let by_user = keys.chunk_by(|a, b| a.user == b.user && a.epoch == b.epoch);
        let predictions = by_user
            .map(|keys| (keys[0].user.clone(), keys[0].epoch, keys.iter().map(|key| key.item.clone()).collect()))
            .collect();
        let (users, users_of) = (users.entries, users.of);
        Ok(Hot { stream, users, users_of, items, items_of, predictions, predictions_of })
    }

    /// Computes what is hot under `version`, until `deadline`. Meant for a thread of low priority: requests wait for no
    /// lock that it holds longer than a step takes.
    ///
    /// # Errors
    /// `Storage`.
    pub fn prepare(&self, hot: Hot, version: ServingVersion, deadline: Instant) -> Result<Prepared, PredictorError> {
        let started = Instant::now();
        let version = Arc::new(version);
        // Not a matter of time: without it nothing is found.
        self.equip(&hot.stream, &version)?;
        let features = self.features.untracked();
        let mut warmed = Warmed {
            users: Share { prepared: 0, of: hot.users_of },
            features: Share { prepared: 0, of: hot.items_of },
            predictions: Share { prepared: 0, of: hot.predictions_of },
            took: Duration::ZERO,
        };
        // What is put last is evicted last, so the hottest come last.
        for item in hot.items.iter().rev() {
            if Instant::now() >= deadline {
                break;
            }
            features.resolve(&version, &hot.stream, item)?;
            warmed.features.prepared += 1;
        }
        for (key, entry) in hot.users {
            if Instant::now() >= deadline {
                break;
            }
            match self.prepare_user(&key, &entry, &version, &features) {
                Ok(()) => warmed.users.prepared += 1,
                // The log takes no more features to freeze now. The user's next request prepares the rest.
                Err(error) if error.is_overload() => {}
                Err(error) => return Err(error),
            }
            drop(entry);
            self.users.update_weight(&key);
        }
        if self.prediction_items_max > 0 {
            for (user, epoch, items) in hot.predictions.iter().rev() {
                if Instant::now() >= deadline {
                    break;
                }
                warmed.predictions.prepared +=
                    self.prepare_predictions(&hot.stream, (user, *epoch), items, &version, &features)?;
            }
        }
        warmed.took = started.elapsed();
        Ok(Prepared { stream: hot.stream, version, warmed })
    }

    fn prepare_user(
        &self,
        key: &UserKey,
        entry: &UserEntry,
        version: &ServingVersion,
        features: &FeatureSource,
    ) -> Result<(), PredictorError> {
        let sources = Sources::new(&self.storage, features, key);
        let mut user = entry.lock(&sources, version)?;
        match user.state().preparation(version) {
            Preparation::Done => {}
            Preparation::UnderLock => {
                user.state().model(version, &sources)?;
            }
            Preparation::Copied(excerpt) => {
                drop(user);
                let state = excerpt.rebuild(version, &sources)?;
                entry.lock(&sources, version)?.state().put_prepared(version, (&excerpt, state), &sources);
            }
        }
        Ok(())
    }

    /// Caches what `version` predicts, where the user has not gone on since; answers how many predictions it is.
    fn prepare_predictions(
        &self,
        stream: &StreamName,
        (user, epoch): (&UserId, UserEpoch),
        items: &[ItemId],
        version: &ServingVersion,
        features: &FeatureSource,
    ) -> Result<usize, PredictorError> {
        let users = self.users.untracked();
        let key = UserKey { stream: stream.clone(), user: user.clone() };
        let Some(entry) = users.get(&key) else { return Ok(0) };
        let sources = Sources::new(&self.storage, features, &key);
        let mut locked = entry.lock(&sources, version)?;
        let state = locked.state();
        if state.epoch != epoch {
            return Ok(0);
        }
        let model = state.model(version, &sources)?;
        drop(locked);
        let revisions: Vec<u64> = items.iter().map(|item| self.features.revision(item)).collect();
        let mut resolved = Vec::with_capacity(items.len());
        for item in items {
            resolved.push(features.resolve(version, stream, item)?);
        }
        let estimates = scoring::estimates(&model, version, resolved.iter());
        for (((item, revision), resolved), estimate) in items.iter().zip(revisions).zip(&resolved).zip(estimates) {
            let key =
                PredictionKey { version: version.serial, user: user.clone(), epoch, item: item.clone(), revision };
            self.predictions.insert(key, CachedPrediction { estimate, known: resolved.known() });
        }
        Ok(items.len())
    }

    /// Makes a prepared version the active one, at once for all requests that begin from now on. Those under way finish
    /// on the version that they began with.
    pub fn switch(&self, defaults: RankingDefaults, prepared: Prepared) {
        self.flip(&prepared.stream, defaults, prepared.version);
    }

    /// Drops the user states of the model of this name and identity under versions other than `kept` from memory.
    pub fn release(&self, (name, id): (&ModelName, ModelId), kept: &[VersionId]) {
        if let Ok(model) = self.model(name)
            && model.id == id
        {
            self.release_states(&model, kept);
        }
    }

    pub(crate) fn release_states(&self, served: &ServedModel, kept: &[VersionId]) {
        let of_stream = |key: &UserKey| key.stream == served.stream;
        self.users.visit(of_stream, |key, entry| {
            entry.release(served.id, kept);
            self.users.update_weight(key);
        });
    }
}
