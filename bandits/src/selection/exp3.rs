//! Chooses one arm by exponential weights.

use serde::{Deserialize, Serialize};

use crate::error::BanditError;
use crate::selection::state::Faded;
use crate::selection::strategy::{Learns, Strategy, exponential, with_floor};

/// Exp3: arms are drawn with weights that fall exponentially with their estimated losses (Auer,
/// Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem", SIAM Journal
/// on Computing 32, 2002; Clipper §5.1).
///
/// With `K` arms and `N` outcomes the rate is `sqrt(ln K / (K N))`, which needs no horizon (Bubeck
/// and Cesa-Bianchi, "Regret analysis of stochastic and nonstochastic multi-armed bandit problems",
/// 2012, theorem 3.1). If sums fade, `N` stays bounded, and so the strategy never stops learning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exp3 {
    /// The share of the traffic that is drawn uniformly, above 0 and at most 1: it bounds the
    /// weight of one outcome.
    pub floor: f64,
}

/// The default floor: no outcome then has a weight above a hundred times the number of arms.
pub(crate) const FLOOR_DEFAULT: f64 = 0.01;

/// Rejects a floor that does not bound the weights.
pub(crate) fn check_floor(floor: f64) -> Result<(), BanditError> {
    if !(0.001..=1.0).contains(&floor) {
        return Err(BanditError::OutOfRange { parameter: "strategy.floor", range: "from 0.001 to 1", value: floor });
    }
    Ok(())
}

impl Default for Exp3 {
    fn default() -> Self {
        Self { floor: FLOOR_DEFAULT }
    }
}

impl Exp3 {
    pub(crate) fn check(&self) -> Result<(), BanditError> {
        check_floor(self.floor)
    }
}

impl Strategy for Exp3 {
    fn learns(&self) -> Learns {
        Learns::FromServed
    }

    fn weights(&self, faded: &Faded) -> Vec<f64> {
        let (arms, outcomes) = (faded.arms.len(), faded.outcomes().max(1.0));
        let rate = ((arms as f64).ln() / (arms as f64 * outcomes)).sqrt();
        let losses: Vec<f64> = faded.arms.iter().map(|arm| arm.estimated).collect();
        with_floor(exponential(&losses, rate).into_iter(), self.floor, arms)
    }
}
