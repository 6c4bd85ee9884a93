//! One user's history and states.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeris_model::canonical::CHECKPOINT_EVERY;
use celeris_model::{
    Context, GramSums, History as _, ModelId, StreamFields, StreamName, UserEpoch, UserId, UserModel, VersionId,
};
use celeris_storage::{Event, Events, Snapshot, Storage, Ticket};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::cache::Held;
use crate::catalog::read_fields;
use crate::error::PredictorError;
use crate::features::{FeatureScope, FeatureStore, Resolved};
use crate::users::profile::Profile;
use crate::version::ServingVersion;

mod described;
mod prepared;
mod resolved;
mod takings;

pub(crate) use prepared::Preparation;
pub(crate) use resolved::ResolvedEvents;
pub(crate) use takings::Stretch;
use takings::UserTakings;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UserKey {
    pub(crate) stream: StreamName,
    pub(crate) user: UserId,
}

/// How an amendment changes earlier events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Amendment {
    /// The event of this epoch has another label.
    Relabel(UserEpoch, f32),
    /// The event of this epoch is removed.
    Forget(UserEpoch),
    /// All events are removed.
    ForgetAll,
}

/// One user's history and states, up to the last appended event.
pub(crate) struct UserState {
    /// Count of the user's log events.
    pub(crate) epoch: UserEpoch,
    /// Epoch of the last known correction, retraction or erasure. Snapshots with an earlier value
    /// are not used.
    amended: UserEpoch,
    /// Number of observations before `events`: they are in the log, and in the sums of the states.
    before: u64,
    events: Vec<Event>,
    /// Heap bytes of the long ids and the contexts in `events`; an upper bound, since items of a table share theirs.
    heap_bytes: usize,
    /// Ticket of the latest write that this depends on: the last event, or the features that states
    /// have frozen. `None` if everything was read from disk.
    pub(crate) pending: Option<Ticket>,
    /// At most [`STATES_A_MODEL`] of each model. Events advance only the states of active versions;
    /// others catch up on access.
    states: Vec<HeldState>,
    /// What is known of the user beside the events; `None` if nothing.
    profile: Option<Arc<Profile>>,
    /// When items were last taken; built once a state under implicit loss needs it.
    takings: Option<Box<UserTakings>>,
}

/// States held for each model: that of the active version, and that of the version about to serve,
/// previously active, or compared with it.
const STATES_A_MODEL: usize = 2;

/// A user's state under one version of a model.
struct HeldState {
    model: ModelId,
    version: VersionId,
    state: Arc<UserModel>,
}

impl HeldState {
    fn is_of(&self, version: &ServingVersion) -> bool {
        self.version == version.id && self.model == version.model_id
    }
}

/// Overhead of an allocation: reference counts, or the allocator's header and rounding.
const ALLOCATION_BYTES: usize = 16;

/// A user's entry in memory: one lock, so that a user has one writer.
pub(crate) struct UserEntry {
    state: Mutex<Option<UserState>>,
    bytes: AtomicUsize,
    /// Held by the request that loads the state.
    pub(crate) loading: tokio::sync::Mutex<()>,
    /// Notified after every event, for requests that wait for an epoch.
    pub(crate) changed: Notify,
}

/// A copy of a user's state, to compute with outside the lock.
#[derive(Clone)]
pub(crate) struct UserSnapshot {
    pub(crate) epoch: UserEpoch,
    /// The revision of the user's attributes.
    pub(crate) profile: u64,
    pub(crate) model: Arc<UserModel>,
    /// The write that a reply based on this must wait for.
    pub(crate) pending: Option<Ticket>,
}

/// A user's epoch without the state: enough to answer from the prediction cache.
pub(crate) struct UserStatus {
    pub(crate) epoch: UserEpoch,
    /// The revision of the user's attributes.
    pub(crate) profile: u64,
    /// Whether the user has no observations.
    pub(crate) cold: bool,
    /// The write that a reply based on this must wait for.
    pub(crate) pending: Option<Ticket>,
}

