//! The one trait behind which every policy stands, and what it answers.

use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::simulation::{Propensity, Simulation};

/// One slot of a ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    /// The index of the candidate shown there.
    pub candidate: usize,
    /// The probability with which this candidate came to this slot, given the slots above it; `None` where the policy
    /// has no closed form for it, so that [`Policy::estimate_propensities`] has to tell it later.
    ///
    /// The product over the slots is the probability of the whole ranking, which is what the estimators of slate and
    /// ranking policies ask for.
    pub propensity: Option<f32>,
}

/// A rule that fills the slots of a ranking from the top, each from the candidates not yet shown above it.
///
/// Choosing and evaluating are two methods, and [`Policy::rank`] records what the second says about what the first
/// did, so a drawn ranking and one that is judged afterwards get their propensities from the same code.
pub trait Policy {
    /// How much of the candidates it looks at.
    fn wants(&self) -> Wants;

    /// Draws `min(k, n)` distinct candidates, best slot first.
    ///
    /// The caller guarantees finite scores and uncertainties.
    ///
    /// # Errors
    /// Only policies that look beyond the estimates fail: see theirs.
    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError>;

    /// For each slot of `ranking` the probability that this policy fills it so, given the slots above; `None` where
    /// there is no closed form. Cheap enough for the way of a reply.
    ///
    /// The caller guarantees that `ranking` holds distinct indices below `n`. It need not be likely, or even possible,
    /// under this policy: a slot that the policy would never fill so has probability 0.
    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>>;

    /// [`Policy::propensities`] of every policy, off the way of the reply: exact where there is a closed form, else
    /// estimated from one seeded sample, each with its standard error. Equal arguments give equal
    /// answers.
    ///
    /// The caller guarantees what [`Policy::propensities`] asks for, and what the policy [wants](Policy::wants) of the
    /// candidates, as they were when the ranking was drawn.
    ///
    /// # Errors
    /// As [`Policy::rank`].
    fn estimate_propensities(
        &self,
        candidates: &Candidates,
        ranking: &[usize],
        _simulation: Simulation,
    ) -> Result<Vec<Propensity>, BanditError> {
        candidates.check(self.wants())?;
        let exact = self.propensities(candidates, ranking);
        let exact = exact.expect("a policy without closed forms simulates");
        Ok(exact.into_iter().map(Propensity::exact).collect())
    }

    /// The probability with which each of the candidates fills the slot below `above`, 0 for those above. They sum to 1
    /// unless nothing is left to show, or the policy would never have shown what is above.
    ///
    /// The caller guarantees that `above` holds distinct indices below `n`, and what [`Policy::estimate_propensities`]
    /// asks for.
    ///
    /// # Errors
    /// As [`Policy::rank`].
    fn estimate_next_slot(
        &self,
        candidates: &Candidates,
        above: &[usize],
        simulation: Simulation,
    ) -> Result<Vec<f64>, BanditError> {
        let mut ranking = above.to_vec();
        ranking.push(0);
        let slot = above.len();
        let probability = |candidate: usize| {
            if above.contains(&candidate) {
                return Ok(0.0);
            }
            ranking[slot] = candidate;
            Ok(self.estimate_propensities(candidates, &ranking, simulation)?[slot].value)
        };
        (0..candidates.len()).map(probability).collect()
    }

    /// Draws a ranking of `min(k, n)` slots with the propensities of what was drawn.
    ///
    /// # Errors
    /// [`BanditError::NonFinite`], and whatever [`Policy::choose`] fails with.
    fn rank(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<Slot>, BanditError> {
        candidates.check(self.wants())?;
        let ranking = self.choose(candidates, k, rng)?;
        Ok(slots(&ranking, self.propensities(candidates, &ranking).as_deref()))
    }
}

/// Joins a ranking with its propensities.
pub(crate) fn slots(ranking: &[usize], propensities: Option<&[f64]>) -> Vec<Slot> {
    debug_assert!(propensities.is_none_or(|given| given.len() == ranking.len()));
    let propensity = |slot: usize| propensities.map(|given| given[slot] as f32);
    ranking
        .iter()
        .enumerate()
        .map(|(slot, candidate)| Slot { candidate: *candidate, propensity: propensity(slot) })
        .collect()
}
