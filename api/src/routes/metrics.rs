//! The metrics of the node.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use celeris_export::SealingStatus;
use celeris_storage::{DiskSpace, Verification};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::node::keep_series;
use crate::routes::health::check_is_ready;
use crate::routes::{catalog, exploration, quality};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_metrics))
}

/// Returns the metrics in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "node",
    responses((status = 200, body = String, description = "The metrics, in the Prometheus text format")))]
async fn get_metrics(State(node): State<Node>) -> Result<impl IntoResponse, ApiError> {
    let busy = |_| ApiError::unavailable("too many requests for metrics are in progress; try again");
    let _permit = node.metrics_permits.try_acquire().map_err(busy)?;
    let rendered = node.clone();
    let text = node.compute.run(async move { render(&rendered) }).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

/// The metrics of the process, after those that are read from the node.
fn render(node: &Node) -> String {
    let log = node.storage.log().counters();
    metrics::counter!("celeris_log_commits_total").absolute(log.commits);
    metrics::counter!("celeris_log_records_total").absolute(log.records);
    metrics::counter!("celeris_log_bytes_total").absolute(log.bytes);
    let written = node.storage.bytes_written();
    metrics::counter!("celeris_log_wal_bytes_total").absolute(written.wal);
    metrics::counter!("celeris_log_flush_bytes_total").absolute(written.flush);
    render_verification(&node.storage.verification());
    node.backups.render();
    render_readiness(node);
    exploration::render(node);
    catalog::render(node);
    for (stream, sealed) in node.sealer.iter().flat_map(|sealer| sealer.status()) {
        render_sealing(stream.as_str(), &sealed);
    }
    if let Err(unreadable) = quality::render(node) {
        tracing::warn!(problem = %unreadable.problem().detail, "the quality of models is missing from the metrics");
    }
    // Remove the series of models deleted meanwhile.
    keep_series(node);
    node.series.render()
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; bytes of a disk stay below 2^53")]
fn render_readiness(node: &Node) {
    metrics::gauge!("celeris_ready").set(u8::from(check_is_ready(node).is_ok()));
    metrics::gauge!("celeris_store_poisoned").set(u8::from(node.storage.health().is_err()));
    metrics::gauge!("celeris_disk_needed_bytes").set(node.storage.disk_needed() as f64);
    if let Ok(space) = DiskSpace::of(node.storage.dir()) {
        metrics::gauge!("celeris_disk_free_bytes").set(space.free as f64);
        metrics::gauge!("celeris_disk_total_bytes").set(space.total as f64);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; milliseconds since 1970 stay below 2^53")]
fn render_verification(found: &Verification) {
    metrics::counter!("celeris_verified_bytes_total").absolute(found.bytes);
    metrics::gauge!("celeris_store_damaged").set(u8::from(found.damage.is_some()));
    if let Some(time) = found.last_pass {
        metrics::gauge!("celeris_verified_timestamp_seconds").set(time.0 as f64 / 1e3);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of rows and bytes stay below 2^53")]
fn render_sealing(stream: &str, sealed: &SealingStatus) {
    let stream = || [("stream", stream.to_owned())];
    metrics::gauge!("celeris_sealed_segments", &stream()).set(sealed.segments as f64);
    metrics::gauge!("celeris_sealed_rows", &stream()).set(sealed.rows as f64);
    metrics::gauge!("celeris_sealed_bytes", &stream()).set(sealed.bytes as f64);
    metrics::gauge!("celeris_sealing_lag_records", &stream()).set(sealed.lag_records as f64);
    metrics::gauge!("celeris_sealing_lag_seconds", &stream()).set(sealed.lag_seconds);
    metrics::counter!("celeris_sealing_rewrites_total", &stream()).absolute(sealed.rewrites);
    metrics::counter!("celeris_sealing_merges_total", &stream()).absolute(sealed.merges);
    metrics::counter!("celeris_sealing_failures_total", &stream()).absolute(sealed.failures);
}
