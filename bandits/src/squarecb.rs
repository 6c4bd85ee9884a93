//! Inverse gap weighting: candidates are shown less often the lower their score.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::order::BestRemaining;
use crate::policy::Policy;
use crate::remaining::Remaining;

/// At every slot, with `m` candidates left, each but the best has the probability `1 / (m + gamma *
/// gap)`, where `gap` is the difference of its score to the best; the best has the rest, at least
/// `1 / m`.
///
/// `SquareCB` of Foster and Rakhlin, "Beyond UCB: optimal and efficient contextual bandits with
/// regression oracles" (ICML 2020), algorithm 1, with `mu` the number of actions. `gamma =
/// gamma_scale * t^gamma_exponent`, names and defaults of Vowpal Wabbit's `--cb_explore_adf
/// --squarecb`. There `t` counts the examples of the single learner; here it is one more than the
/// user's observations, so that a well-known user is explored less than a new one, and a decision
/// depends only on the state that it names. `gamma` is in units of one by label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SquareCb {
    gamma_scale: f64,
    gamma_exponent: f64,
}

impl SquareCb {
    /// The default scale, as in Vowpal Wabbit.
    pub const DEFAULT_GAMMA_SCALE: f64 = 10.0;

    /// The largest scale.
    pub const GAMMA_SCALE_MAX: f64 = 1e9;

    /// The default exponent, as in Vowpal Wabbit.
    pub const DEFAULT_GAMMA_EXPONENT: f64 = 0.5;

    /// A policy with this scale and exponent.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless `gamma_scale` is in `0..=1000000000` and `gamma_exponent`
    /// in `0..=1`.
    pub fn new(gamma_scale: f64, gamma_exponent: f64) -> Result<Self, BanditError> {
        if !(0.0..=Self::GAMMA_SCALE_MAX).contains(&gamma_scale) {
            let (parameter, range) = ("gamma_scale", "from 0 to 1000000000");
            return Err(BanditError::OutOfRange { parameter, range, value: gamma_scale });
        }
        if !(0.0..=1.0).contains(&gamma_exponent) {
            let (parameter, range) = ("gamma_exponent", "from 0 to 1");
            return Err(BanditError::OutOfRange { parameter, range, value: gamma_exponent });
        }
        Ok(Self { gamma_scale, gamma_exponent })
    }

    /// The factor of `gamma`.
    #[must_use]
    pub fn gamma_scale(&self) -> f64 {
        self.gamma_scale
    }

    /// The exponent of the user's observations in `gamma`.
    #[must_use]
    pub fn gamma_exponent(&self) -> f64 {
        self.gamma_exponent
    }

    fn gamma(&self, candidates: &Candidates) -> f64 {
        self.gamma_scale * candidates.round().powf(self.gamma_exponent)
    }
}

impl Default for SquareCb {
    fn default() -> Self {
        Self { gamma_scale: Self::DEFAULT_GAMMA_SCALE, gamma_exponent: Self::DEFAULT_GAMMA_EXPONENT }
    }
}

impl Policy for SquareCb {
    fn wants(&self) -> Wants {
        Wants::Scores
    }

    /// Takes O(n + k log k): a uniform draw is kept with the probability `m / (m + gamma * gap)`,
    /// otherwise the best is shown, which gives the same probabilities without computing them.
    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        let n = candidates.len();
        let k = k.min(n);
        let gamma = self.gamma(candidates);
        let mut by_score = BestRemaining::new(n, k, |candidate| candidates.score(candidate));
        let mut remaining = Remaining::all(n);
        let mut ranking = Vec::with_capacity(k);
        for slot in 0..k {
            let best = by_score.best();
            let drawn = remaining.draw(rng);
            let left = (n - slot) as f64;
            let gap = candidates.score(best) - candidates.score(drawn);
            let keep = rng.random::<f64>() * (left + gamma * gap) < left;
            let chosen = if keep { drawn } else { best };
            by_score.take(chosen);
            remaining.take(chosen);
            ranking.push(chosen);
        }
        Ok(ranking)
    }

    /// Takes O(n) for each slot that shows the best remaining candidate, and O(1) for each other
    /// slot.
    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let n = candidates.len();
        let gamma = self.gamma(candidates);
        let mut by_score = BestRemaining::new(n, ranking.len(), |candidate| candidates.score(candidate));
        let mut remaining = Remaining::all(n);
        let mut propensities = Vec::with_capacity(ranking.len());
        for (slot, candidate) in ranking.iter().enumerate() {
            let best = by_score.best();
            let left = (n - slot) as f64;
            let weight = |other: usize| {
                let gap = candidates.score(best) - candidates.score(other);
                1.0 / (left + gamma * gap)
            };
            let of_others = || remaining.iter().filter(|other| *other != best).map(weight).sum::<f64>();
            propensities.push(if *candidate == best { 1.0 - of_others() } else { weight(*candidate) });
            by_score.take(*candidate);
            remaining.take(*candidate);
        }
        Some(propensities)
    }
}
