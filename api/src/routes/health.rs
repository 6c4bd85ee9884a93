//! Whether the process lives, and whether it serves.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "node", responses((status = 200, body = String)))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the node takes observations and answers from a sound log.
#[utoipa::path(get, path = "/readyz", tag = "node",
    responses((status = 200, body = String), (status = 503, body = Problem)))]
async fn readyz(State(node): State<Node>) -> Result<&'static str, ApiError> {
    node.storage.check_accepts()?;
    Ok("ready\n")
}
