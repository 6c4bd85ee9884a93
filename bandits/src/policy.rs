//! The trait of all policies, and the slots that they return.

use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::simulation::{Propensity, Simulation};

/// One slot of a ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slot {
    /// Index of the candidate shown.
    pub candidate: usize,
    /// The probability with which this candidate came to this slot, given the slots above it;
    /// `None` if the policy has no closed form, so that [`Policy::estimate_propensities`] must
    /// compute it later.
    ///
    /// The product over the slots is the probability of the whole ranking, as needed by estimators
    /// for slate and ranking policies.
    pub propensity: Option<f32>,
}

/// A rule that fills the slots of a ranking from the top, each from the candidates not yet shown
/// above it.
///
/// Choosing and evaluating are two methods, and [`Policy::rank`] calls the second on the result of
/// the first, so that drawn rankings and rankings evaluated later get their propensities from the
/// same code.
pub trait Policy {
    /// The inputs that the policy needs.
    fn wants(&self) -> Wants;

    /// Draws `min(k, n)` distinct candidates, from the top slot down.
    ///
    /// The caller guarantees finite scores and uncertainties.
    ///
    /// # Errors
    /// Only policies that draw from the posterior fail; see there.
    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError>;

    /// For each slot of `ranking`, the probability that this policy fills it in this way, given the
    /// slots above; `None` if there is no closed form. Cheap enough for the request path.
    ///
    /// The caller guarantees that `ranking` holds distinct indices below `n`. It need not be
    /// likely, or even possible, under this policy: a slot that the policy would never fill in this
    /// way has probability 0.
    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>>;

    /// [`Policy::propensities`] for every policy, but not for the request path: exact if there is a
    /// closed form, otherwise estimated from one seeded sample, with standard errors. Equal
    /// arguments give equal results.
    ///
    /// The caller guarantees the preconditions of [`Policy::propensities`], and the inputs that the
    /// policy
    /// [wants](Policy::wants), with the values they had when the ranking was drawn.
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

    /// The probability with which each of the candidates fills the slot below `above`; 0 for those
    /// in `above`. They sum to 1 unless no candidate is left, or the policy would never have shown
    /// `above`.
    ///
    /// The caller guarantees that `above` holds distinct indices below `n`, and the preconditions
    /// of [`Policy::estimate_propensities`].
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

    /// Draws a ranking of `min(k, n)` slots with its propensities.
    ///
    /// # Errors
    /// [`BanditError::NonFinite`], and the errors of [`Policy::choose`].
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