/// Where a user's history and features are read.
pub(crate) struct Sources<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) features: &'a FeatureStore,
    pub(crate) key: &'a UserKey,
    /// The latest write of features frozen for states built from these sources.
    frozen: RefCell<Ticket>,
    /// Whether a state that was built from them has learnt from features that are not frozen, since
    /// another node owns the user.
    provisional: Cell<bool>,
    /// The fields of the contexts of the stream, read when the first context needs them.
    fields: OnceCell<StreamFields>,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(storage: &'a Storage, features: &'a FeatureStore, key: &'a UserKey) -> Self {
        Self {
            storage,
            features,
            key,
            frozen: RefCell::new(Ticket::DURABLE),
            provisional: Cell::new(false),
            fields: OnceCell::new(),
        }
    }

    /// The features that the user's states learn from.
    pub(crate) fn scope(&self) -> FeatureScope<'a> {
        self.features.scope_of(&self.key.stream, &self.key.user)
    }

    /// The context of an event.
    fn context_of(&self, event: &Event) -> Result<Option<Context>, PredictorError> {
        let Some(context) = &event.context else { return Ok(None) };
        let fields = match self.fields.get() {
            Some(fields) => fields,
            None => {
                let read = read_fields(self.storage, &self.key.stream)?;
                self.fields.get_or_init(|| read)
            }
        };
        let undefined = || PredictorError::UndefinedFields { stream: self.key.stream.clone() };
        context.named(fields).map(Some).ok_or_else(undefined)
    }

    /// Replies from a state built from these sources must wait for the write that froze these features.
    /// Without one, the state is not kept.
    fn wait_for(&self, frozen: Option<&Ticket>) {
        let Some(ticket) = frozen else { return self.provisional.set(true) };
        if !ticket.is_durable() {
            self.frozen.replace_with(|frozen| frozen.clone().latest(ticket.clone()));
        }
    }

    /// The user's snapshot under this version, if it was made at or after the event `amended`, the
    /// last amendment. An earlier one belongs to another history, even while the amendment that
    /// deletes it is still in the log's queue.
    fn snapshot(&self, version: &ServingVersion, amended: UserEpoch) -> Result<Option<Snapshot>, PredictorError> {
        let found = self.storage.histories().snapshot(&self.key.stream, version.model_id, &self.key.user)?;
        let fits = |snapshot: &Snapshot| {
            snapshot.version == version.id && snapshot.rule == version.rule && snapshot.amended >= amended
        };
        Ok(found.filter(fits))
    }

    /// Stores the sums of a state, which end with the observation of this epoch, for the next
    /// build.
    fn keep_snapshot(&self, version: &ServingVersion, sums: GramSums, epoch: UserEpoch, amended: UserEpoch) {
        if self.provisional.get() {
            return;
        }
        let snapshot = Snapshot { version: version.id, rule: version.rule, epoch, amended, sums };
        let kept =
            self.storage.histories().keep_snapshot(&self.key.stream, version.model_id, &self.key.user, &snapshot);
        // Without the snapshot the state is built from further back, nothing else.
        let outcome = if kept.is_ok() { "kept" } else { "skipped" };
        metrics::counter!("celeris_snapshots_total", "outcome" => outcome).increment(1);
    }
}

impl UserEntry {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(None),
            bytes: AtomicUsize::new(size_of::<Self>()),
            loading: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
        })
    }

    /// Locks the user. If the history is not in memory, reads the part that a state of `version`
    /// needs from the log, sharing item ids with the version's table.
    pub(crate) fn lock(
        &self,
        sources: &Sources<'_>,
        version: &ServingVersion,
    ) -> Result<LockedUser<'_>, PredictorError> {
        let mut guard = self.state.lock();
        if guard.is_none() {
            *guard = Some(UserState::load(sources, version)?);
        }
        Ok(LockedUser { guard, entry: self })
    }

    /// Whether a request needs neither the disk, nor a rebuild, nor to wait for the lock.
    pub(crate) fn is_warm(&self, version: &ServingVersion) -> bool {
        let Some(guard) = self.state.try_lock() else { return false };
        guard.as_ref().is_some_and(|state| state.observations() == 0 || state.held(version).is_some())
    }

    /// The user's status, if it is available without waiting.
    pub(crate) fn status(&self) -> Option<UserStatus> {
        let guard = self.state.try_lock()?;
        let state = guard.as_ref()?;
        let pending = state.pending.as_ref().filter(|ticket| !ticket.is_durable()).cloned();
        Some(UserStatus { epoch: state.epoch, profile: state.profile(), cold: state.observations() == 0, pending })
    }

    /// Whether observations of the user are in memory; true if the user is locked, since this does
    /// not wait.
    pub(crate) fn has_learnt(&self) -> bool {
        self.state.try_lock().is_none_or(|guard| guard.as_ref().is_some_and(|state| state.observations() > 0))
    }

    /// Drops the user's states of `model` under versions not in `kept`.
    pub(crate) fn release(&self, model: ModelId, kept: &[VersionId]) {
        let mut guard = self.state.lock();
        if let Some(state) = guard.as_mut() {
            state.release(model, kept);
            self.bytes.store(size_of::<Self>() + state.bytes(), Ordering::Relaxed);
        }
    }

    /// Drops everything in memory: the next access reads the log.
    pub(crate) fn discard(&self) {
        *self.state.lock() = None;
        self.changed.notify_waiters();
    }
}

