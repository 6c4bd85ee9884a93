//! The state of a selection shared by all users: read from the durable log, partition by partition.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use celeris_bandits::selection::{Faded, Place, State};
use celeris_model::{Partition, Record, RecordKind, Sequence};
use celeris_storage::{LogRange, Storage, Watermark};
use parking_lot::Mutex;

use crate::error::PredictorError;
use crate::selection::{SelectionRule, stored};

/// Number of records after which the state is stored again. A start after a crash reads about as
/// many.
const STORE_EVERY: u64 = 100_000;

/// A state and the log positions up to which it has read.
pub(crate) struct StreamView {
    held: Mutex<Held>,
    /// Locked while the state is being stored; `false` once the selection is deleted.
    may_store: Mutex<bool>,
}

struct Held {
    state: State,
    read: Watermark,
    /// By group, as of `read`.
    faded: Vec<Option<Faded>>,
    /// `None` before the stored state has been looked for.
    stored: Option<Stored>,
}

/// The stored state.
struct Stored {
    /// Number of records that it reflects; 0 if there is none.
    records: u64,
    /// Whether it may contain losses of records that were amended since.
    outdated: bool,
}

impl StreamView {
    pub(crate) fn new(rule: &SelectionRule) -> Self {
        Self { held: Mutex::new(Held::new(rule)), may_store: Mutex::new(true) }
    }

    pub(crate) fn catch_up(&self, rule: &SelectionRule, storage: &Storage) -> Result<(), PredictorError> {
        self.held.lock().catch_up(rule, storage)
    }

    /// Stores the state for the next start, if it has changed.
    pub(crate) fn store(&self, rule: &SelectionRule, storage: &Storage) -> Result<(), PredictorError> {
        let may_store = self.may_store.lock();
        if !*may_store {
            return Ok(());
        }
        let encoded = {
            let mut held = self.held.lock();
            if !held.differs_from_stored() {
                return Ok(());
            }
            held.stored = Some(Stored { records: held.state.records(), outdated: false });
            stored::encode(rule, &held.state, &held.read)
        };
        // Not under the lock of the state, which requests need.
        storage.selection_states().put(rule.id, &encoded).map_err(|error| {
            if let Some(stored) = &mut self.held.lock().stored {
                stored.outdated = true;
            }
            error.into()
        })
    }

    /// Stores the state if an amendment or many records have been read since it was last stored.
    pub(crate) fn store_if_due(&self, rule: &SelectionRule, storage: &Storage) -> Result<(), PredictorError> {
        if self.held.lock().is_due() { self.store(rule, storage) } else { Ok(()) }
    }

    /// Prevents the state from being stored from now on.
    pub(crate) fn end_storing(&self) {
        *self.may_store.lock() = false;
    }

    /// The sums of a group over all durable records.
    pub(crate) fn faded(&self, rule: &SelectionRule, storage: &Storage, group: usize) -> Result<Faded, PredictorError> {
        let mut held = self.held.lock();
        held.catch_up(rule, storage)?;
        let Held { state, faded, .. } = &mut *held;
        Ok(faded[group].get_or_insert_with(|| state.faded(group)).clone())
    }

    /// Passes the state over all durable records to `look`.
    pub(crate) fn look<T>(
        &self,
        rule: &SelectionRule,
        storage: &Storage,
        look: impl FnOnce(&State) -> T,
    ) -> Result<T, PredictorError> {
        let mut held = self.held.lock();
        held.catch_up(rule, storage)?;
        Ok(look(&held.state))
    }
}

impl Held {
    fn new(rule: &SelectionRule) -> Self {
        let layout = rule.layout();
        let faded = vec![None; layout.groups];
        Self { state: State::new(layout), read: Watermark::start(), faded, stored: None }
    }

