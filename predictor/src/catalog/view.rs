//! Figures of catalogs and searches, for monitoring.

use celeris_model::{ModelName, StreamName, VersionId};

use super::RetrievalView;
use crate::node::Predictor;

#[derive(Debug, Clone, PartialEq)]
pub struct CatalogView {
    pub stream: StreamName,
    /// Items that can be found.
    pub items: usize,
    /// Rows: these items, and those that were deleted or are no longer in any table.
    pub rows: usize,
    /// Distinct attribute names.
    pub fields: usize,
    /// Approximate bytes in memory.
    pub bytes: usize,
}

/// The search index of a model's active version, in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchView {
    pub model: ModelName,
    pub version: VersionId,
    pub retrieval: RetrievalView,
}

impl Predictor {
    /// Stops background work and waits for it. Requests are still answered.
    pub fn stop(&self) {
        self.background.stop();
    }

    /// The catalogs of the streams that have serving models.
    #[must_use]
    pub fn catalogs(&self) -> Vec<CatalogView> {
        let view = |catalog: &super::StreamCatalog| {
            let held = catalog.catalog.read();
            let (size, bytes) = (held.size(), held.bytes());
            CatalogView {
                stream: catalog.stream.clone(),
                items: size.items,
                rows: size.rows,
                fields: size.fields,
                bytes,
            }
        };
        self.catalogs_in_use().iter().map(|catalog| view(catalog)).collect()
    }

    /// Search figures of every model's active version.
    #[must_use]
    pub fn searches(&self) -> Vec<SearchView> {
        let view = |model| {
            let version = self.active(&model).ok()?;
            Some(SearchView { version: version.id, retrieval: version.retrieval().view(), model })
        };
        self.served().into_iter().filter_map(view).collect()
    }
}
