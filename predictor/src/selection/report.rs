//! What a selection knows of its arms, and how that has moved.

use celeris_bandits::selection::comparison::{Difference, difference};
use celeris_bandits::selection::{State, StrategySpec};
use celeris_model::{ModelName, UserEpoch, UserId};

use crate::error::PredictorError;
use crate::node::{Predictor, compute};
use crate::selection::{Scope, SelectionRule, hash};

/// Points of a curve at most.
const CURVE_POINTS: u64 = 60;

/// What is known of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmReport {
    /// The arm.
    pub arm: ModelName,
    /// The probability with which it is drawn, or its weight where all answer together.
    pub weight: f64,
    /// Outcomes of which its loss is known, as far as they still count.
    pub outcomes: u64,
    /// The mean of these losses, the later counting more where losses fade.
    pub mean_loss: Option<f64>,
    /// Of an A/B split with one state: how much greater its mean loss is than that of the first arm.
    pub difference: Option<Difference>,
}

/// The weights when the log was as long as that.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvePoint {
    /// Records of the stream; of a state by user, events of the user.
    pub position: u64,
    /// In the order of the arms.
    pub weights: Vec<f64>,
}

/// What a selection knows.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionReport {
    /// In the order of the configuration.
    pub arms: Vec<ArmReport>,
    /// Records of the stream, or of a state by user the user's events, that the state reflects.
    pub records: u64,
    /// Equal exactly where the sums are equal to the bit.
    pub state_hash: u64,
    /// How the weights have moved, oldest first, as far as what still counts tells.
    pub curve: Vec<CurvePoint>,
}

impl Predictor {
    /// What a selection knows of its arms: for this user where every user has a state, in this segment where segments have.
    ///
    /// # Errors
    /// `UnknownModel` where there is no such selection, `Segment`, `UserMissing` or `Storage`.
    pub async fn selection_report(
        &self,
        name: &ModelName,
        user: Option<&UserId>,
        segment: Option<&ModelName>,
    ) -> Result<SelectionReport, PredictorError> {
        let selection = self.selection(name).ok_or_else(|| PredictorError::UnknownModel { model: name.clone() })?;
        let rule = &selection.rule;
        let group = rule.group(segment)?;
        let report = |state: &State| report(rule, state, group);
        match &selection.stream {
            Some(view) => compute(false, || view.look(rule, &self.storage, report)),
            None => {
                let user = user.ok_or_else(|| PredictorError::UserMissing { model: name.clone() })?;
                let epoch: UserEpoch = self.durable_epoch(&rule.arms[0], user, None).await?;
                let view = self.user_views.of(&selection, user);
                compute(false, || self.user_views.look(&view, (rule, &self.storage), epoch, report))
            }
        }
    }
}

fn report(rule: &SelectionRule, state: &State, group: usize) -> SelectionReport {
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
    let told = state.told();
    let points = told.min(CURVE_POINTS);
    let point = |number: u64| {
        let back = told - told * number / points.max(1);
        CurvePoint { position: state.records() - back, weights: strategy.weights(&state.faded_before(group, back)) }
    };
    SelectionReport {
        arms: strategy.weights(&faded).into_iter().enumerate().map(of_arm).collect(),
        records: state.records(),
        state_hash: hash(state, group),
        curve: (1..=points).map(point).collect(),
    }
}
