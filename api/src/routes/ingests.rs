//! Observations from message brokers.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::schema::ingests::Ingests;
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_ingests))
}

/// Lists the ingests of this node: how far each has read, and what it waits for.
///
/// Every node of a cluster reads all sources and takes the messages of its own users.
#[utoipa::path(get, path = "/v1/ingests", tag = "node", responses((status = 200, body = Ingests)))]
async fn list_ingests(State(node): State<Node>) -> Json<Ingests> {
    Json(Ingests { ingests: node.ingests.iter().map(|ingest| ingest.status()).collect() })
}
