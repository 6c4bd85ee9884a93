//! Items: upsert, lookup, search and deletion; one at a time, or many as NDJSON.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use celeris_model::{ItemId, ModelName};
use celeris_predictor::{Edited, ItemEdit, ItemSearch, ListedItem, PredictorError};
use celeris_retrieval::Filter;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::asking::Asking;
use crate::error::ApiError;
use crate::extract::{Body, InModel, OfItem, Params, parse};
use crate::line_replies::{self, Replies};
use crate::ndjson::{self, Line, Reading};
use crate::paging;
use crate::schema::ids::Id;
use crate::schema::items::{
    Item, ItemBody, ItemChanged, ItemEdited, ItemEditedLine, ItemLine, ItemSummary, Items, ItemsEdited, change,
    is_something,
};
use crate::state::Node;

/// Maximum length of a search text, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Lines of a stream that share one sync.
const BATCH_LINES: usize = 128;

/// Maximum number of parsed batches that wait to be stored.
const PARSED_BATCHES: usize = 4;

/// Approximate bytes of one reply line in a stream.
const ANSWER_BYTES: usize = 64;

/// Paging and search parameters.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// Maximum number of items; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The last item of the previous page.
    #[param(value_type = Option<Id>)]
    after: Option<ItemId>,
    /// Only items with this text in their id or in a text attribute of at most 256 bytes; case is
    /// ignored.
    #[param(max_length = 256)]
    q: Option<String>,
    /// A filter in the filter language of recommendations, as JSON text.
    filter: Option<String>,
}

impl Page {
    fn search(&self) -> Result<ItemSearch, ApiError> {
        if self.q.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(ApiError::field("q", format!("at most {TEXT_BYTES_MAX} bytes")));
        }
        Ok(ItemSearch { text: self.q.clone(), filter: filter_of(self.filter.as_deref())? })
    }
}

/// Parses the filter of a query parameter, which is JSON text.
///
/// # Errors
/// 422 if the text is not a filter.
pub fn filter_of(text: Option<&str>) -> Result<Option<Filter>, ApiError> {
    let wrong = |error: &dyn std::fmt::Display| ApiError::field("filter", format!("{error}"));
    let filter = |text: &str| {
        let json = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        Filter::from_json(&json).map_err(|error| wrong(&error))
    };
    text.map(filter).transpose()
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_items, edit_items)).routes(routes!(put_item, get_item, delete_item))
}

/// Lists the items of the catalog in the order of their ids: described, observed or trained on,
/// available or not; with `q` or `filter`, those that match.
#[utoipa::path(get, path = "/v1/models/{model}/items", tag = "items", params(InModel, Page),
    responses((status = 200, body = Items)))]
async fn list_items(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(page): Params<Page>,
) -> Result<Json<Items>, ApiError> {
    let limit = paging::entries(page.limit)?;
    let found = node.predictor.catalog().search_items(&model, &page.search()?, page.after.as_ref(), limit)?;
    let (listed, total) = (found.items, found.total);
    let next = paging::next(&listed, limit, |listed| listed.item.clone());
    let summary =
        |listed: ListedItem| ItemSummary { item: listed.item, attributes: listed.attributes, trained: listed.trained };
    Ok(Json(Items { items: listed.into_iter().map(summary).collect(), next, total }))
}

/// Adds or updates an item. It can be recommended as soon as the request is answered.
#[utoipa::path(put, path = "/v1/models/{model}/items/{item}", tag = "items", request_body = ItemBody,
    params(OfItem),
    responses((status = 200, body = ItemChanged)))]
async fn put_item(
    State(node): State<Node>,
    OfItem { model, item }: OfItem,
    Body(body): Body<ItemBody>,
) -> Result<Json<ItemChanged>, ApiError> {
    let change = change(body.features, body.attributes);
    is_something(&change)?;
    let effective = node.predictor.catalog().put_item(&model, &item, change)?.into();
    Ok(Json(ItemChanged { item, effective }))
}