    fn differs_from_stored(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.outdated || stored.records != self.state.records())
    }

    fn is_due(&self) -> bool {
        self.stored
            .as_ref()
            .is_some_and(|stored| stored.outdated || self.state.records() - stored.records >= STORE_EVERY)
    }

    /// Continues from the stored state, if there is one for this log.
    ///
    /// It needs no other treatment than a live state: an amendment of records that it reflects is
    /// itself a later record, and has their blocks read again. A state that cannot be used is deleted,
    /// because a log that was restored from a backup reaches its position later.
    fn begin_at_stored(&mut self, rule: &SelectionRule, storage: &Storage, end: &Watermark) {
        let states = storage.selection_states();
        match states.get(rule.id).and_then(|content| stored::decode(rule, &content, end)) {
            Some((state, read)) => (self.state, self.read) = (state, read),
            None => states.discard(rule.id),
        }
        self.stored = Some(Stored { records: self.state.records(), outdated: false });
    }

    /// Reads the records that have become durable since the last call.
    fn catch_up(&mut self, rule: &SelectionRule, storage: &Storage) -> Result<(), PredictorError> {
        let end = storage.log().watermark(&rule.stream);
        if self.stored.is_none() {
            self.begin_at_stored(rule, storage, &end);
        }
        if end == self.read {
            return Ok(());
        }
        let ends: Vec<u64> = Partition::all().map(|partition| end.get(partition).0).collect();
        self.state.advance(&ends);
        self.faded.fill(None);
        for partition in Partition::all() {
            let up_to = end.get(partition);
            if up_to == self.read.get(partition) {
                continue;
            }
            if let Err(error) = self.catch_up_in(rule, storage, partition, up_to) {
                // Part of the range may have been added and must not be added twice.
                *self = Self::new(rule);
                return Err(error);
            }
            self.read.set(partition, up_to);
        }
        Ok(())
    }

    /// Reads new durable records of a partition.
    ///
    /// If they include an amendment, the blocks with the amended records are read again. Reading a
    /// block twice is harmless, so it does not matter whether the first reading already saw the
    /// amendment.
    fn catch_up_in(
        &mut self,
        rule: &SelectionRule,
        storage: &Storage,
        partition: Partition,
        up_to: Sequence,
    ) -> Result<(), PredictorError> {
        let lane = usize::from(partition.index());
        let first = self.state.first_counting(lane);
        let after = self.read.get(partition).max(Sequence(first - 1)).max(rule.begins.get(partition));
        let range = |after, up_to| LogRange { stream: rule.stream.clone(), partition, after, up_to };
        let mut changed = BTreeSet::new();
        self.learn(rule, storage, &range(after, up_to), |record| {
            if record.kind != RecordKind::Observe {
                changed.extend(record.targets.iter().map(|target| target.0));
            }
        })?;
        if let Some(stored) = self.stored.as_mut().filter(|_| !changed.is_empty()) {
            stored.outdated = true;
        }
        let mut read_again_to = 0;
        for position in changed {
            if position <= read_again_to || !self.state.counts(lane, position) {
                continue;
            }
            let (first, last) = self.state.span(lane, position);
            self.state.clear(lane, position);
            self.learn(rule, storage, &range(Sequence(first - 1), Sequence(last).min(up_to)), |_| ())?;
            read_again_to = last;
        }
        Ok(())
    }

    /// Adds the updates of the records in a range.
    fn learn(
        &mut self,
        rule: &SelectionRule,
        storage: &Storage,
        range: &LogRange,
        mut notice: impl FnMut(&Record),
    ) -> Result<(), PredictorError> {
        let lane = usize::from(range.partition.index());
        let outcome: ControlFlow<()> = storage.log().scan(range, |sequence, record| {
            notice(&record);
            if let Some(update) = rule.update(sequence, &record) {
                self.state.add(Place { lane, position: sequence.0, group: update.group }, &update.sums);
            }
            ControlFlow::Continue(())
        })?;
        debug_assert!(outcome.is_continue(), "the scan is not interrupted");
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_bandits::selection::{LossScale, Objective, StrategySpec};
    use celeris_model::{LabelRange, ModelId, ModelName, StreamName};
    use celeris_storage::StorageOptions;

    use super::*;
    use crate::selection::Scope;
    use crate::version::RankingDefaults;

    /// The thread that stores states may hold a selection that is being deleted.
    #[test]
    fn the_state_of_a_deleted_selection_is_not_stored_again() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        let arms: Vec<ModelName> = ["one", "two"].map(|arm| ModelName::new(arm).unwrap()).into();
        let rule = SelectionRule {
            name: ModelName::new("best").unwrap(),
            id: ModelId(3),
            stream: StreamName::new("films").unwrap(),
            arms,
            arm_ids: vec![ModelId(1), ModelId(2)],
            strategy: StrategySpec::default(),
            scope: Scope::Global,
            scale: LossScale { objective: Objective::Reward, range: LabelRange::UNIT },
            half_life: None,
            defaults: RankingDefaults::default(),
            begins: Watermark::start(),
        };
        let view = StreamView::new(&rule);
        let store = || {
            view.held.lock().stored = Some(Stored { records: 0, outdated: true });
            view.store(&rule, &storage).unwrap();
            storage.selection_states().get(rule.id).is_some()
        };
        assert!(store());
        view.end_storing();
        storage.delete_model(rule.id).unwrap();
        assert!(!store());
    }
}
