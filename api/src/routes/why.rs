//! Explanations: the observations that a score comes from.

use axum::Json;
use axum::extract::State;
use celeris_model::{ItemId, ObservationId, UserEpoch, UserId};
use celeris_predictor::{Because, PartOfScore, WhyRequest};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{Params, Scored};
use crate::schema::ids::Id;
use crate::state::Node;

/// Default number of observations.
const LIMIT_DEFAULT: usize = 10;

/// Maximum number of observations.
const LIMIT_MAX: usize = 1000;

/// Query parameters of an explanation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhyParams {
    /// Maximum number of observations, those with the largest contributions first; 10 by default.
    #[param(maximum = 1000)]
    limit: Option<usize>,
    /// The reply must reflect at least this many of the user's events.
    #[param(value_type = Option<u64>)]
    min_epoch: Option<UserEpoch>,
    /// The context in which the item is scored, a JSON object.
    context: Option<String>,
}

/// One observation and its contribution to the score.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reason {
    #[schema(value_type = Id)]
    item: ItemId,
    /// The label, with corrections applied.
    label: f32,
    /// The weight of the observation.
    weight: f32,
    /// In Unix milliseconds.
    timestamp: i64,
    /// The id given by the client or made by the server; null if the observation was deleted
    /// meanwhile.
    #[schema(value_type = Option<Id>)]
    observation_id: Option<ObservationId>,
    /// Its contribution to the score; positive contributions raise it.
    contribution: f64,
    /// The part of the contribution that it has because the user took the item at all, whatever the label; absent under a
    /// version without choice vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_choice: Option<f64>,
    /// The part of the contribution that it has as one of the user's latest labels, by the user's recent bias; absent under
    /// a version without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_recent_bias: Option<f64>,
}

/// A computed part of the features, and what it adds to the score.
#[derive(Debug, Serialize, ToSchema)]
pub struct PartReason {
    part: String,
    /// By the user's mean weights; that of its mean if the part is missing.
    contribution: f64,
}

/// A score and its terms: `prior`, `of_attributes`, all contributions of `because`, and `others` sum to it.
#[derive(Debug, Serialize, ToSchema)]
pub struct WhyReply {
    #[schema(value_type = Id)]
    user: UserId,
    #[schema(value_type = Id)]
    item: ItemId,
    /// The version that scored.
    version: u64,
    /// The number of the user's events that the score reflects.
    user_epoch: u64,
    /// The expected label; under logistic loss, its log-odds.
    score: f32,
    /// The standard error of the score.
    std_error: f32,
    /// Whether anything is known of the item; otherwise it is scored as an average item.
    known: bool,
    /// The score of a user of whom nothing is known.
    prior: f64,
    /// What the attributes of the user add to the score; absent if there are none, or the version knows none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_attributes: Option<f64>,
    /// The observations with the largest contributions by magnitude, largest first.
    because: Vec<Reason>,
    /// The sum of the contributions of all other observations.
    others: f64,
    /// Number of observations that the score comes from, listed or not.
    observations: u64,
    /// What each computed part of the features adds to the score; absent if all features are factors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartReason>,
    /// The names of the parts that are missing, as in a prediction; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
}

impl From<Because> for Reason {
    fn from(because: Because) -> Self {
        let Because { item, label, weight, timestamp, observation_id, contribution, of_choice, of_recent_bias } =
            because;
        Self { item, label, weight, timestamp: timestamp.0, observation_id, contribution, of_choice, of_recent_bias }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(explain_score))
}

/// Explains a user's score of an item by the observations that moved it most.
#[utoipa::path(get, path = "/v1/models/{model}/users/{user}/why/{item}", tag = "serving",
    params(Scored, WhyParams),
    responses((status = 200, body = WhyReply)))]
async fn explain_score(
    State(node): State<Node>,
    Scored { model, user, item }: Scored,
    Params(params): Params<WhyParams>,
) -> Result<Json<WhyReply>, ApiError> {
    let limit = params.limit.unwrap_or(LIMIT_DEFAULT);
    if limit > LIMIT_MAX {
        return Err(ApiError::field("limit", format!("at most {LIMIT_MAX}, got {limit}")));
    }
    let context = params.context.as_deref().map(serde_json::from_str).transpose();
    let context = context.map_err(|problem| {
        let example = "it is an object of fields in JSON, such as {\"device\":\"phone\"}, encoded for the URL";
        ApiError::field("context", format!("{problem}; {example}"))
    })?;
    let request = WhyRequest { model, user, item, limit, min_epoch: params.min_epoch, context };
    let why = node.predictor.explainer().why(&request).await?;
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
        of_attributes: why.of_attributes,
        because: why.because.into_iter().map(Reason::from).collect(),
        others: why.others,
        observations: why.observations,
        parts: why
            .parts
            .into_iter()
            .map(|PartOfScore { part, contribution }| PartReason { part, contribution })
            .collect(),
        missing: why.missing,
    }))
}
