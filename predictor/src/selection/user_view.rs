//! States of selections with a state for each user: read from the user's history on access.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use celeris_bandits::selection::{Place, State};
use celeris_model::{Record, RecordKind, Sequence, UserEpoch, UserId};
use celeris_storage::Storage;
use parking_lot::Mutex;

use crate::cache::{BoundedCache, Held};
use crate::error::PredictorError;
use crate::selection::{Selection, SelectionRule};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct UserViewKey {
    /// [`Selection::serial`].
    selection: u64,
    user: UserId,
}

/// A user's state, and the epoch that it reflects.
pub(crate) struct UserView {
    /// `None` before it is first read.
    held: Mutex<Option<(State, UserEpoch)>>,
    bytes: AtomicUsize,
}

impl Held for Arc<UserView> {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn evictable(&self) -> bool {
        Self::strong_count(self) == 1
    }
}

pub(crate) struct UserViews {
    cache: BoundedCache<UserViewKey, Arc<UserView>>,
}

impl UserViews {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { cache: BoundedCache::new("selections", bytes_max) }
    }

    /// The user's entry, created if missing.
    pub(crate) fn of(&self, selection: &Selection, user: &UserId) -> (UserViewKey, Arc<UserView>) {
        let key = UserViewKey { selection: selection.serial, user: user.clone() };
        let empty = || UserView { held: Mutex::new(None), bytes: AtomicUsize::new(size_of::<UserView>()) };
        let view = self.cache.get_or_insert_with(&key, || Arc::new(empty()));
        (key, view)
    }

    /// Passes the state over at least the first `epoch` events of the user, all of which are
    /// durable, to `look`.
    pub(crate) fn look<T>(
        &self,
        (key, view): &(UserViewKey, Arc<UserView>),
        (rule, storage): (&SelectionRule, &Storage),
        epoch: UserEpoch,
        look: impl FnOnce(&State) -> T,
    ) -> Result<T, PredictorError> {
        let mut held = view.held.lock();
        let current = match held.take() {
            Some(current) if current.1 >= epoch => current,
            Some(behind) => read_on(behind, (rule, storage), &key.user, epoch)?,
            None => read(rule, storage, &key.user, epoch)?,
        };
        let (state, _) = held.insert(current);
        view.bytes.store(size_of::<UserView>() + state.bytes(), Ordering::Relaxed);
        let seen = look(state);
        drop(held);
        self.cache.update_weight(key);
        Ok(seen)
    }

    /// Drops the user's states.
    pub(crate) fn purge(&self, user: &UserId) {
        self.cache.purge(|key| key.user == *user);
    }
}

/// Extends the state by the later events; reads it again if they are not all observations without
/// gaps.
fn read_on(
    (mut state, known): (State, UserEpoch),
    (rule, storage): (&SelectionRule, &Storage),
    user: &UserId,
    epoch: UserEpoch,
) -> Result<(State, UserEpoch), PredictorError> {
    let events = storage.histories().after(&rule.stream, user, known)?;
    let follows = |((_, record), expected): (&(Sequence, Record), u64)| {
        record.kind == RecordKind::Observe && record.user_epoch.0 == expected
    };
    let last = UserEpoch(known.0 + events.len() as u64);
    if last < epoch || !events.iter().zip(known.0 + 1..).all(follows) {
        return read(rule, storage, user, epoch);
    }
    state.advance(&[last.0]);
    learn(&mut state, rule, &events);
    Ok((state, last))
}

fn read(
    rule: &SelectionRule,
    storage: &Storage,
    user: &UserId,
    epoch: UserEpoch,
) -> Result<(State, UserEpoch), PredictorError> {
    let mut state = State::new(rule.layout());
    state.advance(&[epoch.0]);
    let after = UserEpoch(state.first_counting(0) - 1);
    let mut events = storage.histories().after(&rule.stream, user, after)?;
    // Events appended since this read began are left to the next one.
    events.retain(|(_, record)| record.user_epoch <= epoch);
    learn(&mut state, rule, &events);
    Ok((state, epoch))
}

fn learn(state: &mut State, rule: &SelectionRule, events: &[(Sequence, Record)]) {
    for (sequence, record) in events {
        if let Some(update) = rule.update(*sequence, record) {
            state.add(Place { lane: 0, position: record.user_epoch.0, group: update.group }, &update.sums);
        }
    }
}
