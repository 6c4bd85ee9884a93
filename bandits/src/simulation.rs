//! Propensities by simulation, for policies whose propensities have no closed form.
//!
//! A policy that shows the best candidate under weights drawn from the posterior fills a slot with
//! the probability that the candidate shown there is the best of those that remain. One sample of
//! weights serves all slots: all candidates are scored under each draw, and every slot counts the
//! draws in which its candidate wins. Scores are computed as in ranking (`drawn_score`), so that
//! ties and near ties are resolved in the same way. A simulation takes milliseconds, so it runs in
//! the background, and it can be repeated at any time: the sample depends only on the candidates
//! and the seed.

use celeris_model::Sampler;
use celeris_model::linear::dot;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::candidates::Candidates;
use crate::error::BanditError;

/// Weights drawn by a simulation: the standard error of a propensity is at most `0.5 / sqrt(1024) =
/// 0.016`.
pub const DRAWS: usize = 1024;

/// The stream of the seed's generator for the propensities of a log; rankings draw from stream 0.
const LOGGING_STREAM: u64 = 1;

/// The first of the streams for evaluations, one for each slot.
const EVALUATION_STREAMS: u64 = 1 << 32;

/// Origin of the ranking whose propensities are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Drawn by the policy itself. Its own draw counts as part of the sample, so no estimate is 0.
    Drawn,
    /// Drawn by the validation pool or another policy: only the sample counts.
    Given,
    /// As `Given`, and the estimate is divided by the propensities of that log: only the sample
    /// counts, and it is independent of the sample from which these were estimated. A ratio of two
    /// counts from one sample is biased.
    Evaluated,
}

/// Parameters of a simulation besides candidates and ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simulation {
    /// The seed of the decision. The simulation uses another stream of the same generator,
    /// independent of the one that drew the ranking.
    pub seed: u64,
    pub origin: Origin,
}

impl Simulation {
    /// The generator of the sample for a ranking with `slots` slots.
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
    /// Standard error of the estimate; 0 if exact.
    pub std_error: f64,
}

impl Propensity {
    /// A probability in closed form.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value, std_error: 0.0 }
    }

    /// The share `wins / draws`; for a ranking that the policy drew itself, `(wins + 1) / (draws +
    /// 1)`.
    ///
    /// With the realised draw included, the importance weight `1 / value` is nearly unbiased: for a
    /// binomial count `E[(draws + 1) / (wins + 1)] = (1 - (1 - p)^(draws + 1)) / p`, while `E[draws
    /// / wins]` does not exist. The standard error is the standard deviation of `p` given the
    /// count, under a uniform prior (`Beta(wins + 1, draws - wins + 1)`), and so above 0 even if
    /// every draw was won or none.
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

/// A candidate's score under drawn weights, computed identically to the bit wherever a draw is
/// scored.
///
/// # Errors
/// [`BanditError::NonFinite`] if features or weights are not finite.
pub(crate) fn drawn_score(weights: &[f64], candidates: &Candidates, candidate: usize) -> Result<f64, BanditError> {
    let dim = weights.len();
    let features = &candidates.features[candidate * dim..(candidate + 1) * dim];
    let score = f64::from(candidates.offsets[candidate]) + dot(weights, features);
    if score.is_finite() { Ok(score) } else { Err(BanditError::NonFinite { what: "drawn score", candidate }) }
}

/// The best of some candidates under one draw; ties go to the earlier candidate.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    candidate: usize,
}

impl Best {
    const NONE: Self = Self { score: f64::NEG_INFINITY, candidate: usize::MAX };

    /// Updates the best; returns whether this candidate is better.
    fn meet(&mut self, score: f64, candidate: usize) -> bool {
        let is_better = score > self.score || (score == self.score && candidate < self.candidate);
        if is_better {
            *self = Self { score, candidate };
        }
        is_better
    }
}

/// For each slot of `ranking`, how many of [`DRAWS`] weights make its candidate the best of those
/// not above it (ties go to the earlier candidate).
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
        // Start with the candidates that are not shown, then add the slots from the last one
        // upwards.
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

/// For each candidate, how many of [`DRAWS`] weights make it the best of those not in `above`.
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

/// Propensities of a ranking from each slot's wins among [`DRAWS`]. If all remaining candidates
/// have the same features and offset, or only one remains, the propensity is exact: the first of
/// them is shown.
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

/// The first remaining candidate, if all others have the same features and offset.
fn only_choice(candidates: &Candidates, remaining: &[bool]) -> Option<usize> {
    let dim = candidates.posterior.dim();
    let row = |candidate: usize| &candidates.features[candidate * dim..(candidate + 1) * dim];
    let mut left = (0..candidates.len()).filter(|candidate| remaining[*candidate]);
    let first = left.next()?;
    let same = |other: usize| candidates.offsets[other] == candidates.offsets[first] && row(other) == row(first);
    left.all(same).then_some(first)
}
