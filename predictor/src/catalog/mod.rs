//! The items that models may recommend: one catalog for each stream, and one search index for each
//! serving version.
//!
//! The catalog is loaded when the stream's first model is served, and updated within every request
//! that changes an item, or observes one for the first time: the change is visible when the request
//! returns. An item's first observation notes the item in the same atomic write, so that the catalog
//! is loaded without reading the log. A change is stored first
//! and then applied to the catalog, both under the item's lock, so that memory and disk agree on
//! the order of changes. The delta indexes of all versions that serve or are being prepared are
//! updated in the same request; a version that is being prepared is registered for changes before
//! it reads the catalog, so it misses none.

mod applied;
mod context_fields;
mod edits;
mod listing;
mod load;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use celeris_model::{ItemId, ModelName, StreamName, VersionId};
use celeris_retrieval::Row;
use celeris_storage::Storage;
use parking_lot::Mutex;

use crate::error::PredictorError;
use crate::features::{FeatureScope, FeatureStore};
use crate::index::{CatalogView, ItemNews, Retrieval, RetrievalView, StreamCatalog};
use crate::models::{Models, ServedModel};
use crate::version::ServingVersion;

pub use context_fields::DefineElsewhere;
pub(crate) use context_fields::read as read_fields;
pub use edits::{Edited, ItemChange, ItemEdit};
pub use listing::{FoundItems, ItemDescription, ItemSearch, ItemView, ListedItem};

/// The catalogs and search indexes of a node.
pub struct ItemCatalog {
    storage: Storage,
    models: Arc<Models>,
    features: Arc<FeatureStore>,
    /// The catalogs in use; weak, so that a catalog is dropped with the last model and request that
    /// use it.
    streams: Mutex<HashMap<StreamName, Weak<StreamCatalog>>>,
    /// The versions that serve or are being prepared, which are notified of changes.
    versions: Mutex<Vec<Weak<ServingVersion>>>,
    /// Held while fields of contexts are defined, from reading those that are.
    defining: Mutex<()>,
    define_elsewhere: OnceLock<DefineElsewhere>,
    /// Another node has not defined fields; it is asked again from then on.
    undefined_until: Mutex<Option<Instant>>,
}

/// The search index of a model's active version, in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchView {
    pub model: ModelName,
    pub version: VersionId,
    pub retrieval: RetrievalView,
}

impl ItemCatalog {
    pub(crate) fn new(storage: Storage, models: Arc<Models>, features: Arc<FeatureStore>) -> Self {
        Self {
            storage,
            models,
            features,
            streams: Mutex::default(),
            versions: Mutex::default(),
            defining: Mutex::default(),
            define_elsewhere: OnceLock::new(),
            undefined_until: Mutex::default(),
        }
    }

    /// Builds the search index of a version before it serves: its table, and the items outside it.
    pub(crate) fn equip(&self, stream: &StreamName, version: &Arc<ServingVersion>) -> Result<(), PredictorError> {
        let catalog = self.stream(stream)?;
        version.equip(Retrieval::new(&version.theta, Arc::clone(&catalog)));
        // From here on the version receives every change, so only items described or observed before
        // are missing.
        self.versions.lock().push(Arc::downgrade(version));
        version
            .retrieval()
            .fill(&catalog.listed(), |item| self.features.read(version, FeatureScope::of_catalog(stream), item))
    }

    /// Lets an item be found after its first observation, which is durable and notes it.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn list_observed(&self, catalog: &StreamCatalog, item: &ItemId) -> Result<(), PredictorError> {
        let rows = catalog.take_in(&[ItemNews::Observed(item)]);
        self.refresh(&catalog.stream, &rows)
    }

    /// Updates these rows in every version of the stream with the current features of their items.
    fn refresh(&self, stream: &StreamName, rows: &[Row]) -> Result<(), PredictorError> {
        for version in self.versions(stream) {
            version
                .retrieval()
                .refresh(rows, |item| self.features.read(&version, FeatureScope::of_catalog(stream), item))?;
        }
        Ok(())
    }

    /// The versions of a stream that serve or are being prepared.
    fn versions(&self, stream: &StreamName) -> Vec<Arc<ServingVersion>> {
        let mut versions = self.versions.lock();
        versions.retain(|version| version.strong_count() > 0);
        let of_stream = |version: &Arc<ServingVersion>| version.retrieval().catalog().stream == *stream;
        versions.iter().filter_map(Weak::upgrade).filter(of_stream).collect()
    }

    /// The catalog of a stream, if it is in memory.
    pub(crate) fn loaded(&self, stream: &StreamName) -> Option<Arc<StreamCatalog>> {
        self.streams.lock().get(stream).and_then(Weak::upgrade)
    }

    /// The catalog of a stream, loaded from the store if it is not in memory.
    fn stream(&self, stream: &StreamName) -> Result<Arc<StreamCatalog>, PredictorError> {
        let mut streams = self.streams.lock();
        streams.retain(|_, catalog| catalog.strong_count() > 0);
        if let Some(found) = streams.get(stream).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let catalog = Arc::new(load::load(&self.storage, stream)?);
        streams.insert(stream.clone(), Arc::downgrade(&catalog));
        Ok(catalog)
    }

    /// The catalogs of the streams that have serving models.
    #[must_use]
    pub fn catalogs(&self) -> Vec<CatalogView> {
        let catalogs: Vec<_> = self.streams.lock().values().filter_map(Weak::upgrade).collect();
        catalogs.iter().map(|catalog| catalog.view()).collect()
    }

    /// Search figures of every model's active version.
    #[must_use]
    pub fn searches(&self) -> Vec<SearchView> {
        let view = |model: Arc<ServedModel>| {
            let version = model.active.load();
            SearchView { model: model.name.clone(), version: version.id, retrieval: version.retrieval().view() }
        };
        self.models.served().into_iter().map(view).collect()
    }
}
