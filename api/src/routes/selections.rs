//! Models of kind `selection`: others answer for them, chosen or combined by what feedback says of these.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use celeris_bandits::selection::{Difference, HalfLifeRecords, LabelRange, Objective, StrategySpec};
use celeris_bandits::{PolicySpec, PoolShare};
use celeris_manager::{DefaultReward, NewSelection, ScopeKind, SelectionRecord};
use celeris_model::{ModelName, StreamName, UserId};
use celeris_predictor::{ArmReport, SelectedBy, SelectionReport, WeightedArm};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{InModel, Params};
use crate::routes::models::Kind;
use crate::state::Node;

/// A selection to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSelectionBody {
    /// Its name: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = String)]
    name: ModelName,
    /// `selection`.
    #[expect(dead_code, reason = "it has told by now that this is a selection")]
    kind: Kind,
    /// The models that answer for it: 2 to 8, of one stream and one loss.
    #[schema(value_type = Vec<String>)]
    arms: Vec<ModelName>,
    /// How it selects: `tsallis_inf` (the default), `exp3`, `exp4` or `ab`, or an object of name and parameters.
    #[schema(value_type = Option<Object>)]
    strategy: Option<StrategySpec>,
    /// Whose feedback a state is made of: `global` (the default), `user`, or `context`.
    #[schema(value_type = Option<String>)]
    scope: Option<ScopeKind>,
    /// With the scope `context`: the contexts, one of which every request names; at most 16.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    contexts: Vec<ModelName>,
    /// What arms are judged by: `reward`, the label of what they had shown (the default where one arm answers), or `error`,
    /// how far their predictions were from labels.
    #[schema(value_type = Option<String>)]
    objective: Option<Objective>,
    /// The smallest and the largest label; by default those that the arms were trained on.
    #[schema(value_type = Option<Vec<f32>>)]
    label_range: Option<LabelRange>,
    /// The records of the stream (with the scope `user`, of the user) in which what was learnt loses half of its weight, 10
    /// to 1000000; null never. 10000 by default, 100 with the scope `user`; never for `ab`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>)]
    half_life_records: Option<Option<HalfLifeRecords>>,
    /// With `exp4`: how it ranks where a request names no policy. Arms that answer alone rank by their own.
    #[schema(value_type = Option<Object>)]
    policy: Option<PolicySpec>,
    /// With `exp4`: the share of such rankings that are drawn uniformly for the validation pool.
    #[schema(value_type = Option<f64>)]
    pool_share: Option<PoolShare>,
    /// The reward of slots shown by its decisions for which none has come in time, like that of a model: `{label,
    /// after_seconds, slots}`.
    #[schema(value_type = Option<Object>)]
    default_reward: Option<DefaultReward>,
}

/// Tells null, which is an answer, from a field that is missing.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

impl From<NewSelectionBody> for NewSelection {
    fn from(body: NewSelectionBody) -> Self {
        Self {
            name: body.name,
            arms: body.arms,
            strategy: body.strategy,
            scope: body.scope,
            contexts: body.contexts,
            objective: body.objective,
            label_range: body.label_range,
            half_life_records: body.half_life_records,
            policy: body.policy,
            pool_share: body.pool_share,
            default_reward: body.default_reward,
        }
    }
}

/// A selection.
#[derive(Debug, Serialize, ToSchema)]
pub struct Selection {
    #[schema(value_type = String)]
    name: ModelName,
    /// Its identity, which is never reused.
    id: u64,
    /// `selection`.
    kind: Kind,
    #[schema(value_type = String)]
    stream: StreamName,
    /// The models that answer for it.
    #[schema(value_type = Vec<String>)]
    arms: Vec<ModelName>,
    /// How it selects, with every parameter.
    #[schema(value_type = Object)]
    strategy: StrategySpec,
    #[schema(value_type = String)]
    scope: ScopeKind,
    #[schema(value_type = Vec<String>)]
    contexts: Vec<ModelName>,
    #[schema(value_type = String)]
    objective: Objective,
    #[schema(value_type = Vec<f32>)]
    label_range: LabelRange,
    #[schema(value_type = Option<u64>)]
    half_life_records: Option<HalfLifeRecords>,
    /// How it ranks where all arms answer together and a request names no policy.
    #[schema(value_type = Object)]
    policy: PolicySpec,
    #[schema(value_type = f64)]
    pool_share: PoolShare,
    /// The reward of shown slots for which none has come in time; null where they have none.
    #[schema(value_type = Option<Object>)]
    default_reward: Option<DefaultReward>,
    /// When it was created, in Unix milliseconds.
    created: i64,
    /// Records in the log of its stream.
    observations: u64,
    /// The probability or weight of each arm now; null where users or contexts have their own.
    #[schema(value_type = Option<Object>)]
    weights: Option<BTreeMap<ModelName, f64>>,
}

