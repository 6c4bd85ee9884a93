//! The users this node holds: each one's history and states, rebuilt from the log when touched, dropped when unused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeris_model::{
    Example, History, ItemId, ModelName, Record, RecordKind, Sequence, StreamName, Timestamp, UserEpoch, UserId,
    UserModel, VersionId,
};
use celeris_storage::{Storage, Ticket};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::cache::Held;
use crate::error::PredictorError;
use crate::features::{FeatureSource, Resolved};
use crate::version::ServingVersion;

mod prepared;

pub(crate) use prepared::Preparation;

/// Which user of which stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UserKey {
    pub(crate) stream: StreamName,
    pub(crate) user: UserId,
}

/// What a state learns from one observation; independent of models and versions.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) item: ItemId,
    pub(crate) label: f32,
    pub(crate) weight: f32,
    pub(crate) timestamp: Timestamp,
    /// Its record's place in the user's partition, by which it is corrected or forgotten.
    pub(crate) sequence: Sequence,
}

/// What becomes of earlier events when the user, or whoever speaks for the user, changes the past.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Amendment {
    /// The event of this sequence has had another label.
    Relabel(Sequence, f32),
    /// The event of this sequence never happened.
    Forget(Sequence),
    /// Nothing ever happened.
    ForgetAll,
}

/// One user's history and states, as of the last appended event.
pub(crate) struct UserState {
    /// The count of the user's events.
    pub(crate) epoch: UserEpoch,
    events: Vec<Event>,
    /// Bytes of the ids in `events`. Items of a table share theirs; counting them always errs on the safe side.
    item_bytes: usize,
    /// When the last event is durable; `None` where it was read from the log.
    pub(crate) pending: Option<Ticket>,
    /// At most [`STATES_A_MODEL`] of each model. Events advance those of the active versions only; another one catches
    /// up when it is asked for.
    states: Vec<HeldState>,
}

/// States of one model that are held at a time: the active version's, and the one that is about to serve, served before,
/// or is compared with it.
const STATES_A_MODEL: usize = 2;

/// A user's state under one version of a model.
struct HeldState {
    model: ModelName,
    version: VersionId,
    state: Arc<UserModel>,
}

impl HeldState {
    fn is_of(&self, version: &ServingVersion) -> bool {
        self.version == version.id && self.model == version.model
    }
}

/// What an allocation costs beside its bytes: reference counts, or the allocator's header and rounding.
const ALLOCATION_BYTES: usize = 16;

/// A user's place in memory: one lock, so that a user has one writer.
pub(crate) struct UserEntry {
    state: Mutex<Option<UserState>>,
    bytes: AtomicUsize,
    /// Told after every event, for those who wait for an epoch.
    pub(crate) changed: Notify,
}

/// A user's state at one moment, to compute with outside the lock.
pub(crate) struct Snapshot {
    pub(crate) epoch: UserEpoch,
    pub(crate) model: Arc<UserModel>,
    /// What a reply built on this must wait for.
    pub(crate) pending: Option<Ticket>,
}

/// Features resolved for the examples from `first` on.
struct ResolvedEvents<'a> {
    first: usize,
    events: &'a [Event],
    resolved: Vec<Resolved<'a>>,
}

impl History for ResolvedEvents<'_> {
    fn example(&self, index: u64) -> Example<'_> {
        let index = usize::try_from(index).expect("an index into memory") - self.first;
        let (event, resolved) = (&self.events[index], &self.resolved[index]);
        Example {
            features: resolved.features(),
            label: event.label,
            offset: resolved.offset(),
            weight: event.weight,
            timestamp: event.timestamp,
        }
    }
}

impl UserEntry {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(None), bytes: AtomicUsize::new(size_of::<Self>()), changed: Notify::new() })
    }

    /// Locks the user, reading the history from the log where it is not in memory.
    pub(crate) fn lock(
        &self,
        storage: &Storage,
        key: &UserKey,
        interner: Option<&ServingVersion>,
    ) -> Result<LockedUser<'_>, PredictorError> {
        let mut guard = self.state.lock();
        if guard.is_none() {
            *guard = Some(UserState::load(storage, key, interner)?);
        }
        Ok(LockedUser { guard, entry: self })
    }

    /// Whether a request can be answered without disk or a rebuild, so that it need not leave the async threads.
    pub(crate) fn is_warm(&self, version: &ServingVersion) -> bool {
        let Some(guard) = self.state.try_lock() else { return false };
        guard.as_ref().is_some_and(|state| state.events.is_empty() || state.held(version).is_some())
    }

    /// Whether it is known, without waiting, that the user has said something.
    pub(crate) fn has_learnt(&self) -> bool {
        self.state.try_lock().is_none_or(|guard| guard.as_ref().is_some_and(|state| !state.events.is_empty()))
    }

    /// Drops the user's states of `model` under other versions than `kept`.
    pub(crate) fn release(&self, model: &ModelName, kept: &[VersionId]) {
        let mut guard = self.state.lock();
        if let Some(state) = guard.as_mut() {
            state.release(model, kept);
            self.bytes.store(size_of::<Self>() + state.bytes(), Ordering::Relaxed);
        }
    }

    /// Forgets everything that is in memory: what comes next is read from the log.
    pub(crate) fn discard(&self) {
        *self.state.lock() = None;
        self.changed.notify_waiters();
    }
}

