//! Liveness and readiness checks.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// Liveness: answers 200 while the process runs.
#[utoipa::path(get, path = "/healthz", tag = "node", responses((status = 200, body = String, description = "The process runs")))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: answers 200 while the node accepts observations and its log is undamaged.
#[utoipa::path(get, path = "/readyz", tag = "node",
    responses((status = 200, body = String, description = "The node accepts observations")))]
async fn readyz(State(node): State<Node>) -> Result<&'static str, ApiError> {
    node.storage.check_accepts()?;
    Ok("ready\n")
}