/// A selection as the API shows it.
///
/// # Errors
/// Where the log cannot be read.
pub async fn describe(node: &Node, record: SelectionRecord) -> Result<Selection, ApiError> {
    let weights = match record.scope {
        ScopeKind::Global => {
            let report = node.predictor.selection_report(&record.name, None, None).await?;
            Some(report.arms.into_iter().map(|arm| (arm.arm, arm.weight)).collect())
        }
        ScopeKind::User | ScopeKind::Context => None,
    };
    Ok(Selection {
        observations: node.storage.watermark(&record.stream).records(),
        name: record.name,
        id: record.id.0,
        kind: Kind::Selection,
        stream: record.stream,
        arms: record.arms,
        strategy: record.strategy,
        scope: record.scope,
        contexts: record.contexts,
        objective: record.objective,
        label_range: record.label_range,
        half_life_records: record.half_life_records,
        policy: record.policy,
        pool_share: record.pool_share,
        default_reward: record.default_reward,
        created: record.created.0,
        weights,
    })
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
    /// Then, of each item, the share of the arms that agree.
    pub confidence: Vec<f32>,
}

/// A model's part in an answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct ArmWeight {
    #[schema(value_type = String)]
    arm: ModelName,
    /// Those of all arms add up to 1.
    weight: f64,
    /// The version that it answered with.
    version: u64,
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

/// Whose state to tell of.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Whose {
    /// The user, where every user has a state.
    #[param(value_type = Option<String>)]
    user: Option<UserId>,
    /// The context, where every context has one.
    #[param(value_type = Option<String>)]
    context: Option<ModelName>,
}

/// What a selection knows of an arm.
#[derive(Debug, Serialize, ToSchema)]
pub struct Arm {
    #[schema(value_type = String)]
    arm: ModelName,
    /// The probability with which it is drawn, or its weight where all answer together.
    weight: f64,
    /// Outcomes of which its loss is known, as far as they still count.
    outcomes: u64,
    /// The mean of these losses, from 0 to 1, the later counting more where losses fade; null where there is none.
    mean_loss: Option<f64>,
    /// Of an A/B split: how much greater its mean loss is than the first arm's, with the 95 % interval; null for the first,
    /// and while there are too few users for an interval.
    difference: Option<Interval>,
}

/// A difference with its 95 % interval.
#[derive(Debug, Serialize, ToSchema)]
pub struct Interval {
    value: f64,
    low: f64,
    high: f64,
}

/// The weights at a point of the log.
#[derive(Debug, Serialize, ToSchema)]
pub struct WeightsThen {
    /// Records of the stream by then; with the scope `user`, events of the user.
    position: u64,
    /// In the order of the arms.
    weights: Vec<f64>,
}

/// What a selection knows of its arms.
#[derive(Debug, Serialize, ToSchema)]
pub struct Report {
    #[schema(value_type = String)]
    model: ModelName,
    #[schema(value_type = Object)]
    strategy: StrategySpec,
    #[schema(value_type = String)]
    objective: Objective,
    #[schema(value_type = String)]
    scope: ScopeKind,
    /// Records that the state reflects: of the stream, or with the scope `user` of the user.
    records: u64,
    /// In hexadecimal: equal hashes are states that are equal to the bit.
    state_hash: String,
    arms: Vec<Arm>,
    /// How the weights have moved, oldest first: over eight half-lives, or over everything where losses do not fade.
    curve: Vec<WeightsThen>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(report))
}

fn arm(report: ArmReport) -> Arm {
    let ArmReport { arm, weight, outcomes, mean_loss, difference } = report;
    let difference = difference.map(|Difference { value, low, high }| Interval { value, low, high });
    Arm { arm, weight, outcomes, mean_loss, difference }
}

/// What a selection knows of its arms: weights now and over time, outcomes and mean losses; of an A/B split, differences
/// with their intervals.
#[utoipa::path(get, path = "/v1/models/{model}/selection", tag = "models",
    params(("model" = String, Path), Whose),
    responses((status = 200, body = Report), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn report(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(Whose { user, context }): Params<Whose>,
) -> Result<Json<Report>, ApiError> {
    let Some(record) = node.manager.selection(&model)? else {
        node.manager.model(&model)?;
        return Err(ApiError::not_found(format!("{model} is a model, not a selection among models")));
    };
    let SelectionReport { arms, records, state_hash, curve } =
        node.predictor.selection_report(&model, user.as_ref(), context.as_ref()).await?;
    Ok(Json(Report {
        model,
        strategy: record.strategy,
        objective: record.objective,
        scope: record.scope,
        records,
        state_hash: format!("{state_hash:016x}"),
        arms: arms.into_iter().map(arm).collect(),
        curve: curve
            .into_iter()
            .map(|point| WeightsThen { position: point.position, weights: point.weights })
            .collect(),
    }))
}
