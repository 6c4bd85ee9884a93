//! A selection's current state and the history of its weights.

use celeris_bandits::selection::comparison::{Difference, difference};
use celeris_bandits::selection::{State, StrategySpec};
use celeris_model::ModelName;

use crate::selection::{Scope, SelectionRule, hash};

/// Maximum number of points of a curve.
const CURVE_POINTS: u64 = 60;

#[derive(Debug, Clone, PartialEq)]
pub struct ArmReport {
    pub arm: ModelName,
    /// The probability of drawing the arm, or its weight if all arms answer together.
    pub weight: f64,
    /// Number of outcomes with a known loss that still count.
    pub outcomes: u64,
    /// The mean of these losses, with later ones weighted more if losses fade.
    pub mean_loss: Option<f64>,
    /// For an A/B split with a shared state: the mean loss minus that of the first arm.
    pub difference: Option<Difference>,
}

/// The weights at an earlier log position.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvePoint {
    /// Number of records of the stream, or of events of the user if each user has a state.
    pub position: u64,
    pub weights: Vec<f64>,
}

/// A selection's state.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionReport {
    pub arms: Vec<ArmReport>,
    /// Number of records of the stream that the state reflects, or of events of the user if each
    /// user has a state.
    pub records: u64,
    /// Equal if and only if the sums are equal to the bit, up to hash collisions.
    pub state_hash: u64,
    /// History of the weights, oldest first, over the records that still count.
    pub curve: Vec<CurvePoint>,
}

/// The report of a group's state.
pub(crate) fn report(rule: &SelectionRule, state: &State, group: usize) -> SelectionReport {
    let strategy = rule.strategy.strategy();
    let faded = state.faded(group);
    let lanes: Vec<_> = (0..rule.layout().lanes).map(|lane| state.in_lane(group, lane)).collect();
    let compared = matches!(rule.strategy, StrategySpec::Ab(_)) && rule.scope != Scope::User;
    let of_arm = |(arm, weight): (usize, f64)| ArmReport {
        arm: rule.arms[arm].clone(),
        weight,
        outcomes: lanes.iter().map(|sums| sums[arm].outcomes).sum(),
        mean_loss: faded.arms[arm].mean_loss(),
        difference: (compared && arm > 0).then(|| difference(&lanes, arm, 0)).flatten(),
    };
    let known = state.known_back();
    let points = known.min(CURVE_POINTS);
    let point = |number: u64| {
        let back = known - known * number / points.max(1);
        CurvePoint { position: state.records() - back, weights: strategy.weights(&state.faded_before(group, back)) }
    };
    SelectionReport {
        arms: strategy.weights(&faded).into_iter().enumerate().map(of_arm).collect(),
        records: state.records(),
        state_hash: hash(state, group),
        curve: (1..=points).map(point).collect(),
    }
}
