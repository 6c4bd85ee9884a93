//! Draws a ranking from its candidates, for a request and for its replay alike.

use celeris_bandits::{Candidates, PolicySpec, PoolShare, Pooled, Ranking, Slot};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::PredictorError;

/// Seeds drawn by the server have at most this many bits, so that clients can read them as JSON
/// doubles.
const SEED_BITS: u32 = 53;

/// The seed of a ranking, and whether the caller supplied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) value: u64,
    /// Whether the caller supplied it, so that nothing drawn from it counts as random.
    pub(crate) given: bool,
}

impl Seed {
    /// The caller's seed, or a random one.
    pub(crate) fn of(given: Option<u64>) -> Self {
        let random = || rand::random::<u64>() >> (u64::BITS - SEED_BITS);
        Self { value: given.unwrap_or_else(random), given: given.is_some() }
    }
}

/// Everything but the candidates that a drawn ranking depends on.
#[derive(Clone, Copy)]
pub(crate) struct Draw<'a> {
    pub(crate) policy: &'a PolicySpec,
    /// The share of rankings drawn by the validation pool; `None` if the request named the policy.
    pub(crate) pool_share: Option<PoolShare>,
    /// Slots to fill.
    pub(crate) k: usize,
    pub(crate) seed: Seed,
}

impl Draw<'_> {
    /// Whether the pool draws the ranking, if that must be known before there are candidates. Uses
    /// the same first draw of the seed as [`Draw::draw`].
    pub(crate) fn is_of_pool(&self) -> bool {
        let coin: f64 = ChaCha8Rng::seed_from_u64(self.seed.value).random();
        self.pool_share.is_some_and(|share| coin < share.into())
    }

    pub(crate) fn draw(&self, candidates: &Candidates) -> Result<Ranking, PredictorError> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed.value);
        let policy = self.policy.policy();
        Ok(match self.pool_share {
            Some(share) => Pooled { share, policy }.draw(candidates, self.k, &mut rng)?,
            None => Ranking { slots: policy.rank(candidates, self.k, &mut rng)?, pool: false },
        })
    }
}

/// For each slot, whether greedy would show its item in no slot: at least as many candidates as
/// there are slots score higher.
pub(crate) fn explored(scores: &[f32], slots: &[Slot]) -> Vec<bool> {
    let k = slots.len();
    let shown = slots.iter().map(|slot| scores[slot.candidate]);
    let Some(lowest) = shown.clone().min_by(f32::total_cmp) else { return Vec::new() };
    // Most rankings explore nothing, which one pass detects.
    if scores.iter().filter(|score| **score > lowest).count() < k {
        return vec![false; k];
    }
    let mut by_score = scores.to_vec();
    let (_, kth, _) = by_score.select_nth_unstable_by(k - 1, |left, right| right.total_cmp(left));
    shown.map(|score| score < *kth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_explores_if_greedy_would_not_show_its_item() {
        let slots = |candidates: &[usize]| -> Vec<Slot> {
            candidates.iter().map(|candidate| Slot { candidate: *candidate, propensity: None }).collect()
        };
        let scores = [5.0, 1.0, 4.0, 3.0, 4.0];
        assert_eq!(explored(&scores, &slots(&[4, 0])), [false, false], "order does not count, and ties are as good");
        assert_eq!(explored(&scores, &slots(&[3, 0])), [true, false]);
        assert_eq!(explored(&scores, &slots(&[1, 3])), [true, true]);
        assert_eq!(explored(&scores, &slots(&[1, 0, 2, 3, 4])), [false; 5], "showing all candidates explores nothing");
        assert_eq!(explored(&scores, &[]), Vec::<bool>::new());
    }
}
