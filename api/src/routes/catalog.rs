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
    let RetrievalView { fresh, bytes } = search.retrieval;
    let labels = [("model", search.model.to_string())];
    metrics::gauge!("celeris_search_delta_items", &labels).set(fresh as f64);
    metrics::gauge!("celeris_search_bytes", &labels).set(bytes as f64);
}
