//! Rewards of a model by day, version and policy.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use celeris_manager::rewards::DAYS_MAX;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{InModel, Params};
use crate::schema::rewards::{RewardsReply, describe};
use crate::state::Node;

/// The share of the request timeout that may be spent on counting.
const COUNTING_SHARE: f64 = 0.5;

const DAYS_DEFAULT: u32 = 30;

/// Which rewards are counted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RewardsWanted {
    /// Number of days in UTC, today included; 30 by default. Decisions are kept for `decisions.retention`.
    #[param(minimum = 1, maximum = 90)]
    days: Option<u32>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_rewards))
}

/// Returns what the rankings of a model have earned, by day, version and policy.
///
/// Rewards are those that are joined to decisions on record, as the log has them now: corrections count, and retracted ones do
/// not. In a cluster they are of the decisions of the node that answers. Counting reads decisions and histories; it is done for
/// one request at a time and kept for a minute.
#[utoipa::path(get, path = "/v1/models/{model}/rewards", tag = "quality", params(InModel, RewardsWanted),
    responses((status = 200, body = RewardsReply)))]
async fn get_rewards(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(RewardsWanted { days }): Params<RewardsWanted>,
) -> Result<Json<RewardsReply>, ApiError> {
    let days = days.unwrap_or(DAYS_DEFAULT);
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(ApiError::field("days", format!("must be from 1 to {DAYS_MAX}")));
    }
    let deadline = Instant::now() + node.limits.request_timeout.mul_f64(COUNTING_SHARE);
    let report = node.manager.rewards().of(&model, days, deadline)?;
    Ok(Json(describe(model, days, &report)))
}
