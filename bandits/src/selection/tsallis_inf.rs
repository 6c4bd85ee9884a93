//! Chooses one arm at the optimal rate for both stochastic and adversarial losses.

use serde::{Deserialize, Serialize};

use crate::error::BanditError;
use crate::selection::exp3::{FLOOR_DEFAULT, check_floor};
use crate::selection::state::Faded;
use crate::selection::strategy::{Learns, Strategy, with_floor};

/// Tsallis-INF: mirror descent with the Tsallis entropy of power 1/2, whose regret is of the best
/// order both if losses are independent draws and if they are adversarial (Zimmert and Seldin,
/// "Tsallis-INF: an optimal algorithm for stochastic and adversarial bandits", JMLR 22, 2021,
/// algorithm 1 with importance weighted losses and `eta = 2 / sqrt(N)`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TsallisInf {
    /// The share of the traffic that is drawn uniformly, above 0 and at most 1. Not part of the
    /// paper; it bounds the weight of one outcome.
    pub floor: f64,
}

impl Default for TsallisInf {
    fn default() -> Self {
        Self { floor: FLOOR_DEFAULT }
    }
}

impl TsallisInf {
    pub(crate) fn check(&self) -> Result<(), BanditError> {
        check_floor(self.floor)
    }
}

/// Maximum number of Newton steps; a handful are usual.
const STEPS_MAX: usize = 100;

/// Tolerance of the sum of the probabilities.
const NEAR: f64 = 1e-12;

impl Strategy for TsallisInf {
    fn learns(&self) -> Learns {
        Learns::FromServed
    }

    fn weights(&self, faded: &Faded) -> Vec<f64> {
        let losses: Vec<f64> = faded.arms.iter().map(|arm| arm.estimated).collect();
        let rate = 2.0 / faded.outcomes().max(1.0).sqrt();
        let probabilities = minimiser(&losses, rate);
        let sum: f64 = probabilities.iter().sum();
        with_floor(probabilities.into_iter().map(|probability| probability / sum), self.floor, losses.len())
    }
}

/// `p_i = 4 / (rate (loss_i - x))^2` for the `x` below all losses at which they add up to 1 (the
/// paper's algorithm 2).
///
/// Starts where the arm with the lowest loss alone has probability 1, so that the sum is at least
/// 1; since the sum is convex and increasing in `x`, Newton's steps decrease to the root and never
/// pass it.
fn minimiser(losses: &[f64], rate: f64) -> Vec<f64> {
    let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let probabilities = |x: f64| -> Vec<f64> { losses.iter().map(|loss| (rate * (loss - x) / 2.0).powi(-2)).collect() };
    let mut x = least - 2.0 / rate;
    let mut at = probabilities(x);
    for _ in 0..STEPS_MAX {
        let excess = at.iter().sum::<f64>() - 1.0;
        if excess <= NEAR {
            break;
        }
        let slope = rate * at.iter().map(|probability| probability.powf(1.5)).sum::<f64>();
        x -= excess / slope;
        at = probabilities(x);
    }
    at
}