impl Held for Arc<UserEntry> {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Not while somebody works with it, and not while the log cannot tell of its last event yet.
    fn evictable(&self) -> bool {
        Self::strong_count(self) == 1
            && self.state.try_lock().is_some_and(|guard| {
                guard.as_ref().and_then(|state| state.pending.as_ref()).is_none_or(Ticket::is_durable)
            })
    }
}

/// A user under lock, history in memory.
pub(crate) struct LockedUser<'e> {
    guard: MutexGuard<'e, Option<UserState>>,
    entry: &'e UserEntry,
}

impl LockedUser<'_> {
    pub(crate) fn state(&mut self) -> &mut UserState {
        self.guard.as_mut().expect("locking has read the history")
    }
}

impl Drop for LockedUser<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.guard.as_ref() {
            self.entry.bytes.store(size_of::<UserEntry>() + state.bytes(), Ordering::Relaxed);
        }
    }
}

fn item_bytes(event: &Event) -> usize {
    event.item.as_str().len() + ALLOCATION_BYTES
}

impl UserState {
    fn load(storage: &Storage, key: &UserKey, interner: Option<&ServingVersion>) -> Result<Self, PredictorError> {
        let history = storage.history(&key.stream, &key.user)?;
        let epoch = match history.last() {
            Some((_, latest)) => latest.user_epoch,
            // Nobody new where the user was erased: epochs are never used twice.
            None => storage.last_epoch(&key.stream, &key.user)?,
        };
        let mut state =
            Self { epoch, events: Vec::with_capacity(history.len()), item_bytes: 0, pending: None, states: Vec::new() };
        for (sequence, record) in history {
            state.replay(sequence, record, interner);
        }
        Ok(state)
    }

    /// Takes in what the log holds. Corrections and retractions count as events only: the log has carried them out on
    /// the records that they are about.
    fn replay(&mut self, sequence: Sequence, record: Record, interner: Option<&ServingVersion>) {
        if let (RecordKind::Observe, Some(item)) = (record.kind, record.item) {
            let Record { label, weight, timestamp, .. } = record;
            let shared = interner.and_then(|version| version.theta.intern(&item)).cloned();
            self.remember(Event { item: shared.unwrap_or(item), label, weight, timestamp, sequence });
        }
    }

    /// The state under `version`, where it is held and has learnt from every event.
    fn held(&self, version: &ServingVersion) -> Option<&HeldState> {
        let observations = self.events.len() as u64;
        let is_current = |held: &&HeldState| held.is_of(version) && held.state.observations() == observations;
        self.states.iter().find(is_current)
    }

    fn take(&mut self, version: &ServingVersion) -> Option<HeldState> {
        let index = self.states.iter().position(|held| held.is_of(version))?;
        Some(self.states.swap_remove(index))
    }

    fn keep(&mut self, version: &ServingVersion, state: Arc<UserModel>) {
        let others = self.states.iter().filter(|held| held.model == version.model);
        if others.count() >= STATES_A_MODEL {
            // The one that lags furthest is the one that nobody asks for.
            let lagging = self.states.iter().enumerate().filter(|(_, held)| held.model == version.model);
            if let Some((index, _)) = lagging.min_by_key(|(_, held)| held.state.observations()) {
                self.states.swap_remove(index);
            }
        }
        self.states.push(HeldState { model: version.model.clone(), version: version.id, state });
    }

    /// What a reply built on this must wait for.
    pub(crate) fn pending(&mut self) -> Option<Ticket> {
        if self.pending.as_ref().is_some_and(Ticket::is_durable) {
            self.pending = None;
        }
        self.pending.clone()
    }

    /// Takes in an event that has been appended and changes the past; states are rebuilt when next asked for.
    pub(crate) fn amend(&mut self, amendment: Amendment, ticket: Ticket) {
        self.epoch = self.epoch.next();
        self.pending = Some(ticket);
        self.states.clear();
        match amendment {
            Amendment::Relabel(sequence, label) => {
                if let Some(event) = self.events.iter_mut().find(|event| event.sequence == sequence) {
                    event.label = label;
                }
            }
            Amendment::Forget(sequence) => self.events.retain(|event| event.sequence != sequence),
            Amendment::ForgetAll => self.events = Vec::new(),
        }
        self.item_bytes = self.events.iter().map(item_bytes).sum();
    }

