//! The validation pool: a small share of rankings that no model chose.
//!
//! Feedback on uniformly random rankings is the one sample of a user's taste that is free of the model's own opinion,
//! so it is what models are compared on. A ranking that falls into the pool and one that does not can be the same
//! ranking, so what is recorded is the probability under both ways together.

use rand::RngExt;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::candidates::Candidates;
use crate::error::BanditError;
use crate::policy::{Policy, Slot, slots};

/// The probability with which a whole ranking is drawn uniformly, from 0 (never) to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct PoolShare(f64);

impl PoolShare {
    /// Checks and wraps a probability.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless it is in `0..=1`.
    pub fn new(share: f64) -> Result<Self, BanditError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(BanditError::OutOfRange { parameter: "pool_share", range: "from 0 to 1", value: share });
        }
        Ok(Self(share))
    }
}

impl Default for PoolShare {
    /// One ranking in a hundred.
    fn default() -> Self {
        Self(0.01)
    }
}

impl TryFrom<f64> for PoolShare {
    type Error = BanditError;

    fn try_from(share: f64) -> Result<Self, BanditError> {
        Self::new(share)
    }
}

impl From<PoolShare> for f64 {
    fn from(share: PoolShare) -> Self {
        share.0
    }
}

/// A drawn ranking, and how it was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// Best slot first.
    pub slots: Vec<Slot>,
    /// Whether it is part of the validation pool.
    pub pool: bool,
}

/// With probability `share` a uniformly random ranking, else one of `policy`.
///
/// It is meant for rankings whose policy nobody named: who names a policy gets that policy, by [`Policy::rank`].
#[derive(Clone, Copy)]
pub struct Pooled<'a> {
    /// How often the pool draws.
    pub share: PoolShare,
    /// What draws otherwise.
    pub policy: &'a dyn Policy,
}

impl Pooled<'_> {
    /// Draws a ranking of `min(k, n)` slots with the propensities of what was drawn, pool share included.
    ///
    /// # Errors
    /// As [`Policy::rank`].
    pub fn draw(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Ranking, BanditError> {
        candidates.check(self.policy.wants())?;
        let pool = rng.random::<f64>() < self.share.0;
        let ranking = if pool {
            index::sample(rng, candidates.len(), k.min(candidates.len())).into_vec()
        } else {
            self.policy.choose(candidates, k, rng)?
        };
        let propensities = self.propensities(candidates, &ranking);
        Ok(Ranking { slots: slots(&ranking, propensities.as_deref()), pool })
    }

    /// For each slot of `ranking` the probability that the mixture fills it so, given the slots above; `None` where
    /// the policy has no closed form.
    ///
    /// With `U` and `Q` the probabilities of a prefix under the uniform draw and under the policy, a slot has
    /// `(share U(s) + (1-share) Q(s)) / (share U(s-1) + (1-share) Q(s-1))`. Those products vanish in floating point
    /// after some dozens of slots, so the two terms of the denominator are carried as shares of their sum: the
    /// posterior probabilities, given the slots above, that the pool or the policy is drawing.
    ///
    /// The caller guarantees what [`Policy::propensities`] asks for. Below a slot that neither way could have filled,
    /// nothing is defined and the rest is 0.
    #[must_use]
    pub fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let mut of_pool = self.share.0;
        let mut of_policy = 1.0 - self.share.0;
        let mut propensities = self.policy.propensities(candidates, ranking)?;
        for (slot, propensity) in propensities.iter_mut().enumerate() {
            let by_pool = of_pool / (candidates.len() - slot) as f64;
            let by_policy = of_policy * *propensity;
            *propensity = by_pool + by_policy;
            if *propensity > 0.0 {
                of_pool = by_pool / *propensity;
                of_policy = by_policy / *propensity;
            } else {
                (of_pool, of_policy) = (0.0, 0.0);
            }
        }
        Some(propensities)
    }
}
