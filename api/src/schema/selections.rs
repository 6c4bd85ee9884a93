//! Selections: models for which other models answer.

use std::collections::BTreeMap;

use celeris_bandits::selection::{HalfLifeRecords, StrategySpec};
use celeris_bandits::{PolicySpec, PoolShare, selection};
use celeris_manager::{NewSelection, ScopeKind};
use celeris_model::{LabelRange, ModelName, StreamName};
use celeris_predictor::{SelectedBy, WeightedArm};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ids::{Name, NameOrInteger};
use super::models::{Kind, SelectionKind};
use super::nullable;
use super::policies::{Policy, PolicyOrName};
use super::settings::DefaultReward;
use super::strategies::{Strategy, StrategyOrName};
mirror_enum! {
    /// The scope of a state of a selection.
    Scope = ScopeKind {
        /// One state for each user.
        User,
        /// One state for all requests.
        Global,
        /// One state for each segment.
        Segment,
    }
}

mirror_enum! {
    /// How the arms of a selection are evaluated.
    Objective = selection::Objective {
        /// By the labels of the items that the arm showed: higher is better.
        Reward,
        /// By the difference between the arm's prediction and the label: lower is better.
        Error,
    }
}

/// A selection to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSelectionBody {
    /// The name: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = NameOrInteger)]
    pub name: ModelName,
    #[schema(value_type = SelectionKind)]
    pub kind: Kind,
    /// The models that answer for the selection; they must have the same stream and loss.
    #[schema(value_type = Vec<NameOrInteger>, min_items = 2, max_items = 8)]
    pub arms: Vec<ModelName>,
    /// The strategy; `tsallis_inf` by default.
    #[schema(value_type = Option<StrategyOrName>)]
    pub strategy: Option<StrategySpec>,
    /// The scope of a state; `global` by default.
    pub scope: Option<Scope>,
    /// With the scope `segment`: the names of the segments. Every request must name one of them.
    #[serde(default)]
    #[schema(value_type = Vec<NameOrInteger>, max_items = 16)]
    pub segments: Vec<ModelName>,
    /// How arms are evaluated; by default `reward` if a single arm answers each request, otherwise
    /// `error`.
    pub objective: Option<Objective>,
    /// The smallest and the largest label; by default those that the arms were trained on.
    #[schema(value_type = Option<Vec<f32>>, min_items = 2, max_items = 2)]
    pub label_range: Option<LabelRange>,
    /// The number of records of the stream (with the scope `user`, of the user) in which an outcome
    /// loses half of its weight; null for no decay. 10000 by default, 100 with the scope `user`; no
    /// decay for `ab`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>, minimum = 10, maximum = 1_000_000)]
    pub half_life_records: Option<Option<HalfLifeRecords>>,
    /// With `exp4`: the policy of requests that name none. With other strategies, the arm that
    /// answers uses its own policy.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// With `exp4`: the share of rankings without a named policy that are drawn uniformly for the
    /// validation pool.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1)]
    pub pool_share: Option<PoolShare>,
    /// The reward of shown slots of the selection's decisions without a reward in time, as for a
    /// model.
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
    #[schema(value_type = Name)]
    pub name: ModelName,
    /// The id, which is never reused.
    pub id: u64,
    #[schema(value_type = SelectionKind)]
    pub kind: Kind,
    #[schema(value_type = Name)]
    pub stream: StreamName,
    /// The models that answer for the selection.
    #[schema(value_type = Vec<Name>)]
    pub arms: Vec<ModelName>,
    /// The strategy with all of its parameters.
    pub strategy: Strategy,
    pub scope: Scope,
    #[schema(value_type = Vec<Name>)]
    pub segments: Vec<ModelName>,
    pub objective: Objective,
    #[schema(value_type = Vec<f32>, min_items = 2, max_items = 2)]
    pub label_range: LabelRange,
    #[schema(value_type = Option<u64>)]
    pub half_life_records: Option<HalfLifeRecords>,
    /// If all arms answer together: the policy of requests that name none.
    pub policy: Policy,
    #[schema(value_type = f64)]
    pub pool_share: PoolShare,
    /// The reward of shown slots without a reward in time; null if there is none.
    pub default_reward: Option<DefaultReward>,
    /// Creation time, in Unix milliseconds.
    pub created: i64,
    /// Number of records in the log of the stream.
    pub observations: u64,
    /// The current probability or weight of each arm; null if users or segments have their own.
    #[schema(value_type = Option<BTreeMap<String, f64>>)]
    pub weights: Option<BTreeMap<ModelName, f64>>,
}

/// The arms that answered for a selection; empty for a model.
#[derive(Debug, Default)]
pub struct Answered {
    /// For a choosing selection: the model that answered.
    pub arm: Option<ModelName>,
    /// The probability with which that model was drawn.
    pub arm_propensity: Option<f32>,
    /// For a combining selection: the models that answered together.
    pub arms: Option<Vec<ArmWeight>>,
    /// For a combining selection: for each item, the share of the arms that agree.
    pub confidence: Vec<f32>,
}

/// The weight of a model in a combined answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArmWeight {
    #[schema(value_type = Name)]
    pub arm: ModelName,
    /// The weight; the weights of all arms sum to 1.
    pub weight: f64,
    /// The version of the model that answered.
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

/// The state of an arm.
#[derive(Debug, Serialize, ToSchema)]
pub struct Arm {
    #[schema(value_type = Name)]
    pub arm: ModelName,
    /// The probability with which the arm is drawn, or its weight if all arms answer together.
    pub weight: f64,
    /// Number of outcomes with a known loss of the arm, as far as they still count.
    pub outcomes: u64,
    /// The mean of these losses, from 0 to 1, weighted towards recent outcomes if losses decay;
    /// null if there is none.
    pub mean_loss: Option<f64>,
    /// For an A/B split: the arm's mean loss minus that of the first arm, with the 95 % interval;
    /// null for the first arm, and while there are too few users for an interval.
    pub difference: Option<Interval>,
}

/// A difference with its 95 % interval.
#[derive(Debug, Serialize, ToSchema)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The weights at a position of the log.
#[derive(Debug, Serialize, ToSchema)]
pub struct WeightsThen {
    /// Number of records of the stream; with the scope `user`, of events of the user.
    pub position: u64,
    /// The weights, in the order of the arms.
    pub weights: Vec<f64>,
}

/// The state of a selection.
#[derive(Debug, Serialize, ToSchema)]
pub struct Report {
    #[schema(value_type = Name)]
    pub model: ModelName,
    pub strategy: Strategy,
    pub objective: Objective,
    pub scope: Scope,
    /// Number of records that the state reflects: of the stream, or with the scope `user` of the
    /// user.
    pub records: u64,
    /// A hash of the state, in hexadecimal; equal hashes mean bitwise equal states.
    pub state_hash: String,
    pub arms: Vec<Arm>,
    /// The history of the weights, oldest first: over eight half-lives, or over the whole log if
    /// losses do not decay.
    pub curve: Vec<WeightsThen>,
}
