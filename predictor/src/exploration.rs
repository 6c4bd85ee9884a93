//! Exploration counts and rewards of a model's rankings since the node started.

use std::collections::VecDeque;

use celeris_model::{Joined, Timestamp};
use parking_lot::Mutex;

/// Initial length of a span, in milliseconds.
const SPAN_MS: i64 = 10_000;

/// Maximum number of spans; beyond it adjacent spans are merged and the length doubles.
const SPANS_MAX: usize = 256;

/// Source of a reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RewardSource {
    Client,
    /// Inserted because no reward arrived in time; replaced by any later one.
    Default,
}

/// Counts in a span of time, or in total.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExplorationCounts {
    pub decisions: u64,
    /// Rankings whose record was accepted for writing.
    pub logged: u64,
    /// Rankings drawn uniformly for the validation pool.
    pub pool: u64,
    pub slots: u64,
    /// Slots that show an item that greedy would have shown in no slot.
    pub explored: u64,
    /// Observations that referred to a decision, by outcome, in the order of [`Joined::ALL`].
    pub joined: [u64; Joined::ALL.len()],
    /// Default rewards, given because no reward arrived in time. They are also counted in `joined`.
    pub defaults: u64,
    /// Default rewards that a later reward replaced.
    pub replaced: u64,
    /// Sum of slot rewards as they arrived, including defaults that were replaced later.
    pub reward_sum: f64,
}

impl ExplorationCounts {
    /// Rewards of slots, including defaults.
    #[must_use]
    pub fn rewards(&self) -> u64 {
        self.joined(Joined::Slot)
    }

    /// Observations that referred to a decision with this outcome.
    #[must_use]
    pub fn joined(&self, joined: Joined) -> u64 {
        self.joined[joined as usize]
    }

    /// The mean reward of the slots that have one.
    #[must_use]
    pub fn mean_reward(&self) -> Option<f64> {
        (self.rewards() > 0).then(|| self.reward_sum / self.rewards() as f64)
    }

    fn add(&mut self, other: &Self) {
        self.decisions += other.decisions;
        self.logged += other.logged;
        self.pool += other.pool;
        self.slots += other.slots;
        self.explored += other.explored;
        self.joined.iter_mut().zip(other.joined).for_each(|(count, more)| *count += more);
        self.defaults += other.defaults;
        self.replaced += other.replaced;
        self.reward_sum += other.reward_sum;
    }
}

/// A span of time and its counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExplorationSpan {
    pub from: Timestamp,
    pub counts: ExplorationCounts,
}

/// Exploration of a model's rankings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExplorationView {
    pub totals: ExplorationCounts,
    pub span_ms: i64,
    /// Spans with any count, oldest first.
    pub spans: Vec<ExplorationSpan>,
}

/// One model's counts, in memory only.
pub(crate) struct Exploration(Mutex<Tally>);

struct Tally {
    totals: ExplorationCounts,
    span_ms: i64,
    spans: VecDeque<ExplorationSpan>,
}

impl Exploration {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Tally { totals: ExplorationCounts::default(), span_ms: SPAN_MS, spans: VecDeque::new() }))
    }

    pub(crate) fn count(&self, at: Timestamp, counts: &ExplorationCounts) {
        let mut tally = self.0.lock();
        tally.totals.add(counts);
        tally.span(at).add(counts);
    }

    /// Counts a default reward that was replaced.
    pub(crate) fn replaced(&self, at: Timestamp) {
        self.count(at, &ExplorationCounts { replaced: 1, ..ExplorationCounts::default() });
    }

    /// Counts an observation that referred to a decision.
    pub(crate) fn joined(&self, at: Timestamp, joined: Joined, source: RewardSource, label: f32) {
        let mut counts = ExplorationCounts::default();
        counts.joined[joined as usize] = 1;
        counts.defaults = u64::from(source == RewardSource::Default);
        if joined == Joined::Slot {
            counts.reward_sum = f64::from(label);
        }
        self.count(at, &counts);
    }

    pub(crate) fn view(&self) -> ExplorationView {
        let tally = self.0.lock();
        ExplorationView { totals: tally.totals, span_ms: tally.span_ms, spans: tally.spans.iter().copied().collect() }
    }
}

impl Tally {
    /// The counts of the span of a time; the latest span if the clock was set back.
    fn span(&mut self, at: Timestamp) -> &mut ExplorationCounts {
        let from = Timestamp(at.0 - at.0.rem_euclid(self.span_ms));
        if self.spans.back().is_none_or(|last| last.from < from) {
            if self.spans.len() == SPANS_MAX {
                self.halve();
                return self.span(at);
            }
            self.spans.push_back(ExplorationSpan { from, counts: ExplorationCounts::default() });
        }
        &mut self.spans.back_mut().expect("there is one by now").counts
    }

    fn halve(&mut self) {
        // After a long gap, doubling the length once may not be enough.
        while self.spans.len() > SPANS_MAX / 2 {
            self.span_ms *= 2;
            let mut merged: VecDeque<ExplorationSpan> = VecDeque::with_capacity(SPANS_MAX);
            for span in &self.spans {
                let from = Timestamp(span.from.0 - span.from.0.rem_euclid(self.span_ms));
                match merged.back_mut() {
                    Some(last) if last.from == from => last.counts.add(&span.counts),
                    _ => merged.push_back(ExplorationSpan { from, ..*span }),
                }
            }
            self.spans = merged;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_spans_loses_no_counts() {
        let exploration = Exploration::new();
        let one = ExplorationCounts { decisions: 1, slots: 3, reward_sum: 0.5, ..ExplorationCounts::default() };
        let (rounds, every) = (10_000_i64, 3_000);
        for round in 0..rounds {
            exploration.count(Timestamp(1_700_000_000_000 + round * every), &one);
        }
        let view = exploration.view();
        assert!(view.spans.len() <= SPANS_MAX, "{}", view.spans.len());
        assert!(view.spans.len() > SPANS_MAX / 4, "{}: no more spans are merged than necessary", view.spans.len());
        assert!(view.spans.iter().all(|span| span.from.0 % view.span_ms == 0));
        assert!(view.spans.windows(2).all(|pair| pair[0].from < pair[1].from));
        let sum: u64 = view.spans.iter().map(|span| span.counts.slots).sum();
        assert_eq!((sum, view.totals.slots), (3 * rounds as u64, 3 * rounds as u64));
        exploration.count(Timestamp(5), &one);
        assert_eq!(exploration.view().totals.decisions, rounds as u64 + 1, "a clock that was set back loses nothing");
    }
}
