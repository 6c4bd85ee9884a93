//! Propensities by simulation, for policies whose propensities have no closed form.
//!
//! A policy that shows the best candidate under weights drawn from the posterior fills a slot with the probability that
//! the candidate shown there is the best of those that remain. One sample of weights serves all slots: all candidates
//! are scored under each draw (one matrix product, in blocks), and every slot counts the draws in which its candidate
//! wins. It takes milliseconds, so it is done off the way of the reply, and again at any time: the sample depends on
//! nothing but the candidates and the seed.

use celeris_model::Sampler;

use crate::candidates::Candidates;
use crate::error::BanditError;

/// How many weights a simulation draws: the standard error of a propensity is at most `0.5 / sqrt(1024) = 0.016`.
pub const DRAWS: usize = 1024;

/// Draws that are scored together: as many as keep a few vector registers busy, and fewer than spill them.
const LANES: usize = 16;

const _: () = assert!(DRAWS.is_multiple_of(LANES), "draws come in whole blocks");

/// Whose ranking it is that propensities are estimated of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The policy drew it. Its own draw counts as one of the sample, so no estimate is 0.
    Drawn,
    /// Somebody else did, the validation pool or another policy: the sample alone counts.
    Given,
}

/// What a simulation depends on beside candidates and ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simulation {
    /// The seed of the decision. The simulation takes another stream of the same generator, independent of the one that
    /// drew the ranking.
    pub seed: u64,
    /// Whose ranking it is.
    pub origin: Origin,
}

/// The probability with which a slot got its candidate, given the slots above it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Propensity {
    /// The probability, or its estimate.
    pub value: f64,
    /// How far the estimate may be from it: one standard error; 0 where it is exact.
    pub std_error: f64,
}

impl Propensity {
    /// A probability by its closed form.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value, std_error: 0.0 }
    }

    /// The share `wins / draws`; of a ranking that the policy drew itself, `(wins + 1) / (draws + 1)`.
    ///
    /// With the draw that was realised among them, the importance weight `1 / value` is nearly unbiased: for a
    /// binomial count `E[(draws + 1) / (wins + 1)] = (1 - (1 - p)^(draws + 1)) / p`, while `E[draws / wins]` does not
    /// even exist. The standard error is the standard deviation of `p` given the count, under a uniform prior
    /// (`Beta(wins + 1, draws - wins + 1)`), and so above 0 even where every draw was won or none.
    fn of_draws(wins: usize, draws: usize, origin: Origin) -> Self {
        let (wins, draws) = (wins as f64, draws as f64);
        let value = match origin {
            Origin::Drawn => (wins + 1.0) / (draws + 1.0),
            Origin::Given => wins / draws,
        };
        let mean = (wins + 1.0) / (draws + 2.0);
        Self { value, std_error: (mean * (1.0 - mean) / (draws + 3.0)).sqrt() }
    }
}

/// For each slot of `ranking` how many of [`DRAWS`] weights make its candidate the best of those not above it (ties in
/// the order of the candidates).
///
/// Takes O([`DRAWS`] n dim) time and O(n + k + dim) memory.
///
/// # Errors
/// [`BanditError::NonFinite`] where drawn weights and a candidate's features overflow.
pub(crate) fn wins(
    candidates: &Candidates,
    ranking: &[usize],
    sampler: &mut Sampler,
    mut standard_normal: impl FnMut() -> f64,
) -> Result<Vec<usize>, BanditError> {
    let mut block = Block::new(candidates, ranking);
    let mut weights = vec![[0.0_f32; LANES]; candidates.posterior.dim()];
    let mut wins = vec![0; ranking.len()];
    for _ in 0..DRAWS / LANES {
        for lane in 0..LANES {
            for (entry, weight) in weights.iter_mut().zip(sampler.draw(&mut standard_normal)) {
                entry[lane] = *weight as f32;
            }
        }
        block.play(&weights, &mut wins)?;
    }
    Ok(wins)
}

/// What so many wins of each slot among [`DRAWS`] say of a ranking of `n` candidates.
pub(crate) fn propensities(wins: &[usize], n: usize, origin: Origin) -> Vec<Propensity> {
    let propensity = |(slot, wins): (usize, &usize)| {
        // Whoever is left alone is shown.
        let alone = slot + 1 == n;
        if alone { Propensity::exact(1.0) } else { Propensity::of_draws(*wins, DRAWS, origin) }
    };
    wins.iter().enumerate().map(propensity).collect()
}

/// One block of draws, scored and counted.
struct Block<'a> {
    candidates: &'a Candidates<'a>,
    ranking: &'a [usize],
    /// Length `n`: the slot of each candidate that is shown.
    slots: Vec<Option<usize>>,
    /// Length `k`: the scores of the candidate of each slot.
    shown: Vec<[f32; LANES]>,
}

impl<'a> Block<'a> {
    fn new(candidates: &'a Candidates<'a>, ranking: &'a [usize]) -> Self {
        let mut slots = vec![None; candidates.len()];
        for (slot, candidate) in ranking.iter().enumerate() {
            slots[*candidate] = Some(slot);
        }
        Self { candidates, ranking, slots, shown: vec![[0.0; LANES]; ranking.len()] }
    }

    /// Adds to `wins` the draws that each slot wins. `weights` has length `dim`, each entry one number of every draw.
    fn play(&mut self, weights: &[[f32; LANES]], wins: &mut [usize]) -> Result<(), BanditError> {
        // The best of what is not shown, and then, from the last slot up, of what is not above the slot.
        let mut best = [f32::NEG_INFINITY; LANES];
        let mut best_candidate = [usize::MAX; LANES];
        let rows = self.candidates.features.chunks_exact(weights.len());
        for (candidate, (offset, features)) in self.candidates.offsets.iter().zip(rows).enumerate() {
            let scores = score(*offset, features, weights);
            if !scores.iter().all(|score| score.is_finite()) {
                return Err(BanditError::NonFinite { what: "drawn score", candidate });
            }
            if let Some(slot) = self.slots[candidate] {
                self.shown[slot] = scores;
                continue;
            }
            for lane in 0..LANES {
                if scores[lane] > best[lane] {
                    (best[lane], best_candidate[lane]) = (scores[lane], candidate);
                }
            }
        }
        for (slot, candidate) in self.ranking.iter().enumerate().rev() {
            for lane in 0..LANES {
                let score = self.shown[slot][lane];
                let best_of_rest = score > best[lane] || (score == best[lane] && *candidate < best_candidate[lane]);
                if best_of_rest {
                    wins[slot] += 1;
                    (best[lane], best_candidate[lane]) = (score, *candidate);
                }
            }
        }
        Ok(())
    }
}

/// One candidate's score under each draw of a block.
fn score(offset: f32, features: &[f32], weights: &[[f32; LANES]]) -> [f32; LANES] {
    let mut scores = [offset; LANES];
    for (feature, entry) in features.iter().zip(weights) {
        for lane in 0..LANES {
            scores[lane] += feature * entry[lane];
        }
    }
    scores
}
