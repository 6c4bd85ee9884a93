//! What the policy that is judged would have done.

use crate::candidates::Candidates;
use crate::policy::Policy;

/// The probability with which `policy` fills the slot below `above` with each of the candidates; `None` where it has no
/// closed form. They sum to 1 unless nothing is left to show, or the policy would never have shown what is above.
///
/// Takes one call of [`Policy::propensities`] for each candidate.
#[must_use]
pub fn next_slot(policy: &dyn Policy, candidates: &Candidates, above: &[usize]) -> Option<Vec<f64>> {
    let mut ranking = above.to_vec();
    ranking.push(0);
    let slot = above.len();
    let probability = |candidate: usize| {
        if above.contains(&candidate) {
            return Some(0.0);
        }
        ranking[slot] = candidate;
        policy.propensities(candidates, &ranking).map(|propensities| propensities[slot])
    };
    (0..candidates.len()).map(probability).collect()
}
