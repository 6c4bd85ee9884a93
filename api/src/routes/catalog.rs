//! Metrics of catalogs and searches.

use celeris_predictor::{CatalogView, RetrievalView, SearchView};

use crate::state::Node;

/// Sets the gauges of every stream's catalog and every model's search index.
pub fn render(node: &Node) {
    node.predictor.catalog().catalogs().iter().for_each(of_stream);
    node.predictor.catalog().searches().iter().for_each(of_model);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of items and bytes stay below 2^53")]
fn of_stream(catalog: &CatalogView) {
    let labels = [("stream", catalog.stream.to_string())];
    metrics::gauge!("celeris_catalog_items", &labels).set(catalog.items as f64);
    metrics::gauge!("celeris_catalog_rows", &labels).set(catalog.rows as f64);
    metrics::gauge!("celeris_catalog_attributes", &labels).set(catalog.fields as f64);
    metrics::gauge!("celeris_catalog_bytes", &labels).set(catalog.bytes as f64);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of items and bytes stay below 2^53")]
fn of_model(search: &SearchView) {
    let RetrievalView { fresh, bytes, graph_rows, graph_bytes, recall_samples, recall } = search.retrieval;
    let labels = [("model", search.model.to_string())];
    metrics::gauge!("celeris_search_delta_items", &labels).set(fresh as f64);
    metrics::gauge!("celeris_search_bytes", &labels).set(bytes as f64);
    metrics::gauge!("celeris_search_graph_rows", &labels).set(graph_rows.unwrap_or(0) as f64);
    metrics::gauge!("celeris_search_graph_bytes", &labels).set(graph_bytes as f64);
    metrics::gauge!("celeris_search_recall_samples", &labels).set(recall_samples as f64);
    // A recall that was never measured is omitted rather than reported as perfect.
    if let Some(recall) = recall {
        metrics::gauge!("celeris_search_recall", &labels).set(recall);
    }
}
