//! What the policy that is judged would have done.

use crate::candidates::Candidates;
use crate::error::BanditError;
use crate::policy::Policy;
use crate::simulation::{Origin, Simulation};

/// The probability with which `policy` fills the slot below `above` with each of the candidates. They sum to 1 unless
/// nothing is left to show, or the policy would never have shown what is above.
///
/// Where a policy has no closed form, all come from one sample that `seed` draws. Takes one call of
/// [`Policy::estimate_propensities`] for each candidate.
///
/// The caller guarantees what the policy wants of the candidates, and that `above` holds distinct indices below `n`.
///
/// # Errors
/// As [`Policy::rank`].
pub fn next_slot(
    policy: &dyn Policy,
    candidates: &Candidates,
    above: &[usize],
    seed: u64,
) -> Result<Vec<f64>, BanditError> {
    let mut ranking = above.to_vec();
    ranking.push(0);
    let slot = above.len();
    let simulation = Simulation { seed, origin: Origin::Given };
    let probability = |candidate: usize| {
        if above.contains(&candidate) {
            return Ok(0.0);
        }
        ranking[slot] = candidate;
        Ok(policy.estimate_propensities(candidates, &ranking, simulation)?[slot].value)
    };
    (0..candidates.len()).map(probability).collect()
}
