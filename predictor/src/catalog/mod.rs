//! The items that a stream's models may recommend, as the node holds them: one catalog for a stream, and for every
//! version that serves, what is searched of it.
//!
//! The catalog is read from the store when the stream's first model is served, and kept with every change of an item,
//! inside the request that makes it: whoever has been answered finds it done. An item's change is stored first and then
//! told to the catalog, both under the item's lock, so that memory and disk agree about which change was last.

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

/// Rows that change under one lock: readers wait for some ten microseconds.
const ROWS_AT_ONCE: usize = 512;

/// One of so many searches by a graph is made again exactly, behind the answer.
const SAMPLED_EVERY: u32 = 256;

/// The catalogs in use, by stream. One that no model and no request uses any more is gone.
pub(crate) type Catalogs = Mutex<HashMap<StreamName, Weak<StreamCatalog>>>;

/// A change of an item that is durable.
pub(crate) enum ItemNews<'a> {
    Described(&'a ItemId, &'a Map<String, Value>),
    /// Its features were given anew; its attributes are as they were.
    Given(&'a ItemId),
    Deleted(&'a ItemId),
}

/// The items of one stream, shared by its models.
pub(crate) struct StreamCatalog {
    stream: StreamName,
    /// Held for microseconds: what takes longer is done outside.
    catalog: RwLock<Catalog>,
    /// Who must be told of changes.
    versions: Mutex<Vec<Weak<ServingVersion>>>,
}

impl StreamCatalog {
    /// The row of an item that has one, whether it may be shown or not.
    pub(crate) fn row_of(&self, item: &ItemId) -> Option<Row> {
        self.catalog.read().row(item)
    }

    /// The rows of many items.
    pub(crate) fn rows_of<'i>(&self, items: impl IntoIterator<Item = &'i ItemId>) -> Vec<Option<Row>> {
        let catalog = self.catalog.read();
        items.into_iter().map(|item| catalog.row(item)).collect()
    }

    /// The items of many rows.
    pub(crate) fn items_of(&self, rows: impl IntoIterator<Item = Row>) -> Vec<ItemId> {
        let catalog = self.catalog.read();
        rows.into_iter().map(|row| catalog.item(row).clone()).collect()
    }

    /// Whether the item may be found: somebody has described it or a version that serves was trained on it, and nobody
    /// has deleted it.
    pub(crate) fn is_alive(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_alive(row))
    }

    /// Whether somebody has deleted the item, and nobody has described it since.
    pub(crate) fn is_deleted(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_deleted(row))
    }

    /// Whether somebody has described the item, and nobody has deleted it since.
    pub(crate) fn is_described(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_described(row))
    }

    /// Refuses attributes that cannot be indexed; see [`Catalog::check`].
    pub(crate) fn check(
        &self,
        attributes: &Map<String, Value>,
        coming: &mut BTreeSet<String>,
    ) -> Result<(), AttributeError> {
        self.catalog.read().check(attributes, coming)
    }

    /// What may be shown at `now`.
    pub(crate) fn allowed(&self, filter: Option<&Filter>, now: Timestamp) -> CandidateSet {
        let selection = self.catalog.read().select(filter, now);
        selection.allowed()
    }

    /// Looks through ids and texts.
    pub(crate) fn search(&self, search: Search<'_>, page: Page<'_>) -> Found {
        self.catalog.read().search(search, page)
    }

    /// How large it is.
    pub(crate) fn size(&self) -> CatalogSize {
        self.catalog.read().size()
    }

    /// Takes in changes that are durable, in their order; answers the rows that changed.
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

    /// Rows for all of these items.
    fn rows_for(&self, items: &[ItemId]) -> Vec<Row> {
        let mut rows = Vec::with_capacity(items.len());
        for items in items.chunks(ROWS_AT_ONCE) {
            let mut catalog = self.catalog.write();
            rows.extend(items.iter().map(|item| catalog.add(item)));
        }
        rows
    }

    /// The items of `version`'s table may be shown from now on.
    pub(crate) fn enlist(&self, version: &ServingVersion) {
        version.retrieval().rows().chunks(ROWS_AT_ONCE).for_each(|rows| self.catalog.write().enlist(rows));
    }

    /// The items that only `version`'s table has may be shown no more.
    pub(crate) fn dismiss(&self, version: &ServingVersion) {
        version.retrieval().retire();
        version.retrieval().rows().chunks(ROWS_AT_ONCE).for_each(|rows| self.catalog.write().dismiss(rows));
    }

    /// Those of `rows` that belong to a version's fresh items: described, and not in its table. Others are `None`.
    fn fresh_items(&self, retrieval: &Retrieval, rows: &[Row]) -> Vec<Option<ItemId>> {
        let catalog = self.catalog.read();
        let fresh = |row: &Row| {
            let is_fresh = catalog.is_described(*row) && !retrieval.has_in_table(*row);
            is_fresh.then(|| catalog.item(*row).clone())
        };
        rows.iter().map(fresh).collect()
    }

    /// The versions that serve or are about to.
    fn versions(&self) -> Vec<Arc<ServingVersion>> {
        let mut versions = self.versions.lock();
        versions.retain(|version| version.strong_count() > 0);
        versions.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Predictor {
    /// The catalog of a stream, read from the store where it is not in memory.
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

    /// The catalogs in use.
    fn catalogs_in_use(&self) -> Vec<Arc<StreamCatalog>> {
        self.catalogs.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// What may be shown to `subject` at `now`, as far as items go.
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

    /// Takes in what has changed for the items of these rows, for every version of the stream: they are found with the
    /// features that they have now.
    pub(crate) fn refresh(&self, catalog: &StreamCatalog, rows: &[Row]) -> Result<(), PredictorError> {
        for version in catalog.versions() {
            version.retrieval().refresh(&self.features, &version, rows)?;
        }
        Ok(())
    }

    /// Makes what is searched of a version, before it serves: its table, and the items that are not in it.
    pub(crate) fn equip(&self, stream: &StreamName, version: &Arc<ServingVersion>) -> Result<(), PredictorError> {
        let catalog = self.catalog(stream)?;
        version.equip(Retrieval::new(&version.theta, Arc::clone(&catalog)));
        // From here on every change reaches it, so that what was described before is all that is missing.
        catalog.versions.lock().push(Arc::downgrade(version));
        let described: Vec<Row> = catalog.catalog.read().described().collect();
        retrieval::fill(&self.features, version, &described)
    }
}
