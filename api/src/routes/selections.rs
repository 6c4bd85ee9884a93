//! Selections: models of kind `selection`, which choose or combine the answers of other models by
//! their feedback.

use axum::Json;
use axum::extract::State;
use celeris_bandits::selection::Difference;
use celeris_manager::{ScopeKind, SelectionRecord};
use celeris_model::{ModelName, UserId};
use celeris_predictor::{ArmReport, SelectionReport};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{InModel, Params};
use crate::schema::ids::{Id, Name};
use crate::schema::models::Kind;
use crate::schema::selections::{Arm, Interval, Report, Selection, WeightsThen};
use crate::state::Node;

/// The reply that describes a selection.
///
/// # Errors
/// If the log cannot be read.
pub async fn describe(node: &Node, record: SelectionRecord) -> Result<Selection, ApiError> {
    let weights = match record.scope {
        ScopeKind::Global => {
            let report = node.predictor.selections().report(&record.name, None, None).await?;
            Some(report.arms.into_iter().map(|arm| (arm.arm, arm.weight)).collect())
        }
        ScopeKind::User | ScopeKind::Segment => None,
    };
    Ok(Selection {
        observations: node.storage.log().watermark(&record.stream).records(),
        name: record.name,
        id: record.id.0,
        kind: Kind::Selection,
        stream: record.stream,
        arms: record.arms,
        strategy: record.strategy.into(),
        scope: record.scope.into(),
        segments: record.segments,
        objective: record.objective.into(),
        label_range: record.label_range,
        half_life_records: record.half_life_records,
        policy: record.policy.into(),
        pool_share: record.pool_share,
        default_reward: record.default_reward.map(Into::into),
        created: record.created.0,
        weights,
    })
}

/// The user or segment whose state is reported.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SelectionParams {
    /// The user, if the selection has a state for each user.
    #[param(value_type = Option<Id>)]
    user: Option<UserId>,
    /// The segment, if the selection has a state for each segment.
    #[param(value_type = Option<Name>)]
    segment: Option<ModelName>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_selection))
}

fn arm(report: ArmReport) -> Arm {
    let ArmReport { arm, weight, outcomes, mean_loss, difference } = report;
    let difference = difference.map(|Difference { value, low, high }| Interval { value, low, high });
    Arm { arm, weight, outcomes, mean_loss, difference }
}

/// Returns the state of a selection.
///
/// For each arm: its weight now and over time, its outcomes and mean loss; for an A/B split also
/// differences with confidence intervals.
#[utoipa::path(get, path = "/v1/models/{model}/selection", tag = "models",
    params(InModel, SelectionParams),
    responses((status = 200, body = Report)))]
async fn get_selection(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(SelectionParams { user, segment }): Params<SelectionParams>,
) -> Result<Json<Report>, ApiError> {
    let Some(record) = node.manager.registry().selection(&model)? else {
        node.manager.registry().model(&model)?;
        return Err(ApiError::not_found(format!("{model} is a model, not a selection among models")));
    };
    let SelectionReport { arms, records, state_hash, curve } =
        node.predictor.selections().report(&model, user.as_ref(), segment.as_ref()).await?;
    Ok(Json(Report {
        model,
        strategy: record.strategy.into(),
        objective: record.objective.into(),
        scope: record.scope.into(),
        records,
        state_hash: format!("{state_hash:016x}"),
        arms: arms.into_iter().map(arm).collect(),
        curve: curve
            .into_iter()
            .map(|point| WeightsThen { position: point.position, weights: point.weights })
            .collect(),
    }))
}