impl Held for Arc<UserEntry> {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// False while a request uses the entry, and while its last event is not durable.
    fn evictable(&self) -> bool {
        Self::strong_count(self) == 1
            && self.state.try_lock().is_some_and(|guard| {
                guard.as_ref().and_then(|state| state.pending.as_ref()).is_none_or(Ticket::is_durable)
            })
    }
}

/// A locked user whose history is in memory.
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

/// The event with its item id shared with the version's table, so that a long id is in memory once.
fn interned(event: Event, version: &ServingVersion) -> Event {
    let shared = version.theta.intern(&event.item).cloned();
    Event { item: shared.unwrap_or(event.item), ..event }
}

/// Heap bytes of an event.
fn heap_bytes(event: &Event) -> usize {
    event.item.heap_bytes() + event.context.as_ref().map_or(0, |context| size_of_val(&**context) + context.bytes())
}

impl UserState {
    fn load(sources: &Sources<'_>, version: &ServingVersion) -> Result<Self, PredictorError> {
        let Sources { storage, key, .. } = sources;
        let (before, read) = Self::read(sources, version)?;
        let epoch = match read.last {
            Some(last) => last,
            // After an erasure the user is not new: epochs are never reused.
            None => storage.histories().last_epoch(&key.stream, &key.user)?,
        };
        // Not collected in place, which may keep excess capacity.
        let mut events = Vec::with_capacity(read.observations.len());
        events.extend(read.observations.into_iter().map(|event| interned(event, version)));
        let heap_bytes = events.iter().map(heap_bytes).sum();
        // An erasure leaves no entry, only a gap in the epochs before the next event.
        let first = events.first().map_or(epoch.0, |event: &Event| event.epoch.0 - 1);
        let amended = if before == 0 { read.amended.max(UserEpoch(first)) } else { read.amended };
        let profile = storage.user_attributes().get(&key.stream, &key.user)?.and_then(Profile::of);
        let (pending, states, takings) = (None, Vec::new(), None);
        Ok(Self { epoch, amended, before, events, heap_bytes, pending, states, profile, takings })
    }

    /// The events after the snapshot under `version`, and the number of observations that the
    /// snapshot covers.
    fn read(sources: &Sources<'_>, version: &ServingVersion) -> Result<(u64, Events), PredictorError> {
        let Sources { storage, key, .. } = sources;
        if let Some(snapshot) = sources.snapshot(version, UserEpoch(0))? {
            let mut read = storage.histories().events_after(&key.stream, &key.user, snapshot.epoch)?;
            if read.amended <= snapshot.amended {
                read.amended = snapshot.amended;
                return Ok((snapshot.sums.observations(), read));
            }
        }
        Ok((0, storage.histories().events_after(&key.stream, &key.user, UserEpoch(0))?))
    }

    /// Reads the events before those in memory, all of which are durable.
    pub(crate) fn read_back(&mut self, sources: &Sources<'_>, version: &ServingVersion) -> Result<(), PredictorError> {
        if self.before == 0 {
            return Ok(());
        }
        self.events = self.past(sources, version)?;
        (self.before, self.takings) = (0, None);
        self.heap_bytes = self.events.iter().map(heap_bytes).sum();
        Ok(())
    }

    /// All observations of the user, in order. Events before those in memory are read from disk and
    /// not kept.
    pub(crate) fn past(&self, sources: &Sources<'_>, version: &ServingVersion) -> Result<Vec<Event>, PredictorError> {
        let mut past: Vec<Event> = self.earlier(sources)?.into_iter().map(|event| interned(event, version)).collect();
        past.extend_from_slice(&self.events);
        Ok(past)
    }

    /// Number of the user's observations that were not retracted.
    pub(crate) fn observations(&self) -> u64 {
        self.before + self.events.len() as u64
    }

    /// The state under `version`, if it is held and up to date.
    fn held(&self, version: &ServingVersion) -> Option<&HeldState> {
        let observations = self.observations();
        let is_current = |held: &&HeldState| held.is_of(version) && held.state.observations() == observations;
        self.states.iter().find(is_current)
    }

    fn take(&mut self, version: &ServingVersion) -> Option<HeldState> {
        let index = self.states.iter().position(|held| held.is_of(version))?;
        Some(self.states.swap_remove(index))
    }

