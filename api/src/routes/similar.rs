//! Items like an item.

use axum::Json;
use axum::extract::State;
use celeris_model::ItemId;
use celeris_predictor::{SimilarItem, SimilarRequest};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{OfItem, Params};
use crate::routes::items::filter_of;
use crate::state::Node;

/// Items named unless told otherwise.
const K_DEFAULT: usize = 10;

/// Items named at most.
const K_MAX: usize = 1000;

/// Which items, and how many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// How many to name; 10 by default, at most 1,000.
    k: Option<usize>,
    /// Only what this JSON holds for: `all`, `any`, `not`, `eq`, `in`, `range`, `exists` over attributes.
    filter: Option<String>,
}

/// An item that is like another.
#[derive(Debug, Serialize, ToSchema)]
pub struct Alike {
    #[schema(value_type = String)]
    item: ItemId,
    /// The cosine of both items' features without the constant, from -1 to 1.
    similarity: f32,
}

/// What is like an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct SimilarReply {
    #[schema(value_type = String)]
    item: ItemId,
    /// The version whose features were compared.
    version: u64,
    /// The most alike first; never the item itself. Empty where nothing is known of it that another could be like.
    items: Vec<Alike>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(similar))
}

/// The items of the whole catalog whose features are most like an item's.
#[utoipa::path(get, path = "/v1/models/{model}/items/{item}/similar", tag = "items",
    params(("model" = String, Path), ("item" = String, Path), Wanted),
    responses((status = 200, body = SimilarReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
async fn similar(
    State(node): State<Node>,
    OfItem { model, item }: OfItem,
    Params(wanted): Params<Wanted>,
) -> Result<Json<SimilarReply>, ApiError> {
    let k = wanted.k.unwrap_or(K_DEFAULT);
    if !(1..=K_MAX).contains(&k) {
        return Err(ApiError::invalid(format!("k: must be from 1 to {K_MAX}, got {k}")));
    }
    let request = SimilarRequest { model, item, k, filter: filter_of(wanted.filter.as_deref())? };
    let similar = node.predictor.similar(&request)?;
    let alike = |SimilarItem { item, similarity }| Alike { item, similarity };
    let items = similar.items.into_iter().map(alike).collect();
    Ok(Json(SimilarReply { item: request.item, version: similar.version.0, items }))
}
