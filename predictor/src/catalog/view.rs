//! Figures of catalogs and searches, for whoever looks after the node.

use celeris_model::{ModelName, StreamName, VersionId};

use super::RetrievalView;
use crate::node::Predictor;

/// A stream's catalog in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogView {
    /// The stream.
    pub stream: StreamName,
    /// Items that may be found.
    pub items: usize,
    /// Rows: these items, and those that were deleted or are in no table any more.
    pub rows: usize,
    /// Different attributes.
    pub fields: usize,
    /// Bytes in memory, about.
    pub bytes: usize,
}

/// What is searched of a model's active version, in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchView {
    /// The model.
    pub model: ModelName,
    /// Its active version.
    pub version: VersionId,
    /// The figures.
    pub retrieval: RetrievalView,
}

impl Predictor {
    /// Ends what is under way behind requests, and waits for that. Requests are answered on.
    pub fn stop(&self) {
        self.background.stop();
    }

    /// The catalogs of the streams that models serve.
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

    /// How the active version of every model is searched.
    #[must_use]
    pub fn searches(&self) -> Vec<SearchView> {
        let view = |model| {
            let version = self.active(&model).ok()?;
            Some(SearchView { version: version.id, retrieval: version.retrieval().view(), model })
        };
        self.served().into_iter().filter_map(view).collect()
    }
}
