//! The users in this node's memory: their histories and states, rebuilt from the log on access,
//! dropped when unused.

mod profile;
mod state;
mod subject;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use celeris_model::{ModelId, Shard, StreamName, UserEpoch, UserId, VersionId};
use celeris_storage::{Storage, Ticket};

use crate::cache::{BoundedCache, Held, Hottest};
use crate::error::PredictorError;
use crate::features::FeatureStore;
use crate::models::ServedModel;

pub(crate) use profile::Profile;
pub(crate) use state::{
    Amendment, Learner, Preparation, ResolvedEvents, Sources, Stretch, UserEntry, UserKey, UserSnapshot, UserState,
    UserStatus,
};
pub(crate) use subject::{Persistence, Subject};

/// The users in memory, within a budget of bytes. Each has one lock, so that a user has one writer.
pub(crate) struct UserStore {
    storage: Storage,
    features: Arc<FeatureStore>,
    cache: BoundedCache<UserKey, Arc<UserEntry>>,
    epoch_wait_max: Duration,
    /// How often this node has lost each shard, by its number.
    losses: Box<[AtomicU32]>,
}

impl UserStore {
    pub(crate) fn new(
        storage: Storage,
        features: Arc<FeatureStore>,
        bytes_max: usize,
        epoch_wait_max: Duration,
    ) -> Self {
        let losses = storage.log().shards().all().map(|_| AtomicU32::default()).collect();
        Self { storage, features, cache: BoundedCache::new("users", bytes_max), epoch_wait_max, losses }
    }

    /// The subject of a request of `user` to `model`, under its active version.
    pub(crate) fn subject(&self, model: Arc<ServedModel>, user: &UserId) -> Subject {
        let losses = self.losses_if_owned(user);
        let persistence = if losses.is_some() { Persistence::Kept } else { Persistence::Nothing };
        let losses = losses.unwrap_or_default();
        let key = UserKey { stream: model.stream.clone(), user: user.clone() };
        let entry = self.cache.get_or_insert_with(&key, UserEntry::new);
        Subject { version: model.active.load_full(), model, entry, key, persistence, losses }
    }

    /// How often this node has lost the user's shard; `None` unless it owns the shard. To be read before the
    /// state of the user that a prediction is computed from and cached with this count: if the shard
    /// is lost meanwhile, the prediction is not found again.
    pub(crate) fn losses_if_owned(&self, user: &UserId) -> Option<u32> {
        let log = self.storage.log();
        let shard = log.shard_of(user);
        let losses = self.losses(shard).load(Ordering::Acquire);
        log.owns(shard).then_some(losses)
    }

    fn losses(&self, shard: Shard) -> &AtomicU32 {
        &self.losses[usize::from(shard.index())]
    }

    /// Drops what is in memory of a user, to whose log another node has appended. Blocks while a
    /// request uses the state.
    pub(crate) fn discard(&self, key: &UserKey) {
        if let Some(entry) = self.cache.peek(key) {
            entry.discard();
        }
    }

