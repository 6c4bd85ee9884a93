//! Optimism in the face of uncertainty.

use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::order::{shows_best, top_k};
use crate::policy::Policy;

/// Ranks by the upper confidence bound `score + alpha * std_error`; ties go to the earlier
/// candidate. Deterministic, so every slot has propensity 1.
///
/// LinUCB of Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news
/// article recommendation" (WWW 2010), algorithm 1, with one linear model per user instead of one
/// per arm. Their width is `alpha * sqrt(x^T A^-1 x)`, with the noise included in `alpha`; here
/// `std_error` contains `sigma`, so that `alpha` counts standard errors, whatever the scale of the
/// labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinUcb {
    alpha: f64,
}

impl LinUcb {
    /// The default width, as in MABWiser.
    pub const DEFAULT_ALPHA: f64 = 1.0;

    /// The widest bound: beyond it the score no longer matters.
    pub const ALPHA_MAX: f64 = 100.0;

    /// A policy with this width, in standard errors.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless `alpha` is in `0..=100`.
    pub fn new(alpha: f64) -> Result<Self, BanditError> {
        if !(0.0..=Self::ALPHA_MAX).contains(&alpha) {
            return Err(BanditError::OutOfRange { parameter: "alpha", range: "from 0 to 100", value: alpha });
        }
        Ok(Self { alpha })
    }

    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    fn upper_bound(&self, candidates: &Candidates, candidate: usize) -> f64 {
        candidates.score(candidate) + self.alpha * f64::from(candidates.std_errors[candidate])
    }
}

impl Policy for LinUcb {
    fn wants(&self) -> Wants {
        Wants::Uncertainty
    }

    fn choose(&self, candidates: &Candidates, k: usize, _rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        Ok(top_k(candidates.len(), k, |candidate| self.upper_bound(candidates, candidate)))
    }

    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let best = shows_best(candidates.len(), ranking, |candidate| self.upper_bound(candidates, candidate));
        Some(best.map(f64::from).collect())
    }
}
