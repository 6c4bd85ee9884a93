//! How a ranking is drawn from its candidates: the same way when it is asked for and when it is replayed.

use celeris_bandits::{Candidates, PolicySpec, PoolShare, Pooled, Ranking, Slot};
use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::PredictorError;

/// Seeds that the server draws stay below this, so that they survive a client that reads JSON numbers as doubles.
const SEED_BITS: u32 = 53;

/// The seed of a ranking, and whose choice it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) value: u64,
    /// Whether the caller chose it, so that nothing that it draws is random.
    pub(crate) given: bool,
}

impl Seed {
    /// The caller's, or one that is drawn here.
    pub(crate) fn of(given: Option<u64>) -> Self {
        let drawn = || rand::random::<u64>() >> (u64::BITS - SEED_BITS);
        Self { value: given.unwrap_or_else(drawn), given: given.is_some() }
    }
}

/// Everything but the candidates that a drawn ranking depends on.
#[derive(Clone, Copy)]
pub(crate) struct Draw<'a> {
    pub(crate) policy: &'a PolicySpec,
    /// The share of rankings that the validation pool draws; `None` where the policy was named and ranks as it is.
    pub(crate) pool_share: Option<PoolShare>,
    /// Slots to fill.
    pub(crate) k: usize,
    pub(crate) seed: Seed,
}

impl Draw<'_> {
    /// Whether the pool draws, where that has to be known before there are candidates. The seed tosses the coin, as it
    /// does when the ranking is drawn.
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

/// Whether each slot shows what greedy would have shown in none: at least as many candidates as there are slots score
/// higher.
pub(crate) fn explored(scores: &[f32], slots: &[Slot]) -> Vec<bool> {
    let k = slots.len();
    let shown = slots.iter().map(|slot| scores[slot.candidate]);
    let Some(lowest) = shown.clone().min_by(f32::total_cmp) else { return Vec::new() };
    // Most rankings explore nothing, and one pass tells.
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
    fn a_slot_explores_where_greedy_has_no_place_for_its_item() {
        let slots = |candidates: &[usize]| -> Vec<Slot> {
            candidates.iter().map(|candidate| Slot { candidate: *candidate, propensity: None }).collect()
        };
        let scores = [5.0, 1.0, 4.0, 3.0, 4.0];
        assert_eq!(explored(&scores, &slots(&[4, 0])), [false, false], "order does not count, and ties are as good");
        assert_eq!(explored(&scores, &slots(&[3, 0])), [true, false]);
        assert_eq!(explored(&scores, &slots(&[1, 3])), [true, true]);
        assert_eq!(explored(&scores, &slots(&[1, 0, 2, 3, 4])), [false; 5], "who shows everything leaves nothing out");
        assert_eq!(explored(&scores, &[]), Vec::<bool>::new());
    }
}
