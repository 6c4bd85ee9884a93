//! The users this node holds: each one's history and states, rebuilt from the log when touched, dropped when unused.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeris_model::canonical::CHECKPOINT_EVERY;
use celeris_model::{GramSums, History as _, ModelId, StreamName, UserEpoch, UserId, UserModel, VersionId};
use celeris_storage::{CommitPosition, Event, Events, Snapshot, Storage, Ticket};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::cache::Held;
use crate::error::PredictorError;
use crate::features::{FeatureSource, Resolved};
use crate::version::ServingVersion;

mod prepared;
mod resolved;
mod takings;

pub(crate) use prepared::Preparation;
pub(crate) use resolved::ResolvedEvents;
use resolved::example;
pub(crate) use takings::Stretch;
use takings::UserTakings;

/// Which user of which stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UserKey {
    pub(crate) stream: StreamName,
    pub(crate) user: UserId,
}

/// What becomes of earlier events when the user, or whoever speaks for the user, changes the past.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Amendment {
    /// The event of this epoch has had another label.
    Relabel(UserEpoch, f32),
    /// The event of this epoch never happened.
    Forget(UserEpoch),
    /// Nothing ever happened.
    ForgetAll,
}

/// One user's history and states, as of the last appended event.
pub(crate) struct UserState {
    /// The count of the user's events.
    pub(crate) epoch: UserEpoch,
    /// The epoch of the last known correction, retraction or erasure. A snapshot made under an earlier one is not used.
    amended: UserEpoch,
    /// How many observations came before `events`: they are in the log, and in the sums of whoever learnt from them.
    before: u64,
    /// The latest observations.
    events: Vec<Event>,
    /// Bytes of the long ids in `events`. Items of a table share theirs; counting them always errs on the safe side.
    item_bytes: usize,
    /// When everything that this is made of is durable: the last event, and the features that states have frozen. `None`
    /// where all of it was read from the disk.
    pub(crate) pending: Option<Ticket>,
    /// At most [`STATES_A_MODEL`] of each model. Events advance those of the active versions only; another one catches
    /// up when it is asked for.
    states: Vec<HeldState>,
    /// When items were taken before; known once a state under implicit loss has asked.
    takings: Option<Box<UserTakings>>,
}

/// States of one model that are held at a time: the active version's, and the one that is about to serve, served before,
/// or is compared with it.
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
#[derive(Clone)]
pub(crate) struct UserSnapshot {
    pub(crate) epoch: UserEpoch,
    pub(crate) model: Arc<UserModel>,
    /// What a reply built on this must wait for.
    pub(crate) pending: Option<Ticket>,
}

/// How far a user has come, without their state: enough for an answer that was computed before.
pub(crate) struct UserStatus {
    pub(crate) epoch: UserEpoch,
    /// Whether the user has said nothing.
    pub(crate) cold: bool,
    /// What a reply built on this must wait for.
    pub(crate) pending: Option<Ticket>,
}

/// Where a user's past is read.
pub(crate) struct Sources<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) features: &'a FeatureSource,
    pub(crate) key: &'a UserKey,
    /// Where everything is durable that states built from these sources have frozen.
    frozen: Cell<CommitPosition>,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(storage: &'a Storage, features: &'a FeatureSource, key: &'a UserKey) -> Self {
        Self { storage, features, key, frozen: Cell::default() }
    }

    /// A state that is built from these sources reflects what is durable at `position` only.
    fn wait_for(&self, position: CommitPosition) {
        self.frozen.set(self.frozen.get().max(position));
    }

    /// The user's snapshot under this version, of a history that was amended last by the event `amended`: one that was
    /// made before is of another history, even while the amendment that deletes it is in the log's queue.
    fn snapshot(&self, version: &ServingVersion, amended: UserEpoch) -> Result<Option<Snapshot>, PredictorError> {
        let found = self.storage.snapshot(&self.key.stream, version.model_id, &self.key.user)?;
        let fits = |snapshot: &Snapshot| {
            snapshot.version == version.id && snapshot.rule == version.rule && snapshot.amended >= amended
        };
        Ok(found.filter(fits))
    }

    /// Leaves the sums of a state, which end with the observation of this epoch, for the next build.
    fn keep_snapshot(&self, version: &ServingVersion, sums: GramSums, epoch: UserEpoch, amended: UserEpoch) {
        let snapshot = Snapshot { version: version.id, rule: version.rule, epoch, amended, sums };
        let kept = self.storage.keep_snapshot(&self.key.stream, version.model_id, &self.key.user, &snapshot);
        // Without it the state is built from further back, no more.
        let outcome = if kept.is_ok() { "kept" } else { "skipped" };
        metrics::counter!("celeris_snapshots_total", "outcome" => outcome).increment(1);
    }
}

