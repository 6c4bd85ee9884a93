//! The plain A/B split.

use serde::{Deserialize, Serialize};

use crate::error::BanditError;
use crate::selection::state::Faded;
use crate::selection::strategy::{Learns, Lot, Selected, Strategy, draw};

/// Every user is assigned to one arm for good, drawn with a given probability. Nothing is learnt,
/// but outcomes are counted for comparison ([`crate::selection::comparison`]).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ab {
    /// The share of users of each arm, in their order, with sum 1; equal shares if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Vec<f64>>,
}

/// Tolerance of the sum of the shares.
const SUM_TOLERANCE: f64 = 1e-6;

impl Ab {
    /// Rejects shares that do not match the number of arms.
    pub(crate) fn check(&self, arms: usize) -> Result<(), BanditError> {
        let Some(shares) = &self.shares else { return Ok(()) };
        let sum: f64 = shares.iter().sum();
        let sound = shares.iter().all(|share| *share > 0.0) && (sum - 1.0).abs() <= SUM_TOLERANCE;
        if shares.len() == arms && sound { Ok(()) } else { Err(BanditError::Shares { arms, received: shares.clone() }) }
    }
}

impl Strategy for Ab {
    fn learns(&self) -> Learns {
        Learns::FromServed
    }

    fn weights(&self, faded: &Faded) -> Vec<f64> {
        let arms = faded.arms.len();
        self.shares.clone().unwrap_or_else(|| vec![1.0 / arms as f64; arms])
    }

    fn select(&self, faded: &Faded, lot: Lot) -> Selected {
        let (arm, propensity) = draw(&self.weights(faded), lot.user);
        Selected::One { arm, propensity }
    }
}
