//! The state of a selection shared by all users: read from the durable log, partition by partition.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use celeris_bandits::selection::{Faded, Place, State};
use celeris_model::{Partition, Record, RecordKind, Sequence};
use celeris_storage::{LogRange, Storage, Watermark};
use parking_lot::Mutex;

use crate::error::PredictorError;
use crate::selection::SelectionRule;

/// A state and the log positions up to which it has read.
pub(crate) struct StreamView {
    held: Mutex<Held>,
}

struct Held {
    state: State,
    read: Watermark,
    /// By group, as of `read`.
    faded: Vec<Option<Faded>>,
}

impl StreamView {
    pub(crate) fn new(rule: &SelectionRule) -> Self {
        let layout = rule.layout();
        let faded = vec![None; layout.groups];
        Self { held: Mutex::new(Held { state: State::new(layout), read: Watermark::start(), faded }) }
    }

    pub(crate) fn catch_up(&self, rule: &SelectionRule, storage: &Storage) -> Result<(), PredictorError> {
        self.held.lock().catch_up(rule, storage)
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
    /// Reads the records that have become durable since the last call.
    fn catch_up(&mut self, rule: &SelectionRule, storage: &Storage) -> Result<(), PredictorError> {
        let end = storage.log().watermark(&rule.stream);
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
                self.state = State::new(rule.layout());
                self.read = Watermark::start();
                return Err(error);
            }
            self.read.set(partition, up_to);
        }
        Ok(())
    }

    /// Reads new durable records of a partition.
    ///
    /// If they include an amendment, the blocks with the amended records are read again. Reading a block twice is
    /// harmless, so it does not matter whether the first reading already saw the amendment.
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
