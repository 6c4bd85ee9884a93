//! The one trait behind which every strategy stands.

use celeris_model::{Estimate, Loss};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::selection::fixed::Fixed;
use crate::selection::loss::LabelRange;
use crate::selection::state::{ArmSums, Faded};

/// What is drawn for a request, both uniformly from 0 up to, without, 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lot {
    /// Anew for every request.
    pub request: f64,
    /// Once for every user: whoever draws by it stays with the same arm.
    pub user: f64,
}

impl Lot {
    /// A lot whose request's part is drawn.
    #[must_use]
    pub fn drawn(rng: &mut ChaCha8Rng, user: f64) -> Self {
        Self { request: rng.random(), user }
    }
}

/// Who answers a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Selected {
    /// One arm.
    One {
        /// Its index.
        arm: usize,
        /// The probability with which it was drawn.
        propensity: f64,
    },
    /// All of them together, with these weights, whose sum is 1.
    All(Vec<f64>),
}

/// What scores mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Labels {
    /// The loss of the models, which tells what label a score expects.
    pub loss: Loss,
    /// The labels there are.
    pub range: LabelRange,
}

/// One answer made of those of several arms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Combined {
    /// The combined score and its uncertainty.
    pub estimate: Estimate,
    /// The share of the arms that agree with it (Clipper §5.2.1).
    pub confidence: f32,
}

/// What came of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome<'a> {
    /// One arm answered, and only its loss is known.
    Served {
        /// The arm.
        arm: usize,
        /// The probability with which it had been drawn, above 0.
        propensity: f64,
        /// Its loss, from 0 to 1.
        loss: f64,
    },
    /// Every arm had predicted. `None` is one that had not, which is charged the mean of the others; where fewer than two
    /// had, the outcome says nothing.
    Every(&'a [Option<f64>]),
}

/// What a strategy learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learns {
    /// Outcomes of the arm that was served, weighted by how improbable that was.
    FromServed,
    /// Outcomes of which every arm's loss is known.
    FromEvery,
}

/// A rule that selects among arms by the losses that they have had (Clipper, listing 3.2).
///
/// A strategy is a pure function: its state is the sums that [`Strategy::observe`] says to add, and the caller keeps them.
pub trait Strategy {
    /// What it learns from.
    fn learns(&self) -> Learns;

    /// The probability of each arm, or its weight where all answer; their sum is 1.
    fn weights(&self, faded: &Faded) -> Vec<f64>;

    /// Who answers.
    fn select(&self, faded: &Faded, lot: Lot) -> Selected {
        let weights = self.weights(faded);
        let (arm, propensity) = draw(&weights, lot.request);
        Selected::One { arm, propensity }
    }

    /// By how much of the range of labels an arm may differ from the answer and agree with it.
    fn tolerance(&self) -> f64 {
        0.0
    }

    /// One answer of those of the arms, `weights` and `estimates` in their order.
    ///
    /// The uncertainty is the mean of the arms', as if they erred together, which models that learn from one log do.
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

    /// What an outcome adds to the sums of which arms; nothing where the strategy does not learn from such outcomes.
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
    // One loss alone compares nothing.
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

/// The arm at which the sum of probabilities passes `lot`.
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

/// So much of every probability is drawn uniformly, so that no arm is without a chance.
pub(crate) fn with_floor(probabilities: impl Iterator<Item = f64>, share: f64, arms: usize) -> Vec<f64> {
    probabilities.map(|probability| (1.0 - share) * probability + share / arms as f64).collect()
}

/// Weights that fall by `e` with every `1 / rate` of loss: the least loss first, so that none overflows.
pub(crate) fn exponential(losses: &[f64], rate: f64) -> Vec<f64> {
    let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let weights: Vec<f64> = losses.iter().map(|loss| (-rate * (loss - least)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}
