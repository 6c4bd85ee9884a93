//! Best score first, with a minimum probability for every other candidate.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::order::{BestRemaining, shows_best};
use crate::policy::Policy;
use crate::remaining::Remaining;

/// At every slot, independently, with probability `epsilon` a uniform draw from the remaining
/// candidates, otherwise the one with the best score (ties go to the earlier candidate).
///
/// Sutton and Barto, "Reinforcement Learning" (2nd edition, 2018), §2.2, applied slot by slot. With
/// `m` candidates left, a slot shows the best of them with probability `1 - epsilon + epsilon/m`
/// and any other with `epsilon/m`. Unless `epsilon` is 0, every candidate has a positive
/// probability, and a slot's importance weight is at most `m/epsilon`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpsilonGreedy {
    epsilon: f64,
}

impl EpsilonGreedy {
    /// The default share of exploring slots, as in Vowpal Wabbit.
    pub const DEFAULT_EPSILON: f64 = 0.05;

    /// A policy that explores in this share of its slots.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless `epsilon` is in `0..=1`.
    pub fn new(epsilon: f64) -> Result<Self, BanditError> {
        if !(0.0..=1.0).contains(&epsilon) {
            return Err(BanditError::OutOfRange { parameter: "epsilon", range: "from 0 to 1", value: epsilon });
        }
        Ok(Self { epsilon })
    }

    /// The share of exploring slots.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }
}

impl Default for EpsilonGreedy {
    fn default() -> Self {
        Self { epsilon: Self::DEFAULT_EPSILON }
    }
}

impl Policy for EpsilonGreedy {
    fn wants(&self) -> Wants {
        Wants::Scores
    }

    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        let n = candidates.len();
        let k = k.min(n);
        let mut by_score = BestRemaining::new(n, k, |candidate| candidates.score(candidate));
        let mut remaining = Remaining::all(n);
        let mut ranking = Vec::with_capacity(k);
        for _ in 0..k {
            let explore = rng.random::<f64>() < self.epsilon;
            let chosen = if explore { remaining.draw(rng) } else { by_score.best() };
            by_score.take(chosen);
            remaining.take(chosen);
            ranking.push(chosen);
        }
        Ok(ranking)
    }

    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let n = candidates.len();
        let best = shows_best(n, ranking, |candidate| candidates.score(candidate));
        let propensity = |(slot, best)| {
            let floor = self.epsilon / (n - slot) as f64;
            if best { 1.0 - self.epsilon + floor } else { floor }
        };
        Some(best.enumerate().map(propensity).collect())
    }
}
