//! Probability matching: each slot goes to what a plausible user would like best.

use celeris_model::linear::dot;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::policy::Policy;

/// Thompson sampling: for every slot anew, weights are drawn from the user's posterior and the candidate among the
/// remaining ones that they score highest is shown (ties in the order of the candidates).
///
/// Linear posteriors as in Agrawal and Goyal, "Thompson sampling for contextual bandits with linear payoffs" (ICML
/// 2013), algorithm 1, with the variance of the posterior itself where their analysis inflates it, after Chapelle and
/// Li, "An empirical evaluation of Thompson sampling" (NIPS 2011). One draw for all slots would make a ranking explore
/// in a single direction; a draw for each lets the slots differ.
///
/// The probability that a candidate is the best of several correlated Gaussians has no closed form, so propensities
/// are not computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thompson;

impl Policy for Thompson {
    fn wants(&self) -> Wants {
        Wants::Features
    }

    /// Takes O(dim^3) once, for the Cholesky factor, and O(n dim + dim^2) per slot.
    ///
    /// # Errors
    /// [`BanditError::Model`] where rounding has cost the posterior its definiteness, [`BanditError::NonFinite`] where
    /// drawn weights and a candidate's features overflow.
    fn choose(&self, candidates: &Candidates, k: usize, rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        let n = candidates.len();
        let k = k.min(n);
        if k == 0 {
            return Ok(Vec::new());
        }
        let mut sampler = candidates.posterior.sampler(candidates.learning)?;
        let mut shown = vec![false; n];
        let mut ranking = Vec::with_capacity(k);
        for _ in 0..k {
            let chosen = best_under(sampler.draw(|| rng.sample(StandardNormal)), candidates, &shown)?;
            shown[chosen] = true;
            ranking.push(chosen);
        }
        Ok(ranking)
    }

    fn propensities(&self, _candidates: &Candidates, _ranking: &[usize]) -> Option<Vec<f64>> {
        None
    }
}

/// The candidate not yet shown that these weights score highest.
fn best_under(weights: &[f64], candidates: &Candidates, shown: &[bool]) -> Result<usize, BanditError> {
    let rows = candidates.features.chunks_exact(weights.len());
    let mut best = (0, f64::NEG_INFINITY);
    for (candidate, (offset, features)) in candidates.offsets.iter().zip(rows).enumerate() {
        if shown[candidate] {
            continue;
        }
        let score = f64::from(*offset) + dot(weights, features);
        if !score.is_finite() {
            return Err(BanditError::NonFinite { what: "drawn score", candidate });
        }
        if score > best.1 {
            best = (candidate, score);
        }
    }
    Ok(best.0)
}
