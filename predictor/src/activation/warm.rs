//! Warms the caches for a version before it serves, so that a switch does not slow requests down.
//!
//! Three kinds of entries are prepared: the states of recently used users, the features of recently
//! used items outside the trained table, and the cached predictions. Each is computed under the
//! next version in small steps and inserted next to the entries in use. A preparation may use the
//! free part of a cache's budget, and at least a quarter of it; [`Warmed`] reports how much fitted.
//!
//! A state prepared before the switch lacks the observations made afterwards; on its first access
//! it catches up by one rank-one step for each. So an observation that arrives during a preparation
//! is neither missed nor counted twice: a state always matches the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_model::{ItemId, ModelName, Shard, StreamName, UserEpoch, UserId};

use super::Activation;
use crate::cache::Hottest;
use crate::error::PredictorError;
use crate::features::{FeatureScope, FeatureStore};
use crate::ranking::CachedPredictions;
use crate::users::{Preparation, Sources, UserEntry, UserKey};
use crate::version::ServingVersion;

/// The recently used entries under a model's active version, at one moment.
pub struct Hot {
    stream: StreamName,
    users: Hottest<UserKey, Arc<UserEntry>>,
    items: Vec<(Shard, ItemId)>,
    items_of: usize,
    predictions: CachedPredictions,
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
    pub(super) version: Arc<ServingVersion>,
    pub warmed: Warmed,
}

impl Prepared {
    #[must_use]
    pub fn version(&self) -> &Arc<ServingVersion> {
        &self.version
    }
}

impl Activation {
    /// The recently used entries under the active version of `model` that fit. Reads the caches;
    /// computes nothing.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn hot(&self, model: &ModelName) -> Result<Hot, PredictorError> {
        let served = self.models.get(model)?;
        let (stream, active) = (served.stream.clone(), served.active.load_full());
        let users = self.users.hottest(&stream, active.newcomer.bytes());
        let (items, items_of) = self.features.hottest(&active);
        let predictions = self.scorer.hottest(&active);
        Ok(Hot { stream, users, items, items_of, predictions })
    }

    /// Computes the entries of `hot` under `version`, until `deadline`. Meant for a thread of low
    /// priority: it holds locks that requests need only for one step at a time.
    ///
    /// # Errors
    /// `Storage`.
    pub fn prepare(&self, hot: Hot, version: ServingVersion, deadline: Instant) -> Result<Prepared, PredictorError> {
        let started = Instant::now();
        let version = Arc::new(version);
        // Required even past the deadline: without the index searches find nothing.
        self.catalog.equip(&hot.stream, &version)?;
        let features = self.features.untracked();
        let mut warmed = Warmed {
            users: Share { prepared: 0, of: hot.users.of },
            features: Share { prepared: 0, of: hot.items_of },
            predictions: Share { prepared: 0, of: hot.predictions.of },
            took: Duration::ZERO,
        };
        // Entries inserted last are evicted last, so insert the most recently used last.
        for (shard, item) in hot.items.iter().rev() {
            if Instant::now() >= deadline {
                break;
            }
            features.resolve(&version, FeatureScope { stream: &hot.stream, shard: *shard }, item)?;
            warmed.features.prepared += 1;
        }
        for (key, entry) in hot.users.entries {
            if Instant::now() >= deadline {
                break;
            }
            match self.prepare_user(&key, &entry, &version, &features) {
                Ok(()) => warmed.users.prepared += 1,
                // The log's queue cannot take more features to freeze. The user's next request
                // prepares the rest. Of users of another node, this one freezes none.
                Err(error) if error.is_overload() || error.is_of_other_node() => {}
                Err(error) => return Err(error),
            }
            drop(entry);
            self.users.update_weight(&key);
        }
        for (user, epoch, items) in hot.predictions.by_user.iter().rev() {
            if Instant::now() >= deadline {
                break;
            }
            match self.prepare_predictions(&hot.stream, (user, *epoch), items, &version, &features) {
                Ok(prepared) => warmed.predictions.prepared += prepared,
                Err(error) if error.is_of_other_node() => {}
                Err(error) => return Err(error),
            }
        }
        warmed.took = started.elapsed();
        Ok(Prepared { version, warmed })
    }

    /// Prepares the first version of a model on this node, for which nothing is hot.
    ///
    /// # Errors
    /// `Storage`.
    pub fn prepare_cold(&self, stream: &StreamName, version: ServingVersion) -> Result<Prepared, PredictorError> {
        let version = Arc::new(version);
        self.catalog.equip(stream, &version)?;
        Ok(Prepared { version, warmed: Warmed::default() })
    }

    fn prepare_user(
        &self,
        key: &UserKey,
        entry: &UserEntry,
        version: &ServingVersion,
        features: &FeatureStore,
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
        features: &FeatureStore,
    ) -> Result<usize, PredictorError> {
        let key = UserKey { stream: stream.clone(), user: user.clone() };
        let Some(entry) = self.users.untracked_held(&key) else { return Ok(0) };
        let Some(losses) = self.users.losses_if_owned(user) else { return Ok(0) };
        let sources = Sources::new(&self.storage, features, &key);
        let mut locked = entry.lock(&sources, version)?;
        let state = locked.state();
        if state.epoch != epoch {
            return Ok(0);
        }
        let snapshot = state.snapshot(version, &sources)?;
        drop(locked);
        self.scorer.prepare((version, stream), (user, &snapshot, losses), items, features)?;
        Ok(items.len())
    }
}
