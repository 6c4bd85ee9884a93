//! Similar items.

use axum::Json;
use axum::extract::State;
use celeris_model::ItemId;
use celeris_predictor::{SimilarItem, SimilarRequest};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{OfItem, Params};
use crate::routes::items::filter_of;
use crate::schema::ids::Id;
use crate::state::Node;

/// Default number of items.
const K_DEFAULT: usize = 10;

/// Maximum number of items.
const K_MAX: usize = 1000;

/// Query parameters of similar items.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SimilarParams {
    /// Maximum number of items; 10 by default.
    #[param(minimum = 1, maximum = 1000)]
    k: Option<usize>,
    /// Only items that match this filter, as JSON text: `all`, `any`, `not`, `eq`, `in`, `range`,
    /// `exists` over attributes.
    filter: Option<String>,
}

/// A similar item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Alike {
    #[schema(value_type = Id)]
    item: ItemId,
    /// The cosine similarity of both items' features without the constant, from -1 to 1.
    similarity: f32,
}

/// Items similar to an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct SimilarReply {
    #[schema(value_type = Id)]
    item: ItemId,
    /// The version whose features were compared.
    version: u64,
    /// The most similar items, best first, without the item itself. Empty if nothing is known of
    /// the item to compare.
    items: Vec<Alike>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(similar_items))
}

/// Returns the items of the whole catalog whose features are most similar to those of an item.
#[utoipa::path(get, path = "/v1/models/{model}/items/{item}/similar", tag = "items",
    params(OfItem, SimilarParams),
    responses((status = 200, body = SimilarReply)))]
async fn similar_items(
    State(node): State<Node>,
    OfItem { model, item }: OfItem,
    Params(params): Params<SimilarParams>,
) -> Result<Json<SimilarReply>, ApiError> {
    let k = params.k.unwrap_or(K_DEFAULT);
    if !(1..=K_MAX).contains(&k) {
        return Err(ApiError::field("k", format!("must be from 1 to {K_MAX}, got {k}")));
    }
    let request = SimilarRequest { model, item, k, filter: filter_of(params.filter.as_deref())? };
    let similar = node.predictor.recommender().similar(&request)?;
    let alike = |SimilarItem { item, similarity }| Alike { item, similarity };
    let items = similar.items.into_iter().map(alike).collect();
    Ok(Json(SimilarReply { item: request.item, version: similar.version.0, items }))
}