/// Adds, updates and deletes many items: one JSON object per line, or a JSON array of them.
///
/// Returns one line for each, in order, once the change is durable and in effect, and a summary as
/// the last one; to an array, an object with `results` and `summary`. A rejected line is answered
/// with its number and the problem, and the stream continues. If all lines are rejected, the status
/// is that of the first one, unless that takes longer than a second. A stream that sends nothing for
/// longer than `limits.stream_idle_timeout` ends with such a reply; empty lines keep it open.
#[utoipa::path(post, path = "/v1/models/{model}/items", tag = "items",
    request_body(content((ItemLine = "application/x-ndjson"), (Vec<ItemLine> = "application/json"))), params(InModel),
    responses((status = 200, description = "What became of each item, in order",
        content((ItemEditedLine = "application/x-ndjson"), (ItemsEdited = "application/json")))))]
async fn edit_items(
    State(node): State<Node>,
    InModel(model): InModel,
    Asking(principal): Asking,
    request: Request,
) -> Result<Response, ApiError> {
    node.predictor.models().check_serves(&model)?;
    let of_key = node.access.streams().open(principal.as_ref())?;
    let (permit, form) = ndjson::admit(&node.stream_permits, of_key, request.headers())?;
    let reading = Reading::new(&node.limits, BATCH_LINES, |line| parse::<ItemLine>(line)?.edit());
    let batches = ndjson::read((request.into_body(), form), reading, PARSED_BATCHES).await?;
    // A batch is stored when its replies are read, so a client that reads no replies delays only
    // itself.
    let answers = futures_util::stream::unfold((node, model, batches, permit), |mut stream| async {
        let batch = stream.2.recv().await?;
        let (node, model) = (stream.0.clone(), stream.1.clone());
        let answers = stream.0.compute.run(async move { edit_all(&node, &model, batch) }).await;
        // An error ends the stream: the node is stopping.
        Some((answers.map_err(|error| error.problem().detail), stream))
    });
    Ok(line_replies::respond(answers, form).await)
}

/// Applies the edits of a batch with one sync; returns a reply to each.
fn edit_all(node: &Node, model: &ModelName, batch: Vec<Line<(ItemId, ItemEdit)>>) -> Replies {
    let (mut edits, mut refused) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for Line { line, outcome } in batch {
        refused.push((line, outcome.map(|edit| edits.push(edit)).err()));
    }
    // An error of the whole batch is reported for every line.
    let (mut edited, failed) = match node.predictor.catalog().edit_items(model, &edits) {
        Ok(edited) => (edited.into_iter().zip(edits), None),
        Err(error) => (Vec::new().into_iter().zip(Vec::new()), Some(ApiError::from(error))),
    };
    let mut replies = Replies::with_capacity(refused.len() * ANSWER_BYTES);
    for (line, refused) in refused {
        let answer = match refused.or_else(|| failed.clone()) {
            Some(error) => Err(error),
            None => answer(edited.next().expect("every edit is answered")),
        };
        match answer {
            Ok(edited) => replies.taken(&edited),
            Err(error) => replies.rejected(line, &error),
        }
    }
    replies
}

fn answer((edited, (item, _)): (Result<Edited, PredictorError>, (ItemId, ItemEdit))) -> Result<ItemEdited, ApiError> {
    Ok(match edited? {
        Edited::Put(effective) => ItemEdited { item, effective: Some(effective.into()), deleted: None },
        Edited::Deleted => ItemEdited { item, effective: None, deleted: Some(true) },
    })
}

/// Returns an item: its features, their source and its attributes.
#[utoipa::path(get, path = "/v1/models/{model}/items/{item}", tag = "items",
    params(OfItem),
    responses((status = 200, body = Item)))]
async fn get_item(State(node): State<Node>, OfItem { model, item }: OfItem) -> Result<Json<Item>, ApiError> {
    let Some(view) = node.predictor.catalog().item(&model, &item)? else {
        return Err(ApiError::not_found(format!("model {model} knows no item {item}")));
    };
    Ok(Json(Item {
        item,
        trained: view.trained,
        source: view.source.into(),
        features: view.features,
        offset: view.offset,
        given_features: view.given_features,
        attributes: view.attributes,
    }))
}

/// Deletes an item, whether trained or added by a caller.
///
/// It is not recommended again unless it is added again. Observations of it still count for users.
#[utoipa::path(delete, path = "/v1/models/{model}/items/{item}", tag = "items",
    params(OfItem),
    responses((status = 204, description = "The item is deleted")))]
async fn delete_item(State(node): State<Node>, OfItem { model, item }: OfItem) -> Result<StatusCode, ApiError> {
    node.predictor.catalog().delete_item(&model, &item)?;
    Ok(StatusCode::NO_CONTENT)
}
