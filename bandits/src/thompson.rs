//! Probability matching: each slot shows the best candidate under weights sampled from the
//! posterior.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::greedy::Greedy;
use crate::policy::Policy;
use crate::simulation::{self, DRAWS, Propensity, Simulation, drawn_score};

/// Thompson sampling: for every slot, weights are drawn from the user's posterior, and the
/// remaining candidate with the highest score under them is shown (ties go to the earlier
/// candidate).
///
/// Linear posteriors as in Agrawal and Goyal, "Thompson sampling for contextual bandits with linear
/// payoffs" (ICML 2013), algorithm 1. `alpha` multiplies the posterior's standard deviations, as in
/// `MABWiser`'s `LinTS`: 1 uses the posterior as it is; their analysis inflates it, and Chapelle
/// and Li, "An empirical evaluation of Thompson sampling" (NIPS 2011), find that less than 1 often
/// earns more. One draw for all slots would make a ranking explore in a single direction; a draw
/// for each slot diversifies it.
///
/// The probability that a candidate is the best of several correlated Gaussians has no closed form,
/// so [`Policy::propensities`] returns `None`, and [`Policy::estimate_propensities`] simulates: see
/// [`crate::simulation`]. With `alpha` 0 the policy is deterministic and equal to [`Greedy`],
/// including its propensities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thompson {
    alpha: f64,
}

impl Thompson {
    /// The default width, as in `MABWiser`: the posterior itself.
    pub const DEFAULT_ALPHA: f64 = 1.0;

    /// The largest width: beyond it the score no longer matters.
    pub const ALPHA_MAX: f64 = 100.0;

    /// A policy that draws with `alpha` times the posterior's standard deviations.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless `alpha` is in `0..=100`.
    pub fn new(alpha: f64) -> Result<Self, BanditError> {
        if !(0.0..=Self::ALPHA_MAX).contains(&alpha) {
            return Err(BanditError::OutOfRange { parameter: "alpha", range: "from 0 to 100", value: alpha });
        }
        Ok(Self { alpha })
    }

    /// The width, in standard deviations of the posterior.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// [`Greedy`] if the width is 0.
    fn without_width(&self) -> Option<Greedy> {
        (self.alpha == 0.0).then_some(Greedy)
    }
}

impl Default for Thompson {
    fn default() -> Self {
        Self { alpha: Self::DEFAULT_ALPHA }
    }
}

impl Policy for Thompson {
    fn wants(&self) -> Wants {
        self.without_width().map_or(Wants::Features, |greedy| greedy.wants())
    }

    /// Takes O(dim^3) once, for the Cholesky factor, and O(n dim + dim^2) per slot.
    ///
    /// # Errors
    /// [`BanditError::Model`] if rounding has cost the posterior its definiteness,
    /// [`BanditError::NonFinite`] if the score of drawn weights overflows.
    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        if let Some(greedy) = self.without_width() {
            return greedy.choose(candidates, k, rng);
        }
        let n = candidates.len();
        let k = k.min(n);
        if k == 0 {
            return Ok(Vec::new());
        }
        let mut sampler = candidates.posterior.sampler(candidates.learning)?;
        let mut shown = vec![false; n];
        let mut ranking = Vec::with_capacity(k);
        for _ in 0..k {
            let weights = sampler.draw(|| self.alpha * rng.sample::<f64, _>(StandardNormal));
            let chosen = best_under(weights, candidates, &shown)?;
            shown[chosen] = true;
            ranking.push(chosen);
        }
        Ok(ranking)
    }

    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        self.without_width()?.propensities(candidates, ranking)
    }

    /// Takes O([`DRAWS`] n dim): some ten milliseconds for a thousand candidates.
    ///
    /// # Errors
    /// As [`Thompson::choose`].
    fn estimate_propensities(
        &self,
        candidates: &Candidates,
        ranking: &[usize],
        simulation: Simulation,
    ) -> Result<Vec<Propensity>, BanditError> {
        if let Some(greedy) = self.without_width() {
            return greedy.estimate_propensities(candidates, ranking, simulation);
        }
        candidates.check(self.wants())?;
        let mut sampler = candidates.posterior.sampler(candidates.learning)?;
        let mut rng = simulation.generator(ranking.len());
        let standard_normal = || self.alpha * rng.sample::<f64, _>(StandardNormal);
        let wins = simulation::wins(candidates, ranking, &mut sampler, standard_normal)?;
        Ok(simulation::propensities(candidates, ranking, &wins, simulation.origin))
    }

    /// All from one sample, in the time of a single [`Policy::estimate_propensities`].
    fn estimate_next_slot(
        &self,
        candidates: &Candidates,
        above: &[usize],
        simulation: Simulation,
    ) -> Result<Vec<f64>, BanditError> {
        if let Some(greedy) = self.without_width() {
            return greedy.estimate_next_slot(candidates, above, simulation);
        }
        candidates.check(self.wants())?;
        let mut sampler = candidates.posterior.sampler(candidates.learning)?;
        let mut rng = simulation.generator(above.len() + 1);
        let standard_normal = || self.alpha * rng.sample::<f64, _>(StandardNormal);
        let wins = simulation::wins_of_all(candidates, above, &mut sampler, standard_normal)?;
        Ok(wins.into_iter().map(|wins| wins as f64 / DRAWS as f64).collect())
    }
}

/// The candidate not yet shown with the highest score under these weights.
fn best_under(weights: &[f64], candidates: &Candidates, shown: &[bool]) -> Result<usize, BanditError> {
    let mut best = (0, f64::NEG_INFINITY);
    for (candidate, _) in shown.iter().enumerate().filter(|(_, shown)| !**shown) {
        let score = drawn_score(weights, candidates, candidate)?;
        if score > best.1 {
            best = (candidate, score);
        }
    }
    Ok(best.0)
}
