//! The audit of a model's life: what happened, who or what did it, and why.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use celeris_manager::{Actor, Event as Recorded, EventKind, NumberedEvent};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{InModel, Params};
use crate::state::Node;

/// Events that a page holds where the request does not say.
const PAGE_EVENTS: usize = 100;

/// The most events that a page holds.
const PAGE_EVENTS_MAX: usize = 1000;

/// Which page of a model's events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Paging {
    /// Only events with a lower number; the newest where it is missing.
    before: Option<u64>,
    /// At most so many; 100 by default, at most 1000.
    limit: Option<usize>,
}

/// One event of a model's life.
#[derive(Debug, Serialize, ToSchema)]
pub struct Event {
    /// Counts the model's events from 1.
    number: u64,
    /// When it happened, in Unix milliseconds.
    at: i64,
    /// `created`, `triggered`, `training_started`, `training_failed`, `gate_refused`, `gate_passed`, `activated`,
    /// `rolled_back`, `pinned`, `unpinned`, `pruned`, `registered` or `configured`.
    #[schema(value_type = String)]
    kind: EventKind,
    /// `operator`, `trigger`, `watch` or `job`.
    #[schema(value_type = String)]
    by: Actor,
    /// Why, in words and figures.
    why: String,
    /// The version that served before.
    before: Option<u64>,
    /// The version that it led to.
    after: Option<u64>,
    /// What else belongs to it.
    #[schema(value_type = Object)]
    details: BTreeMap<String, serde_json::Value>,
}

/// A page of events, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Events {
    events: Vec<Event>,
    /// Why events of the page that are there could not be read.
    unreadable: Vec<String>,
    /// Pass it as `before` to get the next page; null on the last one.
    next: Option<u64>,
    /// Older events that the model has had and that are kept no more.
    dropped: u64,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list))
}

fn describe(NumberedEvent { number, event }: NumberedEvent) -> Event {
    let Recorded { at, model: _, model_id: _, kind, by, why, before, after, details } = event;
    Event {
        number,
        at: at.0,
        kind,
        by,
        why,
        before: before.map(|version| version.0),
        after: after.map(|version| version.0),
        details,
    }
}

/// What happened to a model, newest first. The newest 10,000 events of each model are kept.
#[utoipa::path(get, path = "/v1/models/{model}/events", tag = "quality", params(("model" = String, Path), Paging),
    responses((status = 200, body = Events), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn list(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(Paging { before, limit }): Params<Paging>,
) -> Result<Json<Events>, ApiError> {
    let limit = limit.unwrap_or(PAGE_EVENTS);
    if !(1..=PAGE_EVENTS_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("limit: must be from 1 to {PAGE_EVENTS_MAX}, got {limit}")));
    }
    let page = tokio::task::block_in_place(|| node.manager.events(&model, before, limit))?;
    let events = page.events.into_iter().map(describe).collect();
    Ok(Json(Events { events, unreadable: page.unreadable, next: page.next, dropped: page.dropped }))
}
