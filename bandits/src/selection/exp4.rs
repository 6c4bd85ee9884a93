//! Combining all arms by exponential weights.

use serde::{Deserialize, Serialize};

use crate::error::BanditError;
use crate::selection::state::Faded;
use crate::selection::strategy::{Learns, Lot, Selected, Strategy, exponential};

/// Exp4: every arm is an expert that predicts, the answer is the mean of their predictions, and
/// weights fall exponentially with the experts' losses (Auer et al. 2002, section 7, as Clipper
/// §5.2 uses it to combine).
///
/// Every expert's prediction is recorded, so every loss is known and no importance weights are
/// needed. The rate is that of the exponentially weighted average forecaster, `sqrt(8 ln K / N)`
/// after `N` outcomes (Cesa-Bianchi and Lugosi, "Prediction, Learning, and Games", 2006, theorem
/// 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exp4 {
    /// The maximum difference of an arm to the combined prediction at which it still agrees, as a
    /// share of the range of labels, from 0 to 1.
    pub tolerance: f64,
}

impl Default for Exp4 {
    /// A tenth of the range: on five stars, less than half of one.
    fn default() -> Self {
        Self { tolerance: 0.1 }
    }
}

impl Exp4 {
    pub(crate) fn check(&self) -> Result<(), BanditError> {
        if !(0.0..=1.0).contains(&self.tolerance) {
            let (range, value) = ("from 0 to 1", self.tolerance);
            return Err(BanditError::OutOfRange { parameter: "strategy.tolerance", range, value });
        }
        Ok(())
    }
}

impl Strategy for Exp4 {
    fn learns(&self) -> Learns {
        Learns::FromEvery
    }

    fn weights(&self, faded: &Faded) -> Vec<f64> {
        let outcomes = faded.arms.iter().map(|arm| arm.outcomes).fold(1.0, f64::max);
        let losses: Vec<f64> = faded.arms.iter().map(|arm| arm.estimated).collect();
        exponential(&losses, (8.0 * (losses.len() as f64).ln() / outcomes).sqrt())
    }

    fn tolerance(&self) -> f64 {
        self.tolerance
    }

    fn select(&self, faded: &Faded, _lot: Lot) -> Selected {
        Selected::All(self.weights(faded))
    }
}
