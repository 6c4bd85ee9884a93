//! Boltzmann exploration: candidates with higher scores are more likely.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::Exp1;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::order::top_k;
use crate::policy::Policy;

/// Fills each slot with a draw from the remaining candidates, with probabilities proportional to
/// `exp(lambda * score)`: a Plackett–Luce ranking.
///
/// Sutton and Barto, "Reinforcement Learning" (2nd edition, 2018), §2.8, with the name and the
/// default of Vowpal Wabbit's `--cb_explore_adf --softmax --lambda`; `lambda` is the inverse
/// temperature, in units of one by label: 0 is uniform, and greater values are greedier.
/// Cesa-Bianchi, Gentile, Lugosi and Neu, "Boltzmann exploration done right" (NIPS 2017), show that
/// no constant `lambda` has sublinear regret: use it for its smooth propensities, with labels of
/// known scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Softmax {
    lambda: f64,
}

impl Softmax {
    /// The default inverse temperature, as in Vowpal Wabbit.
    pub const DEFAULT_LAMBDA: f64 = 1.0;

    /// The largest inverse temperature.
    pub const LAMBDA_MAX: f64 = 1e6;

    /// A policy with this inverse temperature.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless `lambda` is in `0..=1000000`.
    pub fn new(lambda: f64) -> Result<Self, BanditError> {
        if !(0.0..=Self::LAMBDA_MAX).contains(&lambda) {
            return Err(BanditError::OutOfRange { parameter: "lambda", range: "from 0 to 1000000", value: lambda });
        }
        Ok(Self { lambda })
    }

    /// The inverse temperature.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    fn logit(&self, candidates: &Candidates, candidate: usize) -> f64 {
        self.lambda * candidates.score(candidate)
    }
}

impl Policy for Softmax {
    fn wants(&self) -> Wants {
        Wants::Scores
    }

    /// Adds a standard Gumbel variable to every logit and takes the best: such rankings have the
    /// distribution of slots drawn one after the other (Yellott, "The relationship between Luce's
    /// choice axiom, Thurstone's theory of comparative judgment, and the double exponential
    /// distribution", 1977), in O(n + k log k).
    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        Ok(top_k(candidates.len(), k, |candidate| {
            let gumbel = -rng.sample::<f64, _>(Exp1).ln();
            self.logit(candidates, candidate) + gumbel
        }))
    }

    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let mut shown = vec![false; candidates.len()];
        ranking.iter().for_each(|candidate| shown[*candidate] = true);
        // From the last slot upwards: the sums only grow, so that there is no cancellation.
        let mut remaining = LogSum::EMPTY;
        for candidate in (0..candidates.len()).filter(|candidate| !shown[*candidate]) {
            remaining.add(self.logit(candidates, candidate));
        }
        let mut propensities = vec![0.0; ranking.len()];
        for (candidate, propensity) in ranking.iter().zip(&mut propensities).rev() {
            let logit = self.logit(candidates, *candidate);
            remaining.add(logit);
            *propensity = remaining.share(logit);
        }
        Some(propensities)
    }
}

/// A sum of exponentials that neither overflows nor underflows, stored as `sum * exp(greatest)`.
struct LogSum {
    greatest: f64,
    sum: f64,
}

impl LogSum {
    const EMPTY: Self = Self { greatest: f64::NEG_INFINITY, sum: 0.0 };

    fn add(&mut self, logit: f64) {
        if logit <= self.greatest {
            self.sum += (logit - self.greatest).exp();
        } else {
            self.sum = self.sum * (self.greatest - logit).exp() + 1.0;
            self.greatest = logit;
        }
    }

    /// The share of the term `exp(logit)` in the sum.
    fn share(&self, logit: f64) -> f64 {
        (logit - self.greatest).exp() / self.sum
    }
}
