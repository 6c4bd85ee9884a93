//! Whether the process lives, whether it serves, and its metrics.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(render_metrics))
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
    node.storage.health()?;
    Ok("ready\n")
}

/// Metrics as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "node", responses((status = 200, body = String)))]
async fn render_metrics(State(node): State<Node>) -> impl IntoResponse {
    let log = node.storage.counters();
    metrics::counter!("celeris_log_commits_total").absolute(log.commits);
    metrics::counter!("celeris_log_records_total").absolute(log.records);
    metrics::counter!("celeris_log_bytes_total").absolute(log.bytes);
    metrics::counter!("celeris_decisions_dropped_total").absolute(node.storage.decisions_dropped());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], node.metrics.render())
}
