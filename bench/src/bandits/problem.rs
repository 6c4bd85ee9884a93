//! The problems, drawn so that the peers draw the same numbers.

use celeris_model::linear::dot;
use serde::Serialize;

/// What a linear bandit is made of. Written as JSON for the peers, whose `problem.py` draws the same.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// The length of features and weights, of which the last belongs to the constant 1.
    pub dim: usize,
    pub arms: usize,
    pub rounds: usize,
    /// True weights are uniform within this of 0, but for that of the constant.
    pub scale: f64,
    /// The true weight of the constant.
    pub constant: f64,
    /// The standard deviation of a reward around its mean.
    pub noise: f64,
    /// Rounds after which the regret so far is noted, ascending; the last is `rounds`.
    pub checkpoints: Vec<usize>,
    pub seeds: Vec<u64>,
}

/// What numbers are drawn for. Each is a stream of its own, so that none depends on how many another takes.
#[derive(Clone, Copy)]
enum Stream {
    Theta,
    Context,
    Noise,
}

/// The output function of `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014): a dozen lines in every language.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The numbers of a stream from `start` on: multiples of 2^-24 in `0..1`, so that no rounding tells them apart from the
/// peers'.
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

    /// Overwrites `rows`, row-major, with the features of this turn (from 0).
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

    /// How far this turn's reward is from its mean, whatever the arm: twelve uniform numbers less their mean are as good
    /// as normal.
    pub fn noise(&self, seed: u64, turn: usize) -> f64 {
        let sum: f64 = uniform(seed, Stream::Noise, 12 * turn).take(12).sum();
        self.noise * (sum - 6.0)
    }
}

/// The regret of one run: what the best arm would have brought more, in the mean, summed up to each checkpoint.
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

    /// The next turn showed `arm`, of these expected rewards.
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

/// The expected reward of features under true weights.
pub fn mean(weights: &[f64], features: &[f32]) -> f64 {
    dot(weights, features)
}
