//! The bandit problems, generated so that the peers generate identical numbers.

use celeris_model::linear::dot;
use serde::Serialize;

/// A linear bandit problem. It is written as JSON for the peers, whose `problem.py` generates the
/// same numbers.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// The length of feature and weight vectors; the last entry is the constant 1.
    pub dim: usize,
    pub arms: usize,
    pub rounds: usize,
    /// True weights are uniform in `-scale..scale`, except that of the constant.
    pub scale: f64,
    /// The true weight of the constant.
    pub constant: f64,
    /// The standard deviation of a reward around its mean.
    pub noise: f64,
    /// Rounds after which the cumulative regret is recorded, ascending; the last is `rounds`.
    pub checkpoints: Vec<usize>,
    pub seeds: Vec<u64>,
}

/// Independent random streams, so that no stream depends on how many numbers another has drawn.
#[derive(Clone, Copy)]
enum Stream {
    Theta,
    Context,
    Noise,
}

/// The output function of `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014), which is short in every language.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The numbers of a stream from `start` on: multiples of 2^-24 in `0..1`, which are exact in every
/// language, so ours equal the peers' numbers.
fn uniform(seed: u64, stream: Stream, start: usize) -> impl Iterator<Item = f64> {
    let key = mix(seed.wrapping_mul(4).wrapping_add(stream as u64));
    let number = move |index: u64| mix(key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 40;
    (start as u64 + 1..).map(move |index| number(index) as f64 / f64::from(1 << 24))
}

impl Problem {
    /// `count` rows of true weights, row-major.
    pub fn weights(&self, seed: u64, count: usize) -> Vec<f64> {
        let mut numbers = uniform(seed, Stream::Theta, 0);
        let mut weights = Vec::with_capacity(count * self.dim);
        for _ in 0..count {
            weights.extend(numbers.by_ref().take(self.dim - 1).map(|number| self.scale * (2.0 * number - 1.0)));
            weights.push(self.constant);
        }
        weights
    }

    /// Overwrites `rows`, row-major, with the features of this turn, counted from 0.
    pub fn contexts(&self, seed: u64, turn: usize, rows: &mut [f32]) {
        let count = rows.len() / self.dim;
        let mut numbers = uniform(seed, Stream::Context, turn * count * (self.dim - 1));
        for row in rows.chunks_exact_mut(self.dim) {
            for feature in &mut row[..self.dim - 1] {
                *feature = (2.0 * numbers.next().unwrap_or(0.0) - 1.0) as f32;
            }
            row[self.dim - 1] = 1.0;
        }
    }

    /// The noise of this turn's reward, the same for all arms: twelve uniform numbers minus their
    /// mean, which is approximately normal.
    pub fn noise(&self, seed: u64, turn: usize) -> f64 {
        let sum: f64 = uniform(seed, Stream::Noise, 12 * turn).take(12).sum();
        self.noise * (sum - 6.0)
    }
}

/// The cumulative regret of one run at each checkpoint: the sum of the best arm's mean reward minus
/// that of the shown arm.
pub struct Regret<'a> {
    checkpoints: &'a [usize],
    turn: usize,
    sum: f64,
    curve: Vec<f64>,
}

impl<'a> Regret<'a> {
    pub fn new(checkpoints: &'a [usize]) -> Self {
        Self { checkpoints, turn: 0, sum: 0.0, curve: Vec::with_capacity(checkpoints.len()) }
    }

    /// Adds the next turn, which showed `arm`; `means` are the mean rewards of all arms.
    pub fn add(&mut self, means: &[f64], arm: usize) {
        let best = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.sum += best - means[arm];
        self.turn += 1;
        if self.checkpoints.get(self.curve.len()) == Some(&self.turn) {
            self.curve.push(self.sum);
        }
    }

    pub fn curve(self) -> Vec<f64> {
        self.curve
    }
}

/// The mean reward of `features` under true weights.
pub fn mean(weights: &[f64], features: &[f32]) -> f64 {
    dot(weights, features)
}
