//! The trait of all strategies.

use celeris_model::{Estimate, LabelRange, Loss};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::selection::fixed::Fixed;
use crate::selection::state::{ArmSums, Faded};

/// Random numbers for a request, uniform in [0, 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lot {
    /// Different for every request.
    pub request: f64,
    /// Fixed for each user, so that a strategy that uses it keeps the user on one arm.
    pub user: f64,
}

impl Lot {
    /// A lot with a random `request`.
    #[must_use]
    pub fn drawn(rng: &mut ChaCha8Rng, user: f64) -> Self {
        Self { request: rng.random(), user }
    }
}

/// The arm or arms that answer a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Selected {
    One {
        arm: usize,
        /// The probability with which it was drawn.
        propensity: f64,
    },
    /// All arms together, with these weights, whose sum is 1.
    All(Vec<f64>),
}

/// The meaning of scores and labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Labels {
    /// The loss of the models, which defines the expected label of a score.
    pub loss: Loss,
    pub range: LabelRange,
}

/// The combined answer of several arms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Combined {
    pub estimate: Estimate,
    /// The share of the arms that agree with it (Clipper §5.2.1).
    pub confidence: f32,
}

/// The result of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome<'a> {
    /// One arm answered, and only its loss is known.
    Served {
        arm: usize,
        /// The probability with which it was drawn, above 0.
        propensity: f64,
        /// Its loss, from 0 to 1.
        loss: f64,
    },
    /// Loss of every arm. `None` for an arm without a prediction, which is charged the mean of the
    /// others; with fewer than two predictions the outcome is ignored.
    Every(&'a [Option<f64>]),
}

/// The outcomes that a strategy learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learns {
    /// Outcomes of the served arm, weighted by the inverse of its propensity.
    FromServed,
    /// Outcomes with the loss of every arm.
    FromEvery,
}

/// A rule that selects among arms by their past losses (Clipper, listing 3.2).
///
/// A strategy is a pure function: the caller keeps its state, the sums returned by
/// [`Strategy::observe`].
pub trait Strategy {
    /// The outcomes that it learns from.
    fn learns(&self) -> Learns;

    /// The probability of each arm, or its weight if all answer; their sum is 1.
    fn weights(&self, faded: &Faded) -> Vec<f64>;

    /// Chooses the arm or arms that answer.
    fn select(&self, faded: &Faded, lot: Lot) -> Selected {
        let weights = self.weights(faded);
        let (arm, propensity) = draw(&weights, lot.request);
        Selected::One { arm, propensity }
    }

    /// The maximum difference of an arm to the answer at which it agrees, as a share of the range
    /// of labels.
    fn tolerance(&self) -> f64 {
        0.0
    }

    /// Combines the answers of the arms, with `weights` and `estimates` in their order.
    ///
    /// The uncertainty is the mean of the arms' uncertainties, as for fully correlated errors,
    /// since the models learn from one log.
    fn combine(&self, weights: &[f64], estimates: &[Estimate], labels: Labels) -> Combined {
        let mean = |part: fn(&Estimate) -> f32| {
            let sum: f64 =
                weights.iter().zip(estimates).map(|(weight, estimate)| weight * f64::from(part(estimate))).sum();
            sum as f32
        };
        let estimate = Estimate {
            score: mean(|estimate| estimate.score),
            std_error: mean(|estimate| estimate.std_error),
            label_std: mean(|estimate| estimate.label_std),
        };
        let expected = |estimate: &Estimate| f64::from(labels.loss.expected_label(estimate.score));
        let reach = self.tolerance() * labels.range.width();
        let agrees = |other: &&Estimate| (expected(other) - expected(&estimate)).abs() <= reach;
        let agreeing = estimates.iter().filter(agrees).count();
        Combined { estimate, confidence: agreeing as f32 / estimates.len().max(1) as f32 }
    }

    /// The sums that an outcome adds to each arm; empty if the strategy does not learn from such
    /// outcomes.
    fn observe(&self, outcome: Outcome<'_>) -> Vec<(usize, ArmSums)> {
        match (self.learns(), outcome) {
            (Learns::FromServed, Outcome::Served { arm, propensity, loss }) => {
                vec![(
                    arm,
                    ArmSums { outcomes: 1, loss: Fixed::nearest(loss), estimated: Fixed::nearest(loss / propensity) },
                )]
            }
            (Learns::FromEvery, Outcome::Every(losses)) => every(losses),
            _ => Vec::new(),
        }
    }
}

fn every(losses: &[Option<f64>]) -> Vec<(usize, ArmSums)> {
    let known: Vec<f64> = losses.iter().copied().flatten().collect();
    // A single loss compares nothing.
    if known.len() < 2 {
        return Vec::new();
    }
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let sums = |loss: &Option<f64>| match loss {
        Some(loss) => ArmSums { outcomes: 1, loss: Fixed::nearest(*loss), estimated: Fixed::nearest(*loss) },
        None => ArmSums { estimated: Fixed::nearest(mean), ..ArmSums::default() },
    };
    losses.iter().map(sums).enumerate().collect()
}

/// The arm at which the cumulative probability exceeds `lot`.
pub(crate) fn draw(probabilities: &[f64], lot: f64) -> (usize, f64) {
    let mut passed = 0.0;
    for (arm, probability) in probabilities.iter().enumerate() {
        passed += probability;
        if lot < passed {
            return (arm, *probability);
        }
    }
    // Rounding may leave the sum a little below 1.
    let last = probabilities.iter().rposition(|probability| *probability > 0.0).unwrap_or_default();
    (last, probabilities.get(last).copied().unwrap_or_default())
}

/// Mixes the probabilities with a uniform share, so that every arm has a positive probability.
pub(crate) fn with_floor(probabilities: impl Iterator<Item = f64>, share: f64, arms: usize) -> Vec<f64> {
    probabilities.map(|probability| (1.0 - share) * probability + share / arms as f64).collect()
}

/// Weights that fall by a factor of `e` with every `1 / rate` of loss, relative to the lowest loss
/// to avoid overflow.
pub(crate) fn exponential(losses: &[f64], rate: f64) -> Vec<f64> {
    let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let weights: Vec<f64> = losses.iter().map(|loss| (-rate * (loss - least)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}
