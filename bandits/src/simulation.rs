//! Propensities by simulation, for policies whose propensities have no closed form.
//!
//! A policy that shows the best candidate under weights drawn from the posterior fills a slot with the probability that
//! the candidate shown there is the best of those that remain. One sample of weights serves all slots: all candidates
//! are scored under each draw, and every slot counts the draws in which its candidate wins. A draw scores here as it does
//! where rankings are drawn (`drawn_score`), so that what ties, or nearly does, falls the same way in both. It takes
//! milliseconds, so it is done off the way of the reply, and again at any time: the sample depends on nothing but the
//! candidates and the seed.

use celeris_model::Sampler;
use celeris_model::linear::dot;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::candidates::Candidates;
use crate::error::BanditError;

/// How many weights a simulation draws: the standard error of a propensity is at most `0.5 / sqrt(1024) = 0.016`.
pub const DRAWS: usize = 1024;

/// The stream of the seed's generator that the propensities of a log are sampled from; rankings draw from stream 0.
const LOGGING_STREAM: u64 = 1;

/// The first of the streams that evaluations sample from, one for each slot.
const EVALUATION_STREAMS: u64 = 1 << 32;

/// Whose ranking it is that propensities are estimated of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The policy drew it. Its own draw counts as one of the sample, so no estimate is 0.
    Drawn,
    /// Somebody else did, the validation pool or another policy: the sample alone counts.
    Given,
    /// Somebody else did, and the estimate is divided by the propensities of that log: the sample alone counts, and it is
    /// independent of the one that these were estimated from. A ratio of two counts of one sample is biased.
    Evaluated,
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

impl Simulation {
    /// The generator that the sample for a ranking of so many slots is drawn from.
    pub(crate) fn generator(self, slots: usize) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(match self.origin {
            Origin::Drawn | Origin::Given => LOGGING_STREAM,
            Origin::Evaluated => EVALUATION_STREAMS + slots as u64,
        });
        rng
    }
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
            Origin::Given | Origin::Evaluated => wins / draws,
        };
        let mean = (wins + 1.0) / (draws + 2.0);
        Self { value, std_error: (mean * (1.0 - mean) / (draws + 3.0)).sqrt() }
    }
}

/// A candidate's score under drawn weights: the same number to the bit wherever a draw is scored.
///
/// # Errors
/// [`BanditError::NonFinite`] where features or weights are no finite numbers.
pub(crate) fn drawn_score(weights: &[f64], candidates: &Candidates, candidate: usize) -> Result<f64, BanditError> {
    let dim = weights.len();
    let features = &candidates.features[candidate * dim..(candidate + 1) * dim];
    let score = f64::from(candidates.offsets[candidate]) + dot(weights, features);
    if score.is_finite() { Ok(score) } else { Err(BanditError::NonFinite { what: "drawn score", candidate }) }
}

/// The best of some candidates under one draw, ties in the order of the candidates.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    candidate: usize,
}

impl Best {
    const NONE: Self = Self { score: f64::NEG_INFINITY, candidate: usize::MAX };

    /// Whether this candidate is better, which makes it the best.
    fn meet(&mut self, score: f64, candidate: usize) -> bool {
        let is_better = score > self.score || (score == self.score && candidate < self.candidate);
        if is_better {
            *self = Self { score, candidate };
        }
        is_better
    }
}

/// For each slot of `ranking` how many of [`DRAWS`] weights make its candidate the best of those not above it (ties in
/// the order of the candidates).
///
/// Takes O([`DRAWS`] n dim) time and O(n + k + dim) memory.
///
/// # Errors
/// As [`drawn_score`].
pub(crate) fn wins(
    candidates: &Candidates,
    ranking: &[usize],
    sampler: &mut Sampler,
    mut standard_normal: impl FnMut() -> f64,
) -> Result<Vec<usize>, BanditError> {
    let mut slots = vec![None; candidates.len()];
    ranking.iter().enumerate().for_each(|(slot, candidate)| slots[*candidate] = Some(slot));
    let mut shown = vec![0.0; ranking.len()];
    let mut wins = vec![0; ranking.len()];
    for _ in 0..DRAWS {
        let weights = sampler.draw(&mut standard_normal);
        // The best of what is not shown, and then, from the last slot up, of what is not above the slot.
        let mut best = Best::NONE;
        for (candidate, slot) in slots.iter().enumerate() {
            let score = drawn_score(weights, candidates, candidate)?;
            match slot {
                Some(slot) => shown[*slot] = score,
                None => drop(best.meet(score, candidate)),
            }
        }
        for (slot, candidate) in ranking.iter().enumerate().rev() {
            wins[slot] += usize::from(best.meet(shown[slot], *candidate));
        }
    }
    Ok(wins)
}

/// For each candidate how many of [`DRAWS`] weights make it the best of those that are not `above`.
///
/// # Errors
/// As [`drawn_score`].
pub(crate) fn wins_of_all(
    candidates: &Candidates,
    above: &[usize],
    sampler: &mut Sampler,
    mut standard_normal: impl FnMut() -> f64,
) -> Result<Vec<usize>, BanditError> {
    let mut wins = vec![0; candidates.len()];
    let remaining: Vec<usize> = (0..candidates.len()).filter(|candidate| !above.contains(candidate)).collect();
    for _ in 0..DRAWS {
        let weights = sampler.draw(&mut standard_normal);
        let mut best = Best::NONE;
        for candidate in &remaining {
            best.meet(drawn_score(weights, candidates, *candidate)?, *candidate);
        }
        if let Some(count) = wins.get_mut(best.candidate) {
            *count += 1;
        }
    }
    Ok(wins)
}

/// What so many wins of each slot among [`DRAWS`] say of a ranking. Where all that remain for a slot are one and the same
/// to every draw, the last candidate alone among them, it is exact: the first of them is shown.
pub(crate) fn propensities(
    candidates: &Candidates,
    ranking: &[usize],
    wins: &[usize],
    origin: Origin,
) -> Vec<Propensity> {
    let mut remaining = vec![true; candidates.len()];
    let mut propensities = Vec::with_capacity(ranking.len());
    for (candidate, wins) in ranking.iter().zip(wins) {
        propensities.push(match only_choice(candidates, &remaining) {
            Some(only) => Propensity::exact(f64::from(u8::from(only == *candidate))),
            None => Propensity::of_draws(*wins, DRAWS, origin),
        });
        remaining[*candidate] = false;
    }
    propensities
}

/// The first of the remaining candidates, where no draw tells the others from it.
fn only_choice(candidates: &Candidates, remaining: &[bool]) -> Option<usize> {
    let dim = candidates.posterior.dim();
    let row = |candidate: usize| &candidates.features[candidate * dim..(candidate + 1) * dim];
    let mut left = (0..candidates.len()).filter(|candidate| remaining[*candidate]);
    let first = left.next()?;
    let same = |other: usize| candidates.offsets[other] == candidates.offsets[first] && row(other) == row(first);
    left.all(same).then_some(first)
}
