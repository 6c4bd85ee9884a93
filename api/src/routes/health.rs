//! Liveness and readiness checks.

use axum::extract::State;
use celeris_cluster::LogStatus;
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

/// Readiness: answers 200 while the node accepts observations and its log is undamaged; in a cluster, once
/// it has the map of the owners, and while it follows all logs.
#[utoipa::path(get, path = "/readyz", tag = "node",
    responses((status = 200, body = String, description = "The node accepts observations")))]
async fn readyz(State(node): State<Node>) -> Result<&'static str, ApiError> {
    check_is_ready(&node)?;
    Ok("ready\n")
}

/// Checks that the node accepts observations.
///
/// # Errors
/// 503.
pub fn check_is_ready(node: &Node) -> Result<(), ApiError> {
    node.storage.check_accepts()?;
    let problem = node.replication.as_ref().and_then(|replication| {
        let status = replication.status();
        let of_log = |(log, status): (String, LogStatus)| Some(format!("{log}: {}", status.problem?));
        status.failure.or_else(|| status.logs.into_iter().find_map(of_log))
    });
    if let Some(problem) = problem {
        return Err(ApiError::unavailable(problem));
    }
    if !node.has_joined() {
        return Err(ApiError::unavailable(
            "the node joins its cluster: it has no map of the owners, or lacks models and items",
        ));
    }
    Ok(())
}
