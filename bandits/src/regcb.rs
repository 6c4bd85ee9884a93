//! Optimism over all regressors whose loss on the history is close to the lowest.

use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::order::{shows_best, top_k};
use crate::policy::Policy;

/// Ranks by the greatest score under weights whose loss on the user's history exceeds the lowest by
/// at most `noise_variance * mellowness * ln(n t)`; ties go to the earlier candidate.
/// Deterministic, so every slot has propensity 1.
///
/// The optimistic variant of `RegCB`: Foster, Agarwal, Dudík, Luo and Schapire, "Practical
/// contextual bandits with regression oracles" (ICML 2018), §3, with the threshold, the name and
/// the default of Vowpal Wabbit's `--cb_explore_adf --regcb --regcbopt --mellowness`: `n`
/// candidates, and `t` one more than the user's observations. Vowpal Wabbit searches for each bound
/// by the regressor's sensitivity and scales the threshold by the square of the range of costs.
/// Here the loss, including the prior, is the quadratic `(w - w_u)^T A (w - w_u)` above its
/// minimum, so the bound has the closed form `score + sqrt(mellowness * ln(n t)) * std_error`, and
/// the scale is the noise itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegCb {
    mellowness: f64,
}

impl RegCb {
    /// The default mellowness, as in Vowpal Wabbit.
    pub const DEFAULT_MELLOWNESS: f64 = 0.1;

    /// The widest bound: beyond it the score no longer matters.
    pub const MELLOWNESS_MAX: f64 = 1000.0;

    /// A policy with this mellowness.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless `mellowness` is in `0..=1000`.
    pub fn new(mellowness: f64) -> Result<Self, BanditError> {
        if !(0.0..=Self::MELLOWNESS_MAX).contains(&mellowness) {
            return Err(BanditError::OutOfRange {
                parameter: "mellowness",
                range: "from 0 to 1000",
                value: mellowness,
            });
        }
        Ok(Self { mellowness })
    }

    /// The tolerated loss above the lowest, in units of the noise variance and the logarithm of
    /// rounds.
    #[must_use]
    pub fn mellowness(&self) -> f64 {
        self.mellowness
    }

    /// Each candidate's upper bound.
    fn upper_bound(&self, candidates: &Candidates) -> impl Fn(usize) -> f64 {
        let threshold = self.mellowness * (candidates.len() as f64 * candidates.round()).ln();
        let width = threshold.max(0.0).sqrt();
        move |candidate| candidates.score(candidate) + width * f64::from(candidates.std_errors[candidate])
    }
}

impl Policy for RegCb {
    fn wants(&self) -> Wants {
        Wants::Uncertainty
    }

    fn choose(&self, candidates: &Candidates, k: usize, _rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        Ok(top_k(candidates.len(), k, self.upper_bound(candidates)))
    }

    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let best = shows_best(candidates.len(), ranking, self.upper_bound(candidates));
        Some(best.map(f64::from).collect())
    }
}
