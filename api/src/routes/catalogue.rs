//! Figures of catalogues and searches among the metrics.

use celeris_predictor::{CatalogueView, RetrievalView, SearchView};

use crate::state::Node;

/// Puts the figures of every stream's catalogue and of every model's search into the metrics.
pub fn render(node: &Node) {
    node.predictor.catalogues().iter().for_each(of_stream);
    node.predictor.searches().iter().for_each(of_model);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of items and bytes stay below 2^53")]
fn of_stream(catalogue: &CatalogueView) {
    let labels = [("stream", catalogue.stream.to_string())];
    metrics::gauge!("celeris_catalogue_items", &labels).set(catalogue.items as f64);
    metrics::gauge!("celeris_catalogue_rows", &labels).set(catalogue.rows as f64);
    metrics::gauge!("celeris_catalogue_attributes", &labels).set(catalogue.fields as f64);
    metrics::gauge!("celeris_catalogue_bytes", &labels).set(catalogue.bytes as f64);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of items and bytes stay below 2^53")]
fn of_model(search: &SearchView) {
    let RetrievalView { fresh, bytes, graph_rows, graph_bytes, recall_samples, recall } = search.retrieval;
    let labels = [("model", search.model.to_string())];
    metrics::gauge!("celeris_search_fresh_items", &labels).set(fresh as f64);
    metrics::gauge!("celeris_search_bytes", &labels).set(bytes as f64);
    metrics::gauge!("celeris_search_graph_rows", &labels).set(graph_rows.unwrap_or(0) as f64);
    metrics::gauge!("celeris_search_graph_bytes", &labels).set(graph_bytes as f64);
    metrics::gauge!("celeris_search_recall_samples", &labels).set(recall_samples as f64);
    // One that was never measured is not shown, rather than as perfect.
    if let Some(recall) = recall {
        metrics::gauge!("celeris_search_recall", &labels).set(recall);
    }
}
