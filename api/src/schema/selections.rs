//! Selections: models that other models answer for.

use std::collections::BTreeMap;

use celeris_bandits::selection::{HalfLifeRecords, LabelRange, StrategySpec};
use celeris_bandits::{PolicySpec, PoolShare, selection};
use celeris_manager::{NewSelection, ScopeKind};
use celeris_model::{ModelName, StreamName};
use celeris_predictor::{SelectedBy, WeightedArm};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::models::Kind;
use super::nullable;
use super::policies::{Policy, PolicyOrName};
use super::settings::DefaultReward;
use super::strategies::{Strategy, StrategyOrName};
mirror_enum! {
    /// What the feedback is grouped by that a state of a selection is made of.
    Scope = ScopeKind {
        /// Each user has a state.
        User,
        /// There is one state.
        Global,
        /// Each segment has a state.
        Segment,
    }
}

mirror_enum! {
    /// What the arms of a selection are judged by.
    Objective = selection::Objective {
        /// The label of what the arm had shown: the more the better.
        Reward,
        /// How far the arm's prediction was from the label: the less the better.
        Error,
    }
}

/// A selection to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSelectionBody {
    /// Its name: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = String)]
    pub name: ModelName,
    /// `selection`.
    pub kind: Kind,
    /// The models that answer for it, of one stream and one loss.
    #[schema(value_type = Vec<String>, min_items = 2, max_items = 8)]
    pub arms: Vec<ModelName>,
    /// How it selects; `tsallis_inf` by default.
    #[schema(value_type = Option<StrategyOrName>)]
    pub strategy: Option<StrategySpec>,
    /// `global` by default.
    pub scope: Option<Scope>,
    /// With the scope `segment`: the segments, one of which every request names.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub segments: Vec<ModelName>,
    /// What arms are judged by; by default `reward` where one arm answers, else `error`.
    pub objective: Option<Objective>,
    /// The smallest and the largest label; by default those that the arms were trained on.
    #[schema(value_type = Option<Vec<f32>>, min_items = 2, max_items = 2)]
    pub label_range: Option<LabelRange>,
    /// The records of the stream (with the scope `user`, of the user) in which what was learnt loses half of its weight;
    /// null never. 10000 by default, 100 with the scope `user`; never for `ab`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>, minimum = 10, maximum = 1_000_000)]
    pub half_life_records: Option<Option<HalfLifeRecords>>,
    /// With `exp4`: how it ranks where a request names no policy. Arms that answer alone rank by their own.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// With `exp4`: the share of such rankings that are drawn uniformly for the validation pool.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1)]
    pub pool_share: Option<PoolShare>,
    /// The reward of slots shown by its decisions for which none has come in time, like that of a model.
    pub default_reward: Option<DefaultReward>,
}

impl From<NewSelectionBody> for NewSelection {
    fn from(body: NewSelectionBody) -> Self {
        Self {
            name: body.name,
            arms: body.arms,
            strategy: body.strategy,
            scope: body.scope.map(Into::into),
            segments: body.segments,
            objective: body.objective.map(Into::into),
            label_range: body.label_range,
            half_life_records: body.half_life_records,
            policy: body.policy,
            pool_share: body.pool_share,
            default_reward: body.default_reward.map(Into::into),
        }
    }
}

