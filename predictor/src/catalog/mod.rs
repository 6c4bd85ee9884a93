//! The items that a stream's models may recommend, in memory: one catalog for each stream, and one search index for
//! each serving version.
//!
//! The catalog is loaded when the stream's first model is served, and updated within every request that changes an
//! item: the change is visible when the request returns. A change is stored first and then applied to the catalog, both
//! under the item's lock, so that memory and disk agree on the order of changes. The delta indexes of all versions that serve
//! or are being prepared are updated in the same request; a version that is being prepared is registered for changes before
//! it reads the catalog, so it misses none.

mod background;
mod load;
mod retrieval;
mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use celeris_model::{ItemId, StreamName, Timestamp};
use celeris_retrieval::catalog::{AttributeError, CatalogSize, Found, Page, Search};
use celeris_retrieval::{CandidateSet, Catalog, Filter, Hit, Row, best_of};
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value};

use crate::error::PredictorError;
use crate::node::{Predictor, RequestContext};
use crate::version::ServingVersion;

pub(crate) use background::Background;
pub(crate) use retrieval::Retrieval;
pub use retrieval::RetrievalView;
pub use view::{CatalogView, SearchView};

use background::Sample;
use retrieval::matrix;

/// Rows changed under one lock; readers wait for about ten microseconds.
const ROWS_AT_ONCE: usize = 512;

/// Interval, in graph searches, at which a search is repeated exactly in the background.
const SAMPLED_EVERY: u32 = 256;

/// The catalogs in use, by stream; weak, so that a catalog is dropped with the last model and request that use it.
pub(crate) type Catalogs = Mutex<HashMap<StreamName, Weak<StreamCatalog>>>;

