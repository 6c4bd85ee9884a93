//! The target policy's probabilities.

use crate::candidates::Candidates;
use crate::error::BanditError;
use crate::policy::Policy;
use crate::simulation::{Origin, Simulation};

/// The probability with which `policy` fills the slot below `above` with each of the candidates.
/// They sum to 1 unless no candidate is left, or the policy would never have shown `above`.
///
/// If the policy has no closed form, all probabilities come from one sample drawn by `seed`. It is
/// independent of the sample from which the propensities of a decision with that seed were
/// estimated, and of those of other slots.
///
/// The caller guarantees the inputs that the policy wants of the candidates, and that `above` holds
/// distinct indices below `n`.
///
/// # Errors
/// As [`Policy::rank`].
pub fn next_slot(
    policy: &dyn Policy,
    candidates: &Candidates,
    above: &[usize],
    seed: u64,
) -> Result<Vec<f64>, BanditError> {
    policy.estimate_next_slot(candidates, above, Simulation { seed, origin: Origin::Evaluated })
}
