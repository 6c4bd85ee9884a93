//! The audit log of a model: events, their actors and reasons.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{InModel, Params};
use crate::paging;
use crate::schema::events::{Event, Events};
use crate::state::Node;

/// Paging parameters of a model's events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Only events with a lower number; by default the newest events.
    #[param(format = "uint64")]
    before: Option<u64>,
    /// Maximum number of events; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_events))
}

/// Lists the events of a model, newest first. The newest 10,000 events of each model are kept.
#[utoipa::path(get, path = "/v1/models/{model}/events", tag = "quality", params(InModel, Paging),
    responses((status = 200, body = Events)))]
async fn list_events(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(Paging { before, limit }): Params<Paging>,
) -> Result<Json<Events>, ApiError> {
    let limit = paging::entries(limit)?;
    let registry = node.manager.registry();
    let page = registry.audit().page(registry.model(&model)?.id, before, limit)?;
    let events = page.events.into_iter().map(Event::from).collect();
    Ok(Json(Events { events, unreadable: page.unreadable, next: page.next, dropped: page.dropped }))
}
