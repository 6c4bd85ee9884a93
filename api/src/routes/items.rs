//! Items: described, looked up, forgotten.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use celeris_model::{FeatureOrigin, ItemId};
use celeris_predictor::{Effective, ItemChange, ListedItem};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel, OfItem, Params};
use crate::state::Node;

/// Items of one page of a listing, at most.
const PAGE_MAX: usize = 1000;

/// Attributes of one item, at most.
const ATTRIBUTES_MAX: usize = 256;

/// What to say of an item; what is absent stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemBody {
    /// Features of the model's dimension, the last entry 1.
    features: Option<Vec<f32>>,
    /// Attributes, replacing those before.
    #[schema(value_type = Option<Object>)]
    attributes: Option<Map<String, Value>>,
}

/// When a change takes effect.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemChanged {
    #[schema(value_type = String)]
    item: ItemId,
    /// For features: `now`, or `next_version` where the active version has learnt from others. Attributes: always now.
    effective: &'static str,
}

/// An item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Item {
    #[schema(value_type = String)]
    item: ItemId,
    /// Whether the active version was trained on it.
    trained: bool,
    /// Where the features come from: `trained`, `given` by a caller, made of the item's `attributes`, or `stand_in`, the
    /// version's for an item of which nothing is known.
    #[schema(value_type = String)]
    source: FeatureOrigin,
    /// The features that the active version scores it with.
    features: Vec<f32>,
    /// The expected label for a user with zero weights.
    offset: f32,
    /// The features that a caller gave.
    given_features: Option<Vec<f32>>,
    #[schema(value_type = Option<Object>)]
    attributes: Option<Map<String, Value>>,
}

/// One item of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemSummary {
    #[schema(value_type = String)]
    item: ItemId,
    #[schema(value_type = Object)]
    attributes: Map<String, Value>,
    trained: bool,
}

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
pub struct Items {
    items: Vec<ItemSummary>,
    /// Pass it as `after` for the next page; null on the last.
    #[schema(value_type = Option<String>)]
    next: Option<ItemId>,
}

/// Which page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Items on it, at most 1000; 100 by default.
    limit: Option<usize>,
    /// The last item of the page before.
    #[param(value_type = Option<String>)]
    after: Option<ItemId>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(put, get, delete))
}

/// The items that were described, in the order of their ids.
#[utoipa::path(get, path = "/v1/models/{model}/items", tag = "items", params(("model" = String, Path), Page),
    responses((status = 200, body = Items), (status = 404, body = Problem)))]
async fn list(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(page): Params<Page>,
) -> Result<Json<Items>, ApiError> {
    let limit = page.limit.unwrap_or(100);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("limit: must be from 1 to {PAGE_MAX}, got {limit}")));
    }
    let listed = node.predictor.items(&model, page.after.as_ref(), limit)?;
    let next = if listed.len() == limit { listed.last().map(|listed| listed.item.clone()) } else { None };
    let summary =
        |listed: ListedItem| ItemSummary { item: listed.item, attributes: listed.attributes, trained: listed.trained };
    Ok(Json(Items { items: listed.into_iter().map(summary).collect(), next }))
}

/// Describes an item.
#[utoipa::path(put, path = "/v1/models/{model}/items/{item}", tag = "items", request_body = ItemBody,
    params(("model" = String, Path), ("item" = String, Path)),
    responses((status = 200, body = ItemChanged), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn put(
    State(node): State<Node>,
    OfItem { model, item }: OfItem,
    Body(body): Body<ItemBody>,
) -> Result<Json<ItemChanged>, ApiError> {
    if body.features.is_none() && body.attributes.is_none() {
        return Err(ApiError::invalid("missing field `features` or `attributes`"));
    }
    if body.attributes.as_ref().is_some_and(|attributes| attributes.len() > ATTRIBUTES_MAX) {
        return Err(ApiError::invalid(format!("attributes: at most {ATTRIBUTES_MAX} of an item")));
    }
    let change = ItemChange { features: body.features, attributes: body.attributes };
    let effective = match node.predictor.put_item(&model, &item, change)? {
        Effective::Now => "now",
        Effective::NextVersion => "next_version",
    };
    Ok(Json(ItemChanged { item, effective }))
}

/// What is known of an item.
#[utoipa::path(get, path = "/v1/models/{model}/items/{item}", tag = "items",
    params(("model" = String, Path), ("item" = String, Path)),
    responses((status = 200, body = Item), (status = 404, body = Problem)))]
async fn get(State(node): State<Node>, OfItem { model, item }: OfItem) -> Result<Json<Item>, ApiError> {
    let Some(view) = node.predictor.item(&model, &item)? else {
        return Err(ApiError::not_found(format!("model {model} knows no item {item}")));
    };
    Ok(Json(Item {
        item,
        trained: view.trained,
        source: view.source,
        features: view.features,
        offset: view.offset,
        given_features: view.given_features,
        attributes: view.attributes,
    }))
}

/// Forgets what was said of an item. What users were taught with it stays.
#[utoipa::path(delete, path = "/v1/models/{model}/items/{item}", tag = "items",
    params(("model" = String, Path), ("item" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
async fn delete(State(node): State<Node>, OfItem { model, item }: OfItem) -> Result<StatusCode, ApiError> {
    if node.predictor.delete_item(&model, &item)? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::not_found(format!("nobody has described item {item} to model {model}")))
}
