//! What the policy that is judged would have done.

use crate::candidates::Candidates;
use crate::error::BanditError;
use crate::policy::Policy;
use crate::simulation::{Origin, Simulation};

/// The probability with which `policy` fills the slot below `above` with each of the candidates. They sum to 1 unless
/// nothing is left to show, or the policy would never have shown what is above.
///
/// Where a policy has no closed form, all come from one sample that `seed` draws. It is independent of the one from which
/// the propensities of a decision of that seed were estimated, and of those of other slots.
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
    policy.estimate_next_slot(candidates, above, Simulation { seed, origin: Origin::Evaluated })
}
