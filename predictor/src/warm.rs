//! Warms the caches for a version before it serves, so that a switch does not slow requests down.
//!
//! Three kinds of entries are prepared: the states of recently used users, the features of recently used items outside
//! the trained table, and the cached predictions. Each is computed under the next version in small steps and inserted
//! next to the entries in use. A preparation may use the free part of a cache's budget, and at least a quarter of it;
//! [`Warmed`] reports how much fitted.
//!
//! A state prepared before the switch lacks the observations made afterwards; on its first access it catches up by one
//! rank-one step for each. So an observation that arrives during a preparation is neither missed nor counted twice: a
//! state always matches the log.

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

/// The recently used entries under a model's active version, at one moment.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    pub prepared: usize,
    /// Total number of candidates for preparation.
    pub of: usize,
}

/// Result of a preparation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Warmed {
    pub users: Share,
    /// Features of items outside the trained table.
    pub features: Share,
    pub predictions: Share,
    pub took: Duration,
}

pub struct Prepared {
    stream: StreamName,
    version: Arc<ServingVersion>,
    pub warmed: Warmed,
}

impl Prepared {
    #[must_use]
    pub fn version(&self) -> &Arc<ServingVersion> {
        &self.version
    }
}

impl Predictor {
    /// The recently used entries under the active version of `model` that fit. Reads the caches; computes nothing.
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

    /// Computes the entries of `hot` under `version`, until `deadline`. Meant for a thread of low priority: it holds
    /// locks that requests need only for one step at a time.
    ///
    /// # Errors
    /// `Storage`.
    pub fn prepare(&self, hot: Hot, version: ServingVersion, deadline: Instant) -> Result<Prepared, PredictorError> {
        let started = Instant::now();
        let version = Arc::new(version);
        // Required even past the deadline: without the index searches find nothing.
        self.equip(&hot.stream, &version)?;
        let features = self.features.untracked();
        let mut warmed = Warmed {
            users: Share { prepared: 0, of: hot.users_of },
            features: Share { prepared: 0, of: hot.items_of },
            predictions: Share { prepared: 0, of: hot.predictions_of },
            took: Duration::ZERO,
        };
        // Entries inserted last are evicted last, so insert the most recently used last.
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
                // The log's queue cannot take more features to freeze. The user's next request prepares the rest.
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

    /// Caches the predictions of `version` if the user's epoch is unchanged; returns their number.
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

    /// Makes a prepared version the active one, at once for all requests that start afterwards. Requests in progress
    /// finish on their version.
    pub fn switch(&self, defaults: RankingDefaults, prepared: Prepared) {
        self.flip(&prepared.stream, defaults, prepared.version);
    }

    /// Drops the model's user states under versions not in `kept` from memory.
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