    fn keep(&mut self, version: &ServingVersion, state: Arc<UserModel>, sources: &Sources<'_>) {
        if sources.provisional.get() {
            return;
        }
        let others = self.states.iter().filter(|held| held.model == version.model_id);
        if others.count() >= STATES_A_MODEL {
            // The state that lags furthest is the one in least use.
            let lagging = self.states.iter().enumerate().filter(|(_, held)| held.model == version.model_id);
            if let Some((index, _)) = lagging.min_by_key(|(_, held)| held.state.observations()) {
                self.states.swap_remove(index);
            }
        }
        self.states.push(HeldState { model: version.model_id, version: version.id, state });
    }

    /// The write that a reply based on this must wait for.
    pub(crate) fn pending(&mut self) -> Option<Ticket> {
        self.notice_durable();
        self.pending.clone()
    }

    fn notice_durable(&mut self) {
        if self.pending.as_ref().is_some_and(Ticket::is_durable) {
            self.pending = None;
            self.drop_summed();
        }
    }

    /// Drops events covered by the sums of every state, once there is a checkpoint's worth of them.
    /// They must be durable: if they are needed again, they are read from the log.
    fn drop_summed(&mut self) {
        let summed = self.states.iter().map(|held| held.state.history_from()).min().unwrap_or(0);
        if summed < self.before + CHECKPOINT_EVERY {
            return;
        }
        let kept = usize::try_from(summed - self.before).expect("an index into memory");
        self.events = self.events.split_off(kept);
        if let Some(takings) = &mut self.takings {
            takings.keep_last(self.events.len());
        }
        self.before = summed;
        self.heap_bytes = self.events.iter().map(heap_bytes).sum();
    }

    /// Applies an appended amendment; states are rebuilt on the next access.
    ///
    /// The caller guarantees that the whole history is in memory (see `read_back`).
    pub(crate) fn amend(&mut self, amendment: Amendment, ticket: Ticket) {
        self.epoch = self.epoch.next();
        self.amended = self.epoch;
        self.pending = Some(ticket);
        self.states.clear();
        self.takings = None;
        match amendment {
            Amendment::Relabel(epoch, label) => {
                if let Some(event) = self.events.iter_mut().find(|event| event.epoch == epoch) {
                    event.label = label;
                }
            }
            Amendment::Forget(epoch) => self.events.retain(|event| event.epoch != epoch),
            Amendment::ForgetAll => (self.before, self.events, self.profile) = (0, Vec::new(), None),
        }
        self.heap_bytes = self.events.iter().map(heap_bytes).sum();
    }

    fn remember(&mut self, event: Event) {
        self.heap_bytes += heap_bytes(&event);
        if let Some(takings) = &mut self.takings {
            takings.remember(&event);
        }
        self.events.push(event);
    }

    fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|held| held.state.bytes() + ALLOCATION_BYTES).sum();
        let lists = self.events.capacity() * size_of::<Event>() + self.states.capacity() * size_of::<HeldState>();
        let takings = self.takings.as_ref().map_or(0, |takings| takings.bytes());
        let profile = self.profile.as_ref().map_or(0, |profile| profile.bytes() + ALLOCATION_BYTES);
        size_of::<Self>() + states + self.heap_bytes + lists + takings + profile + 2 * ALLOCATION_BYTES
    }

    /// The state under `version`, built if it is not held.
    pub(crate) fn model(
        &mut self,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Arc<UserModel>, PredictorError> {
        let observations = self.observations();
        if observations == 0 && self.profile.is_none() {
            return Ok(version.newcomer.clone());
        }
        if let Some(held) = self.held(version) {
            return Ok(held.state.clone());
        }
        if observations == 0 {
            return Ok(self.described_newcomer(version, sources));
        }
        self.know_takings(version, sources)?;
        let model = match self.take(version) {
            Some(lagging) => self.caught_up(lagging.state, observations, version, sources)?,
            None => self.built(version, sources)?,
        };
        self.keep(version, model.clone(), sources);
        self.wait_for_frozen(sources);
        Ok(model)
    }

    /// A copy of the state under `version`.
    pub(crate) fn snapshot(
        &mut self,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<UserSnapshot, PredictorError> {
        // First, since building it may freeze features, which the reply must wait for.
        let model = self.model(version, sources)?;
        Ok(UserSnapshot { epoch: self.epoch, profile: self.profile(), model, pending: self.pending() })
    }

    /// Makes replies from states built from `sources` wait also for the features frozen for them.
    fn wait_for_frozen(&mut self, sources: &Sources<'_>) {
        let frozen = sources.frozen.borrow();
        if !frozen.is_durable() {
            let pending = self.pending.take().unwrap_or(Ticket::DURABLE);
            self.pending = Some(pending.latest(frozen.clone()));
        }
    }

    /// Builds the state under `version` from its snapshot or from the whole history.
    fn built(&mut self, version: &ServingVersion, sources: &Sources<'_>) -> Result<Arc<UserModel>, PredictorError> {
        let observations = self.observations();
        let snapshot = if observations < CHECKPOINT_EVERY { None } else { sources.snapshot(version, self.amended)? };
        let sums = snapshot.map_or_else(|| GramSums::empty(version.dim()), |snapshot| snapshot.sums);
        let first = sums.observations();
        if first < self.before {
            self.read_back(sources, version)?;
            self.know_takings(version, sources)?;
        }
        let history = self.resolve(first, version, sources)?;
        let model = UserModel::resume(&version.learning, sums, &history, observations)?
            .with_profile(&version.learning, self.pull(version));
        drop(history);
        if let Some(sums) = model.sums()
            && sums.observations() >= first + CHECKPOINT_EVERY
        {
            let epoch = self.event(sums.observations() - 1).epoch;
            sources.keep_snapshot(version, sums.clone(), epoch, self.amended);
        }
        Ok(Arc::new(model))
    }

    fn event(&self, index: u64) -> &Event {
        &self.events[self.place(index)]
    }

    fn place(&self, index: u64) -> usize {
        usize::try_from(index - self.before).expect("an index into memory")
    }

    /// Advances a state to the first `end` events. The events that it reads are in memory: events
    /// stay as long as the sums of any held state lack them.
    fn caught_up(
        &self,
        mut state: Arc<UserModel>,
        end: u64,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Arc<UserModel>, PredictorError> {
        for newest in state.observations()..end {
            let mut history = self.resolve_between(newest, newest + 1, version, sources)?;
            let first = state.reads_from(&version.learning, &history.example(newest));
            if first < newest {
                history = self.resolve_between(first, newest + 1, version, sources)?;
            }
            Arc::make_mut(&mut state).absorb(&version.learning, &history)?;
        }
        Ok(state)
    }

    fn resolve<'a>(
        &'a self,
        first: u64,
        version: &'a ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<ResolvedEvents<'a>, PredictorError> {
        self.resolve_between(first, self.observations(), version, sources)
    }

    fn resolve_between<'a>(
        &'a self,
        first: u64,
        end: u64,
        version: &'a ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<ResolvedEvents<'a>, PredictorError> {
        ResolvedEvents::frozen(self.stretch(first, end, version), version, sources)
    }

    /// Adds an appended event, and advances the states of `learners` by it.
    ///
    /// A state that cannot be advanced is dropped and rebuilt from the history on the next access:
    /// the log, not the state, is authoritative. States of models that no longer learn from the
    /// stream are dropped too: they would keep the events that they lack in memory.
    pub(crate) fn advance(&mut self, event: Event, ticket: Ticket, learners: Vec<Learner<'_>>, sources: &Sources<'_>) {
        self.notice_durable();
        self.epoch = self.epoch.next();
        self.pending = Some(ticket);
        self.remember(event);
        self.states.retain(|held| learners.iter().any(|learner| learner.version.model_id == held.model));
        for learner in learners {
            // A state that fails to advance has already been removed.
            let _ = self.advance_one(learner, sources);
        }
    }

    fn advance_one(&mut self, learner: Learner<'_>, sources: &Sources<'_>) -> Result<(), PredictorError> {
        let Learner { version, newest: resolved } = learner;
        let newest = self.observations() - 1;
        // The held copy is taken out, so that without a concurrent reader the state is advanced in
        // place.
        let mut model = match self.take(version) {
            Some(held) if held.state.observations() == newest => held.state,
            _ if newest == 0 => self.newcomer(version),
            // A state that lags is caught up on the next access.
            _ => return Ok(()),
        };
        self.know_takings(version, sources)?;
        let mut history =
            ResolvedEvents { stretch: self.stretch(newest, newest + 1, version), resolved: vec![resolved] };
        let first = model.reads_from(&version.learning, &history.example(newest));
        if first < newest {
            history = self.resolve(first, version, sources)?;
        }
        Arc::make_mut(&mut model).absorb(&version.learning, &history)?;
        drop(history);
        if let Some(sums) = model.sums()
            && model.observations().is_multiple_of(CHECKPOINT_EVERY)
        {
            sources.keep_snapshot(version, sums.clone(), self.epoch, self.amended);
        }
        self.keep(version, model, sources);
        Ok(())
    }
}

/// A model version whose state an observation advances.
pub(crate) struct Learner<'a> {
    pub(crate) version: &'a ServingVersion,
    /// Features of the observed item.
    pub(crate) newest: Resolved<'a>,
}