/// A selection.
#[derive(Debug, Serialize, ToSchema)]
pub struct Selection {
    #[schema(value_type = String)]
    pub name: ModelName,
    /// Its identity, which is never reused.
    pub id: u64,
    /// `selection`.
    pub kind: Kind,
    #[schema(value_type = String)]
    pub stream: StreamName,
    /// The models that answer for it.
    #[schema(value_type = Vec<String>)]
    pub arms: Vec<ModelName>,
    /// How it selects, with every parameter.
    pub strategy: Strategy,
    pub scope: Scope,
    #[schema(value_type = Vec<String>)]
    pub segments: Vec<ModelName>,
    pub objective: Objective,
    #[schema(value_type = Vec<f32>, min_items = 2, max_items = 2)]
    pub label_range: LabelRange,
    #[schema(value_type = Option<u64>)]
    pub half_life_records: Option<HalfLifeRecords>,
    /// How it ranks where all arms answer together and a request names no policy.
    pub policy: Policy,
    #[schema(value_type = f64)]
    pub pool_share: PoolShare,
    /// The reward of shown slots for which none has come in time; null where they have none.
    pub default_reward: Option<DefaultReward>,
    /// When it was created, in Unix milliseconds.
    pub created: i64,
    /// Records in the log of its stream.
    pub observations: u64,
    /// The probability or weight of each arm now; null where users or segments have their own.
    #[schema(value_type = Option<BTreeMap<String, f64>>)]
    pub weights: Option<BTreeMap<ModelName, f64>>,
}

/// Who answered for a selection; nothing in the answer of a model.
#[derive(Debug, Default)]
pub struct Answered {
    /// Of a selection that chooses: the model that answered.
    pub arm: Option<ModelName>,
    /// The probability with which it was drawn.
    pub arm_propensity: Option<f32>,
    /// Of a selection that combines: the models that answered together.
    pub arms: Option<Vec<ArmWeight>>,
    /// AckMode, of each item, the share of the arms that agree.
    pub confidence: Vec<f32>,
}

/// A model's part in an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArmWeight {
    #[schema(value_type = String)]
    pub arm: ModelName,
    /// Those of all arms add up to 1.
    pub weight: f64,
    /// The version that it answered with.
    pub version: u64,
}

impl From<Option<SelectedBy>> for Answered {
    fn from(selected: Option<SelectedBy>) -> Self {
        match selected {
            None => Self::default(),
            Some(SelectedBy::Arm { arm, propensity }) => {
                Self { arm: Some(arm), arm_propensity: Some(propensity), ..Self::default() }
            }
            Some(SelectedBy::All { arms, confidence }) => {
                let weight = |WeightedArm { arm, weight, version }| ArmWeight { arm, weight, version: version.0 };
                Self { arms: Some(arms.into_iter().map(weight).collect()), confidence, ..Self::default() }
            }
        }
    }
}

/// What a selection knows of an arm.
#[derive(Debug, Serialize, ToSchema)]
pub struct Arm {
    #[schema(value_type = String)]
    pub arm: ModelName,
    /// The probability with which it is drawn, or its weight where all answer together.
    pub weight: f64,
    /// Outcomes of which its loss is known, as far as they still count.
    pub outcomes: u64,
    /// The mean of these losses, from 0 to 1, the later counting more where losses fade; null where there is none.
    pub mean_loss: Option<f64>,
    /// Of an A/B split: how much greater its mean loss is than the first arm's, with the 95 % interval; null for the first,
    /// and while there are too few users for an interval.
    pub difference: Option<Interval>,
}

/// A difference with its 95 % interval.
#[derive(Debug, Serialize, ToSchema)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The weights at a point of the log.
#[derive(Debug, Serialize, ToSchema)]
pub struct WeightsThen {
    /// Records of the stream by then; with the scope `user`, events of the user.
    pub position: u64,
    /// In the order of the arms.
    pub weights: Vec<f64>,
}

/// What a selection knows of its arms.
#[derive(Debug, Serialize, ToSchema)]
pub struct Report {
    #[schema(value_type = String)]
    pub model: ModelName,
    pub strategy: Strategy,
    pub objective: Objective,
    pub scope: Scope,
    /// Records that the state reflects: of the stream, or with the scope `user` of the user.
    pub records: u64,
    /// In hexadecimal: equal hashes are states that are equal to the bit.
    pub state_hash: String,
    pub arms: Vec<Arm>,
    /// How the weights have moved, oldest first: over eight half-lives, or over everything where losses do not fade.
    pub curve: Vec<WeightsThen>,
}
