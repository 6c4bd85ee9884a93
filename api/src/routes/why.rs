//! Why a user gets an item: the observations that its score comes from.

use axum::Json;
use axum::extract::State;
use celeris_model::{ItemId, ObservationId, UserEpoch, UserId};
use celeris_predictor::{Because, WhyRequest};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Params, Scored};
use crate::state::Node;

/// Observations named unless told otherwise.
const LIMIT_DEFAULT: usize = 10;

/// Observations named at most.
const LIMIT_MAX: usize = 1000;

/// How far to explain.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Depth {
    /// Observations to name, those that moved the score furthest first; 10 by default, at most 1,000.
    limit: Option<usize>,
    /// The answer must reflect at least that many of the user's events.
    #[param(value_type = Option<u64>)]
    min_epoch: Option<UserEpoch>,
}

/// One observation, and what it has done to the score.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reason {
    #[schema(value_type = String)]
    item: ItemId,
    /// As corrected.
    label: f32,
    weight: f32,
    /// In Unix milliseconds.
    timestamp: i64,
    /// The client's id, or the one that the server made; null where the observation has been forgotten just now.
    #[schema(value_type = Option<String>)]
    observation_id: Option<ObservationId>,
    /// By how much it has moved the score; positive is up.
    contribution: f64,
}

/// A score and what it is made of: `prior`, all contributions of `because`, and `others` sum to it.
#[derive(Debug, Serialize, ToSchema)]
pub struct WhyReply {
    #[schema(value_type = String)]
    user: UserId,
    #[schema(value_type = String)]
    item: ItemId,
    version: u64,
    user_epoch: u64,
    /// The expected label; of a model with logistic loss, its log-odds.
    score: f32,
    std_error: f32,
    /// Whether anything is known of the item; else it is scored as an average one.
    known: bool,
    /// The score of a user who has said nothing.
    prior: f64,
    /// What moved the score furthest from there, up or down, the furthest first.
    because: Vec<Reason>,
    /// By how much all other observations have moved it together.
    others: f64,
    /// How many observations the score comes from, those named and the others.
    observations: u64,
}

impl From<Because> for Reason {
    fn from(because: Because) -> Self {
        let Because { item, label, weight, timestamp, observation_id, contribution } = because;
        Self { item, label, weight, timestamp: timestamp.0, observation_id, contribution }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(why))
}

/// Explains a user's score of an item by the observations that moved it most.
#[utoipa::path(get, path = "/v1/models/{model}/users/{user}/why/{item}", tag = "serving",
    params(("model" = String, Path), ("user" = String, Path), ("item" = String, Path), Depth),
    responses((status = 200, body = WhyReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn why(
    State(node): State<Node>,
    Scored { model, user, item }: Scored,
    Params(depth): Params<Depth>,
) -> Result<Json<WhyReply>, ApiError> {
    let limit = depth.limit.unwrap_or(LIMIT_DEFAULT);
    if limit > LIMIT_MAX {
        return Err(ApiError::invalid(format!("limit: at most {LIMIT_MAX}, got {limit}")));
    }
    let request = WhyRequest { model, user, item, limit, min_epoch: depth.min_epoch };
    let why = node.predictor.why(&request).await?;
    let WhyRequest { user, item, .. } = request;
    Ok(Json(WhyReply {
        user,
        item,
        version: why.version.0,
        user_epoch: why.user_epoch.0,
        score: why.estimate.score,
        std_error: why.estimate.std_error,
        known: why.known,
        prior: why.prior,
        because: why.because.into_iter().map(Reason::from).collect(),
        others: why.others,
        observations: why.observations,
    }))
}