/// A durable change of an item.
pub(crate) enum ItemNews<'a> {
    Described(&'a ItemId, &'a Map<String, Value>),
    /// Its features were given again; its attributes are unchanged.
    Given(&'a ItemId),
    Deleted(&'a ItemId),
}

/// The items of one stream, shared by its models.
pub(crate) struct StreamCatalog {
    stream: StreamName,
    /// Held for microseconds: longer work is done outside.
    catalog: RwLock<Catalog>,
    /// The versions to be notified of changes.
    versions: Mutex<Vec<Weak<ServingVersion>>>,
}

impl StreamCatalog {
    /// The row of an item, whether it may be shown or not.
    pub(crate) fn row_of(&self, item: &ItemId) -> Option<Row> {
        self.catalog.read().row(item)
    }

    pub(crate) fn rows_of<'i>(&self, items: impl IntoIterator<Item = &'i ItemId>) -> Vec<Option<Row>> {
        let catalog = self.catalog.read();
        items.into_iter().map(|item| catalog.row(item)).collect()
    }

    pub(crate) fn items_of(&self, rows: impl IntoIterator<Item = Row>) -> Vec<ItemId> {
        let catalog = self.catalog.read();
        rows.into_iter().map(|row| catalog.item(row).clone()).collect()
    }

    /// Whether the item may be found: it is described or a serving version was trained on it, and it is not deleted.
    pub(crate) fn is_alive(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_alive(row))
    }

    /// Whether the item was deleted and not described again since.
    pub(crate) fn is_deleted(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_deleted(row))
    }

    /// Whether the item was described and not deleted since.
    pub(crate) fn is_described(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_described(row))
    }

    /// Rejects attributes that cannot be indexed; see [`Catalog::check`].
    pub(crate) fn check(
        &self,
        attributes: &Map<String, Value>,
        coming: &mut BTreeSet<String>,
    ) -> Result<(), AttributeError> {
        self.catalog.read().check(attributes, coming)
    }

    /// The items that may be shown at `now` and pass the filter.
    pub(crate) fn allowed(&self, filter: Option<&Filter>, now: Timestamp) -> CandidateSet {
        let selection = self.catalog.read().select(filter, now);
        selection.allowed()
    }

    /// Searches ids and texts.
    pub(crate) fn search(&self, search: Search<'_>, page: Page<'_>) -> Found {
        self.catalog.read().search(search, page)
    }

    pub(crate) fn size(&self) -> CatalogSize {
        self.catalog.read().size()
    }

    /// Applies durable changes in their order; returns the rows that changed.
    pub(crate) fn take_in(&self, news: &[ItemNews<'_>]) -> Vec<Row> {
        let mut rows = Vec::with_capacity(news.len());
        for news in news.chunks(ROWS_AT_ONCE) {
            let mut catalog = self.catalog.write();
            rows.extend(news.iter().map(|news| match news {
                ItemNews::Described(item, attributes) => catalog.put(item, attributes),
                ItemNews::Given(item) => catalog.add(item),
                ItemNews::Deleted(item) => {
                    catalog.delete(item);
                    catalog.add(item)
                }
            }));
        }
        rows
    }

    /// The rows of these items, added where they are missing.
    fn rows_for(&self, items: &[ItemId]) -> Vec<Row> {
        let mut rows = Vec::with_capacity(items.len());
        for items in items.chunks(ROWS_AT_ONCE) {
            let mut catalog = self.catalog.write();
            rows.extend(items.iter().map(|item| catalog.add(item)));
        }
        rows
    }

    /// Allows the items of `version`'s table to be shown.
    pub(crate) fn enlist(&self, version: &ServingVersion) {
        version.retrieval().rows().chunks(ROWS_AT_ONCE).for_each(|rows| self.catalog.write().enlist(rows));
    }

    /// Retires `version`: items that only its table has are no longer shown.
    pub(crate) fn dismiss(&self, version: &ServingVersion) {
        version.retrieval().retire();
        version.retrieval().rows().chunks(ROWS_AT_ONCE).for_each(|rows| self.catalog.write().dismiss(rows));
    }

    /// For each row, the item if it belongs in the version's delta index, that is, it is described and not in the
    /// version's table; `None` otherwise.
    fn fresh_items(&self, retrieval: &Retrieval, rows: &[Row]) -> Vec<Option<ItemId>> {
        let catalog = self.catalog.read();
        let fresh = |row: &Row| {
            let is_fresh = catalog.is_described(*row) && !retrieval.has_in_table(*row);
            is_fresh.then(|| catalog.item(*row).clone())
        };
        rows.iter().map(fresh).collect()
    }

    /// The versions that serve or are being prepared.
    fn versions(&self) -> Vec<Arc<ServingVersion>> {
        let mut versions = self.versions.lock();
        versions.retain(|version| version.strong_count() > 0);
        versions.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Predictor {
    /// The catalog of a stream, loaded from the store if it is not in memory.
    pub(crate) fn catalog(&self, stream: &StreamName) -> Result<Arc<StreamCatalog>, PredictorError> {
        let mut catalogs = self.catalogs.lock();
        catalogs.retain(|_, catalog| catalog.strong_count() > 0);
        if let Some(found) = catalogs.get(stream).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let catalog = Arc::new(load::load(&self.storage, stream)?);
        catalogs.insert(stream.clone(), Arc::downgrade(&catalog));
        Ok(catalog)
    }

    fn catalogs_in_use(&self) -> Vec<Arc<StreamCatalog>> {
        self.catalogs.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// The items that may be shown at `now`; users' seen items are not considered.
    pub(crate) fn allowed(&self, subject: &RequestContext, filter: Option<&Filter>, now: Timestamp) -> CandidateSet {
        subject.model.catalog.allowed(filter, now)
    }

    /// The best `k` of the allowed items for these weights, best first, under the version of `subject`.
    pub(crate) fn retrieve(
        &self,
        subject: &RequestContext,
        weights: &[f32],
        k: usize,
        allowed: &CandidateSet,
    ) -> Vec<Hit> {
        let (version, retrieval) = (&subject.version, subject.version.retrieval());
        let trained = retrieval.table().search(matrix(&version.theta), weights, k, allowed);
        if rand::random_ratio(1, SAMPLED_EVERY)
            && retrieval.table().is_approximate(k, allowed)
            && self.background.wants_sample()
        {
            let (version, weights) = (Arc::clone(version), weights.to_vec());
            self.background.sample(Sample { version, weights, allowed: allowed.clone(), found: trained.clone() });
        }
        let fresh = retrieval.search_fresh(weights, k, allowed);
        if fresh.is_empty() { trained } else { best_of(k, [trained.as_slice(), fresh.as_slice()]) }
    }

    /// Updates these rows in every version of the stream with the current features of their items.
    pub(crate) fn refresh(&self, catalog: &StreamCatalog, rows: &[Row]) -> Result<(), PredictorError> {
        for version in catalog.versions() {
            version.retrieval().refresh(&self.features, &version, rows)?;
        }
        Ok(())
    }

    /// Builds the search index of a version before it serves: its table, and the items outside it.
    pub(crate) fn equip(&self, stream: &StreamName, version: &Arc<ServingVersion>) -> Result<(), PredictorError> {
        let catalog = self.catalog(stream)?;
        version.equip(Retrieval::new(&version.theta, Arc::clone(&catalog)));
        // From here on the version receives every change, so only items described before are missing.
        catalog.versions.lock().push(Arc::downgrade(version));
        let described: Vec<Row> = catalog.catalog.read().described().collect();
        retrieval::fill(&self.features, version, &described)
    }
}
