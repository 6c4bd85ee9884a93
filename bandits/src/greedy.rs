//! Best score first, without exploration.

use rand_chacha::ChaCha8Rng;

use crate::candidates::{Candidates, Wants};
use crate::error::BanditError;
use crate::order::{shows_best, top_k};
use crate::policy::Policy;

/// Ranks by score; ties go to the earlier candidate. Deterministic, so every slot has propensity 1.
///
/// It only gets feedback on items that it already scores high: use it where repeatability matters
/// more than learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greedy;

impl Policy for Greedy {
    fn wants(&self) -> Wants {
        Wants::Scores
    }

    fn choose(&self, candidates: &Candidates, k: usize, _rng: &mut ChaCha8Rng) -> Result<Vec<usize>, BanditError> {
        Ok(top_k(candidates.len(), k, |candidate| candidates.score(candidate)))
    }

    fn propensities(&self, candidates: &Candidates, ranking: &[usize]) -> Option<Vec<f64>> {
        let best = shows_best(candidates.len(), ranking, |candidate| candidates.score(candidate));
        Some(best.map(f64::from).collect())
    }
}
