//! The plain A/B split.

use serde::{Deserialize, Serialize};

use crate::error::BanditError;
use crate::selection::state::Faded;
use crate::selection::strategy::{Learns, Lot, Selected, Strategy, draw};

/// Every user is served by one arm, drawn once with a stated probability and for good; nothing is learnt, but outcomes are
/// counted, to be compared ([`crate::selection::comparison`]).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ab {
    /// The share of the users of each arm, in their order, of sum 1; the same of each where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Vec<f64>>,
}

/// How far shares may be from adding up to 1.
const SUM_NEAR: f64 = 1e-6;

impl Ab {
    /// Refuses shares that are not those of so many arms.
    pub(crate) fn check(&self, arms: usize) -> Result<(), BanditError> {
        let Some(shares) = &self.shares else { return Ok(()) };
        let sum: f64 = shares.iter().sum();
        let sound = shares.iter().all(|share| *share > 0.0) && (sum - 1.0).abs() <= SUM_NEAR;
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