impl UserEntry {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(None), bytes: AtomicUsize::new(size_of::<Self>()), changed: Notify::new() })
    }

    /// Locks the user, reading the history from the log where it is not in memory: what a state of `version` needs of
    /// it. Ids of its table are shared.
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

    /// Whether a request can be answered without disk or a rebuild, so that it need not leave the async threads.
    pub(crate) fn is_warm(&self, version: &ServingVersion) -> bool {
        let Some(guard) = self.state.try_lock() else { return false };
        guard.as_ref().is_some_and(|state| state.observations() == 0 || state.held(version).is_some())
    }

    /// How far the user has come, where that is known without waiting.
    pub(crate) fn glance(&self) -> Option<UserStatus> {
        let guard = self.state.try_lock()?;
        let state = guard.as_ref()?;
        let pending = state.pending.as_ref().filter(|ticket| !ticket.is_durable()).cloned();
        Some(UserStatus { epoch: state.epoch, cold: state.observations() == 0, pending })
    }

    /// Whether it is known, without waiting, that the user has said something.
    pub(crate) fn has_learnt(&self) -> bool {
        self.state.try_lock().is_none_or(|guard| guard.as_ref().is_some_and(|state| state.observations() > 0))
    }

    /// Drops the user's states of `model` under other versions than `kept`.
    pub(crate) fn release(&self, model: ModelId, kept: &[VersionId]) {
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

/// The event with the id that the version's table holds, so that memory has a long one once.
fn interned(event: Event, version: &ServingVersion) -> Event {
    let shared = version.theta.intern(&event.item).cloned();
    Event { item: shared.unwrap_or(event.item), ..event }
}

fn item_bytes(event: &Event) -> usize {
    event.item.heap_bytes()
}

impl UserState {
    fn load(sources: &Sources<'_>, version: &ServingVersion) -> Result<Self, PredictorError> {
        let Sources { storage, key, .. } = sources;
        let (before, read) = Self::read(sources, version)?;
        let epoch = match read.last {
            Some(last) => last,
            // Nobody new where the user was erased: epochs are never used twice.
            None => storage.last_epoch(&key.stream, &key.user)?,
        };
        // Not in place, where there may be room for more.
        let mut events = Vec::with_capacity(read.observations.len());
        events.extend(read.observations.into_iter().map(|event| interned(event, version)));
        let item_bytes = events.iter().map(item_bytes).sum();
        // An erasure leaves no entry, only the gap before what came after it.
        let first = events.first().map_or(epoch.0, |event: &Event| event.epoch.0 - 1);
        let amended = if before == 0 { read.amended.max(UserEpoch(first)) } else { read.amended };
        Ok(Self { epoch, amended, before, events, item_bytes, pending: None, states: Vec::new(), takings: None })
    }

    /// The events that the snapshot under `version` does not sum up, and how many observations it does.
    fn read(sources: &Sources<'_>, version: &ServingVersion) -> Result<(u64, Events), PredictorError> {
        let Sources { storage, key, .. } = sources;
        if let Some(snapshot) = sources.snapshot(version, UserEpoch(0))? {
            let mut read = storage.events_after(&key.stream, &key.user, snapshot.epoch)?;
            if read.amended <= snapshot.amended {
                read.amended = snapshot.amended;
                return Ok((snapshot.sums.observations(), read));
            }
        }
        Ok((0, storage.events_after(&key.stream, &key.user, UserEpoch(0))?))
    }

    /// Reads what came before the events in memory, all of which is durable.
    pub(crate) fn read_back(&mut self, sources: &Sources<'_>, version: &ServingVersion) -> Result<(), PredictorError> {
        if self.before == 0 {
            return Ok(());
        }
        self.events = self.past(sources, version)?;
        (self.before, self.takings) = (0, None);
        self.item_bytes = self.events.iter().map(item_bytes).sum();
        Ok(())
    }

    /// All observations of the user, in order. What came before the events in memory is read, and stays on the disk.
    pub(crate) fn past(&self, sources: &Sources<'_>, version: &ServingVersion) -> Result<Vec<Event>, PredictorError> {
        let mut past: Vec<Event> = self.earlier(sources)?.into_iter().map(|event| interned(event, version)).collect();
        past.extend_from_slice(&self.events);
        Ok(past)
    }

    /// How many observations the user has made that are not forgotten.
    pub(crate) fn observations(&self) -> u64 {
        self.before + self.events.len() as u64
    }

    /// The state under `version`, where it is held and has learnt from every event.
    fn held(&self, version: &ServingVersion) -> Option<&HeldState> {
        let observations = self.observations();
        let is_current = |held: &&HeldState| held.is_of(version) && held.state.observations() == observations;
        self.states.iter().find(is_current)
    }

    fn take(&mut self, version: &ServingVersion) -> Option<HeldState> {
        let index = self.states.iter().position(|held| held.is_of(version))?;
        Some(self.states.swap_remove(index))
    }

    fn keep(&mut self, version: &ServingVersion, state: Arc<UserModel>) {
        let others = self.states.iter().filter(|held| held.model == version.model_id);
        if others.count() >= STATES_A_MODEL {
            // The one that lags furthest is the one that nobody asks for.
            let lagging = self.states.iter().enumerate().filter(|(_, held)| held.model == version.model_id);
            if let Some((index, _)) = lagging.min_by_key(|(_, held)| held.state.observations()) {
                self.states.swap_remove(index);
            }
        }
        self.states.push(HeldState { model: version.model_id, version: version.id, state });
    }

    /// What a reply built on this must wait for.
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

    /// Drops events that the sums of every state hold, a checkpoint's worth at a time. They must be durable: should
    /// somebody want them again, they are read from the log.
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
        self.item_bytes = self.events.iter().map(item_bytes).sum();
    }

    /// Takes in an event that has been appended and changes the past; states are rebuilt when next asked for.
    ///
    /// The caller guarantees that the whole history has been read back.
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
            Amendment::ForgetAll => (self.before, self.events) = (0, Vec::new()),
        }
        self.item_bytes = self.events.iter().map(item_bytes).sum();
    }

    fn remember(&mut self, event: Event) {
        self.item_bytes += item_bytes(&event);
        if let Some(takings) = &mut self.takings {
            takings.remember(&event);
        }
        self.events.push(event);
    }

    fn bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|held| held.state.bytes() + ALLOCATION_BYTES).sum();
        let lists = self.events.capacity() * size_of::<Event>() + self.states.capacity() * size_of::<HeldState>();
        let takings = self.takings.as_ref().map_or(0, |takings| takings.bytes());
        size_of::<Self>() + states + self.item_bytes + lists + takings + 2 * ALLOCATION_BYTES
    }

    /// The state under `version`, built if it is not there.
    pub(crate) fn model(
        &mut self,
        version: &ServingVersion,
        sources: &Sources<'_>,
    ) -> Result<Arc<UserModel>, PredictorError> {
        let observations = self.observations();
        if observations == 0 {
            return Ok(version.newcomer.clone());
        }
        if let Some(held) = self.held(version) {
            return Ok(held.state.clone());
        }
        self.know_takings(version, sources)?;
        let model = match self.take(version) {
            Some(lagging) => self.caught_up(lagging.state, observations, version, sources)?,
            None => self.built(version, sources)?,
        };
        self.keep(version, model.clone());
        self.wait_for_frozen(sources);
        Ok(model)
    }

    /// Answers from the states that were built from `sources` wait for the features that these have frozen, too.
    fn wait_for_frozen(&mut self, sources: &Sources<'_>) {
        let frozen = sources.frozen.get();
        let is_later = self.pending.as_ref().is_none_or(|pending| pending.position() < frozen);
        if is_later && !sources.storage.is_durable(frozen) {
            self.pending = Some(sources.storage.ticket(frozen));
        }
    }

    /// The state under `version`, resumed from its snapshot or built from the whole history.
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
        let model = UserModel::resume(&version.learning, sums, &history, observations)?;
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

    /// A state that has learnt from the first events only, once it has learnt from the first `end`. What it reads is in
    /// memory: events stay as long as the sums of any held state lack them.
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

    /// About how many multiplications [`UserState::advance`] takes.
    pub(crate) fn advance_multiplications(&self, event: &Event, learners: &[Learner<'_>]) -> u64 {
        let of_one = |learner: &Learner<'_>| {
            let held = self.held(learner.version)?;
            // When its item was taken before changes what it teaches, not what that takes.
            let example = example(event, &learner.newest, None);
            Some(held.state.absorb_multiplications(&learner.version.learning, &example))
        };
        learners.iter().filter_map(of_one).sum()
    }

    /// Takes in an event that has been appended, and advances the states of `versions` by it.
    ///
    /// A state that cannot be advanced is dropped, and rebuilt from the history when next asked for: the log, not the
    /// state, is the truth. So is one of a model that learns from the stream no more: it would keep the events that it lacks
    /// in memory.
    pub(crate) fn advance(&mut self, event: Event, ticket: Ticket, learners: Vec<Learner<'_>>, sources: &Sources<'_>) {
        self.notice_durable();
        self.epoch = self.epoch.next();
        self.pending = Some(ticket);
        self.remember(event);
        self.states.retain(|held| learners.iter().any(|learner| learner.version.model_id == held.model));
        for learner in learners {
            // One that fails has been taken out.
            let _ = self.advance_one(learner, sources);
        }
    }

    fn advance_one(&mut self, learner: Learner<'_>, sources: &Sources<'_>) -> Result<(), PredictorError> {
        let Learner { version, newest: resolved } = learner;
        let newest = self.observations() - 1;
        // The map's own copy is taken out, so that without a reader in between the state is advanced in place.
        let mut model = match self.take(version) {
            Some(held) if held.state.observations() == newest => held.state,
            _ if newest == 0 => version.newcomer.clone(),
            // A state that lags is built anew when next asked for.
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
        self.keep(version, model);
        Ok(())
    }
}

/// A model whose state an observation advances.
pub(crate) struct Learner<'a> {
    pub(crate) version: &'a ServingVersion,
    /// The observed item's features.
    pub(crate) newest: Resolved<'a>,
}
