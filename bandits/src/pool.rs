//! The validation pool: a small share of rankings drawn uniformly, without a model.
//!
//! Feedback on uniformly random rankings is the only sample of a user's taste that is not biased by
//! the model, so models are compared on it. The pool and the policy can draw the same ranking, so
//! the recorded propensity is that of their mixture.

use rand::RngExt;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::candidates::Candidates;
use crate::error::BanditError;
use crate::policy::{Policy, Slot, slots};
use crate::simulation::{Propensity, Simulation};

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

/// With probability `share` a uniformly random ranking, otherwise one of `policy`.
///
/// Under any policy, every candidate has a probability of at least `share / n` in the first slot.
/// With epsilon-greedy, the default policy, the floor is higher and holds in every slot: with `m`
/// candidates left each has at least `epsilon / m` (in the first slot `(share + (1 - share)
/// epsilon) / n`), so that no slot's importance weight exceeds `n / epsilon`.
///
/// For requests that name no policy; a named policy is used by [`Policy::rank`] without the pool.
#[derive(Clone, Copy)]
pub struct Pooled<'a> {
    /// The share of rankings drawn by the pool.
    pub share: PoolShare,
    /// The policy of the other rankings.
    pub policy: &'a dyn Policy,
}

impl Pooled<'_> {
    /// Draws a ranking of `min(k, n)` slots with the propensities of what was drawn, pool share
    /// included.
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

    /// For each slot of `ranking`, the probability that the mixture fills it in this way, given the
    /// slots above; `None` if the policy has no closed form.
    ///
    /// With `U` and `Q` the probabilities of a prefix under the uniform draw and under the policy,
    /// a slot has `(share U(s) + (1-share) Q(s)) / (share U(s-1) + (1-share) Q(s-1))`. These
    /// products underflow after some dozens of slots, so the two terms of the denominator are kept
    /// as shares of their sum: the posterior probabilities, given the slots above, that the pool or
    /// the policy is drawing.
    ///
    /// The caller guarantees the preconditions of [`Policy::propensities`]. Below a slot that
    /// neither could have filled, propensities are undefined, and 0 is returned.
    #[must_use]
    pub fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let mut mixture = Mixture::new(self.share, candidates.len());
        let of_policy = self.policy.propensities(candidates, ranking)?;
        Some(of_policy.into_iter().map(|propensity| mixture.next(Propensity::exact(propensity)).value).collect())
    }

    /// As [`Pooled::propensities`], but not for the request path: exact if the policy has a closed
    /// form, otherwise simulated, with standard errors. For a ranking drawn by the pool, the origin
    /// is [`crate::Origin::Given`].
    ///
    /// With a share of 0, equal to [`Policy::estimate_propensities`].
    ///
    /// # Errors
    /// As [`Policy::rank`].
    pub fn estimate_propensities(
        &self,
        candidates: &Candidates,
        ranking: &[usize],
        simulation: Simulation,
    ) -> Result<Vec<Propensity>, BanditError> {
        let mut mixture = Mixture::new(self.share, candidates.len());
        let of_policy = self.policy.estimate_propensities(candidates, ranking, simulation)?;
        Ok(of_policy.into_iter().map(|propensity| mixture.next(propensity)).collect())
    }
}

/// The mixture of pool and policy, updated from slot to slot.
struct Mixture {
    /// Number of candidates that remain.
    remaining: usize,
    /// The probability, given the slots above, that the pool is drawing.
    of_pool: f64,
    /// The probability, given the slots above, that the policy is drawing.
    of_policy: f64,
    /// The standard error of these two.
    std_error: f64,
}

impl Mixture {
    fn new(share: PoolShare, n: usize) -> Self {
        Self { remaining: n, of_pool: share.0, of_policy: 1.0 - share.0, std_error: 0.0 }
    }

    /// The propensity of the next slot, from the one under the policy.
    ///
    /// Standard errors are propagated to first order. Those of the slots above and of this one come
    /// from one sample and may have any correlation, so they are added: the result is an upper
    /// bound.
    fn next(&mut self, propensity: Propensity) -> Propensity {
        let uniform = 1.0 / self.remaining as f64;
        self.remaining -= 1;
        let by_pool = self.of_pool * uniform;
        let by_policy = self.of_policy * propensity.value;
        let value = by_pool + by_policy;
        let std_error = (propensity.value - uniform).abs() * self.std_error + self.of_policy * propensity.std_error;
        if value > 0.0 {
            let of_policy_error =
                propensity.value * self.std_error + self.of_pool * self.of_policy * propensity.std_error;
            self.std_error = uniform * of_policy_error / (value * value);
            self.of_pool = by_pool / value;
            self.of_policy = by_policy / value;
        } else {
            (self.of_pool, self.of_policy, self.std_error) = (0.0, 0.0, 0.0);
        }
        Propensity { value, std_error }
    }
}