    fn remember(&mut self, event: Event) {
        self.item_bytes += item_bytes(&event);
        self.events.push(event);
    }

    fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|held| held.state.bytes() + ALLOCATION_BYTES).sum();
        let lists = self.events.capacity() * size_of::<Event>() + self.states.capacity() * size_of::<HeldState>();
        size_of::<Self>() + states + self.item_bytes + lists + 2 * ALLOCATION_BYTES
    }

    /// The state under `version`, built if it is not there.
    pub(crate) fn model(
        &mut self,
        version: &ServingVersion,
        stream: &StreamName,
        features: &FeatureSource,
    ) -> Result<Arc<UserModel>, PredictorError> {
        if self.events.is_empty() {
            return Ok(version.newcomer.clone());
        }
        if let Some(held) = self.held(version) {
            return Ok(held.state.clone());
        }
        let model = match self.take(version) {
            Some(lagging) => self.caught_up(lagging.state, self.events.len(), version, stream, features)?,
            None => {
                let history = self.resolve(0, version, stream, features)?;
                Arc::new(UserModel::rebuild(&version.learning, &history, self.events.len() as u64)?)
            }
        };
        self.keep(version, model.clone());
        Ok(model)
    }

    /// A state that has learnt from the first events only, once it has learnt from the first `end`.
    fn caught_up(
        &self,
        mut state: Arc<UserModel>,
        end: usize,
        version: &ServingVersion,
        stream: &StreamName,
        features: &FeatureSource,
    ) -> Result<Arc<UserModel>, PredictorError> {
        let held = usize::try_from(state.observations()).expect("a count of what is in memory");
        for newest in held..end {
            let mut history = self.resolve_between(newest, newest + 1, version, stream, features)?;
            let first = state.reads_from(&version.learning, &history.example(newest as u64));
            let first = usize::try_from(first).expect("an index into memory");
            if first < newest {
                history = self.resolve_between(first, newest + 1, version, stream, features)?;
            }
            Arc::make_mut(&mut state).absorb(&version.learning, &history)?;
        }
        Ok(state)
    }

    fn resolve<'a>(
        &'a self,
        first: usize,
        version: &'a ServingVersion,
        stream: &StreamName,
        features: &FeatureSource,
    ) -> Result<ResolvedEvents<'a>, PredictorError> {
        self.resolve_between(first, self.events.len(), version, stream, features)
    }

    fn resolve_between<'a>(
        &'a self,
        first: usize,
        end: usize,
        version: &'a ServingVersion,
        stream: &StreamName,
        features: &FeatureSource,
    ) -> Result<ResolvedEvents<'a>, PredictorError> {
        let events = &self.events[first..end];
        let resolved: Result<_, _> =
            events.iter().map(|event| features.resolve(version, stream, &event.item)).collect();
        Ok(ResolvedEvents { first, events, resolved: resolved? })
    }

    /// Takes in an event that has been appended, and advances the states of `versions` by it.
    ///
    /// A state that cannot be advanced is dropped, and rebuilt from the history when next asked for: the log, not the
    /// state, is the truth.
    pub(crate) fn advance(
        &mut self,
        event: Event,
        ticket: Ticket,
        learners: Vec<Learner<'_>>,
        features: &FeatureSource,
    ) {
        self.epoch = self.epoch.next();
        self.pending = Some(ticket);
        self.remember(event);
        for learner in learners {
            let version = learner.version;
            if self.advance_one(learner, features).is_err() {
                self.take(version);
            }
        }
    }

    fn advance_one(&mut self, learner: Learner<'_>, features: &FeatureSource) -> Result<(), PredictorError> {
        let Learner { version, stream, newest: resolved } = learner;
        let newest = self.events.len() - 1;
        // The map's own copy is taken out, so that without a reader in between the state is advanced in place.
        let mut model = match self.take(version) {
            Some(held) if held.state.observations() == newest as u64 => held.state,
            _ if newest == 0 => version.newcomer.clone(),
            // A state that lags is built anew when next asked for.
            _ => return Ok(()),
        };
        let mut history = ResolvedEvents { first: newest, events: &self.events[newest..], resolved: vec![resolved] };
        let first = model.reads_from(&version.learning, &history.example(newest as u64));
        let first = usize::try_from(first).expect("an index into memory");
        if first < newest {
            history = self.resolve(first, version, stream, features)?;
        }
        Arc::make_mut(&mut model).absorb(&version.learning, &history)?;
        drop(history);
        self.keep(version, model);
        Ok(())
    }
}

/// A model whose state an observation advances.
pub(crate) struct Learner<'a> {
    pub(crate) version: &'a ServingVersion,
    pub(crate) stream: &'a StreamName,
    /// The observed item's features.
    pub(crate) newest: Resolved<'a>,
}