    /// Drops what is in memory of the users of a shard, which this node has lost. Blocks while requests use
    /// their states.
    pub(crate) fn forget_shard(&self, shard: Shard) {
        let log = self.storage.log();
        self.cache.visit(|key| log.shard_of(&key.user) == shard, |_, entry| entry.discard());
        // Last: predictions by the states that were dropped are not found after this.
        self.losses(shard).fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the user's state under the model's active version is in memory.
    pub(crate) fn is_warm(&self, model: &ServedModel, user: &UserId) -> bool {
        let key = UserKey { stream: model.stream.clone(), user: user.clone() };
        self.cache.peek(&key).is_some_and(|entry| entry.is_warm(&model.active.load()))
    }

    pub(crate) fn sources<'a>(&'a self, key: &'a UserKey) -> Sources<'a> {
        Sources::new(&self.storage, &self.features, key)
    }

    /// Runs `work` on the locked state of the user, which is loaded if it is not in memory.
    ///
    /// # Errors
    /// `Storage`, or those of `work`.
    pub(crate) fn with_state<R>(
        &self,
        Subject { version, entry, key, .. }: &Subject,
        work: impl FnOnce(&mut UserState, &Sources<'_>) -> Result<R, PredictorError>,
    ) -> Result<R, PredictorError> {
        let bytes = entry.bytes();
        let loading = (!entry.is_warm(version)).then(Instant::now);
        let sources = self.sources(key);
        let mut user = entry.lock(&sources, version)?;
        let result = work(user.state(), &sources);
        drop(user);
        // The time of a load is what a cache hit saves.
        if let Some(started) = loading {
            self.cache.record_load(started.elapsed());
        }
        if entry.bytes() != bytes {
            self.cache.update_weight(key);
        }
        result
    }

    /// The user's current state.
    pub(crate) fn snapshot(&self, subject: &Subject) -> Result<UserSnapshot, PredictorError> {
        self.with_state(subject, |state, sources| state.snapshot(&subject.version, sources))
    }

    /// The user's epoch, once all events up to it are durable, and `min_epoch` is reached.
    ///
    /// # Errors
    /// `EpochNotReached` or `Storage`.
    pub(crate) async fn durable_epoch(
        &self,
        subject: &Subject,
        min_epoch: Option<UserEpoch>,
    ) -> Result<UserEpoch, PredictorError> {
        self.reach(subject, min_epoch).await?;
        let (epoch, pending) = self.latest(subject)?;
        self.settle(subject, pending.as_ref()).await?;
        Ok(epoch)
    }

    /// The user's epoch, and the ticket of its latest event if that is not known to be durable.
    fn latest(&self, subject: &Subject) -> Result<(UserEpoch, Option<Ticket>), PredictorError> {
        self.with_state(subject, |state, _| Ok((state.epoch, state.pending())))
    }

    /// Loads the user's state if it is not in memory. Requests that wait for another one to load it
    /// occupy no thread.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) async fn load(&self, subject: &Subject) -> Result<(), PredictorError> {
        if subject.entry.is_warm(&subject.version) {
            return Ok(());
        }
        let _loading = subject.entry.loading.lock().await;
        self.snapshot(subject).map(drop)
    }

    /// Loads the user's state, and waits until the user has reached the epoch `wanted`, at most
    /// `epoch_wait_max`.
    ///
    /// # Errors
    /// `EpochNotReached` or `Storage`.
    pub(crate) async fn reach(&self, subject: &Subject, wanted: Option<UserEpoch>) -> Result<(), PredictorError> {
        let Some(wanted) = wanted else { return self.load(subject).await };
        let current = || self.latest(subject).map(|(epoch, _)| epoch);
        let arrival = async {
            loop {
                let changed = subject.entry.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                self.load(subject).await?;
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
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) async fn settle(&self, subject: &Subject, pending: Option<&Ticket>) -> Result<(), PredictorError> {
        let Some(ticket) = pending else { return Ok(()) };
        if let Err(error) = ticket.durable().await {
            subject.entry.discard();
            return Err(error.into());
        }
        Ok(())
    }

    /// Accounts for the size of an entry that was used by work in the background.
    pub(crate) fn update_weight(&self, key: &UserKey) {
        self.cache.update_weight(key);
    }

    /// The users of a stream with observations, most recently used first, as many as may be
    /// prepared with states of `state_bytes`; and their total number.
    pub(crate) fn hottest(&self, stream: &StreamName, state_bytes: usize) -> Hottest<UserKey, Arc<UserEntry>> {
        self.cache.hottest(|key, entry| (key.stream == *stream && entry.has_learnt()).then_some(state_bytes))
    }

    /// The user's entry for work in the background, which cache statistics leave out; created if
    /// missing.
    pub(crate) fn untracked(&self, key: &UserKey) -> Arc<UserEntry> {
        self.cache.untracked().get_or_insert_with(key, UserEntry::new)
    }

    /// Like [`UserStore::untracked`], but `None` if the user is not in memory.
    pub(crate) fn untracked_held(&self, key: &UserKey) -> Option<Arc<UserEntry>> {
        self.cache.untracked().get(key)
    }

    /// Drops the states of a model of `stream` under versions not in `kept` from memory.
    pub(crate) fn release(&self, stream: &StreamName, model: ModelId, kept: &[VersionId]) {
        self.cache.visit(
            |key| key.stream == *stream,
            |key, entry| {
                entry.release(model, kept);
                self.cache.update_weight(key);
            },
        );
    }

    /// Drops the user's entry, unless a request uses it.
    pub(crate) fn purge(&self, stream: &StreamName, user: &UserId) {
        self.cache.purge(|key| key.user == *user && key.stream == *stream);
    }
}
