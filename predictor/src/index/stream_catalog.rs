//! The items of one stream that its models may recommend, and the fields of its contexts, in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use celeris_model::{ItemId, StreamFields, StreamName, Timestamp};
use celeris_retrieval::catalog::{
    AttributeError, AttributeSummary, CatalogSize, Found, Page, Search, UnknownAttribute,
};
use celeris_retrieval::{CandidateSet, Catalog, Filter, Row};
use parking_lot::{Condvar, Mutex, RwLock};
use serde_json::{Map, Value};

use super::Retrieval;

/// Rows changed under one lock; readers wait for about ten microseconds.
const ROWS_AT_ONCE: usize = 512;

/// The catalog of a stream, in figures.
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

/// A durable change of an item.
pub(crate) enum ItemNews<'a> {
    Described(&'a ItemId, &'a Map<String, Value>),
    /// Its features were given again; its attributes are unchanged.
    Given(&'a ItemId),
    Observed(&'a ItemId),
    Deleted(&'a ItemId),
}

/// The items of one stream, shared by its models.
pub(crate) struct StreamCatalog {
    pub(crate) stream: StreamName,
    /// Held for microseconds: longer work is done outside.
    catalog: RwLock<Catalog>,
    fields: Mutex<Arc<StreamFields>>,
    fields_changed: Condvar,
}

impl StreamCatalog {
    pub(crate) fn new(stream: StreamName, catalog: Catalog, fields: StreamFields) -> Self {
        Self { stream, catalog: catalog.into(), fields: Mutex::new(fields.into()), fields_changed: Condvar::new() }
    }

    /// The fields of the stream's contexts.
    pub(crate) fn fields(&self) -> Arc<StreamFields> {
        self.fields.lock().clone()
    }

    /// Takes over the fields in the store, unless these are older than those here.
    pub(crate) fn set_fields(&self, fields: StreamFields) {
        let mut known = self.fields.lock();
        if known.as_slice().len() < fields.as_slice().len() {
            *known = fields.into();
            self.fields_changed.notify_all();
        }
    }

    /// Waits until the fields have changed so that `done` holds, or until this time.
    pub(crate) fn wait_for_fields(&self, until: Instant, done: impl Fn(&StreamFields) -> bool) {
        let mut known = self.fields.lock();
        while !done(&known) && !self.fields_changed.wait_until(&mut known, until).timed_out() {}
    }

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

    /// Whether the item may be found: it is described, was observed, or a serving version was trained
    /// on it, and it is not deleted.
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

    /// Whether an observation of the item was noted.
    pub(crate) fn is_observed(&self, item: &ItemId) -> bool {
        let catalog = self.catalog.read();
        catalog.row(item).is_some_and(|row| catalog.is_observed(row))
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
        let compiled = self.catalog.read().compile(filter, now);
        compiled.allowed()
    }

    /// The items that match the filter, available or not.
    pub(crate) fn matching(&self, filter: Option<&Filter>) -> CandidateSet {
        let compiled = self.catalog.read().compile_always(filter);
        compiled.allowed()
    }

    /// Those of these attributes that no item has.
    pub(crate) fn unknown_attributes(&self, names: &BTreeSet<&str>) -> Vec<UnknownAttribute> {
        self.catalog.read().unknown_attributes(names)
    }

    /// The attributes of the items.
    pub(crate) fn attributes(&self, values_max: usize) -> Vec<AttributeSummary> {
        self.catalog.read().attributes(values_max)
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
                ItemNews::Observed(item) => catalog.observe(item),
                ItemNews::Deleted(item) => {
                    catalog.delete(item);
                    catalog.add(item)
                }
            }));
        }
        rows
    }

    /// The rows of these items, added where they are missing.
    pub(super) fn rows_for(&self, items: &[ItemId]) -> Vec<Row> {
        let mut rows = Vec::with_capacity(items.len());
        for items in items.chunks(ROWS_AT_ONCE) {
            let mut catalog = self.catalog.write();
            rows.extend(items.iter().map(|item| catalog.add(item)));
        }
        rows
    }

    /// Allows the items of a version's table to be shown.
    pub(crate) fn enlist(&self, version: &Retrieval) {
        version.rows().chunks(ROWS_AT_ONCE).for_each(|rows| self.catalog.write().enlist(rows));
    }

    /// Items that only this version's table has are no longer shown.
    pub(crate) fn dismiss(&self, version: &Retrieval) {
        version.rows().chunks(ROWS_AT_ONCE).for_each(|rows| self.catalog.write().dismiss(rows));
    }

    /// For each row, the item if it belongs in the version's delta index, that is, it is described or
    /// was observed, not deleted, and not in the version's table; `None` otherwise.
    pub(super) fn fresh_items(&self, retrieval: &Retrieval, rows: &[Row]) -> Vec<Option<ItemId>> {
        let catalog = self.catalog.read();
        let fresh = |row: &Row| {
            let is_fresh = catalog.is_listed(*row) && !retrieval.has_in_table(*row);
            is_fresh.then(|| catalog.item(*row).clone())
        };
        rows.iter().map(fresh).collect()
    }

    /// The rows of the items that may be found whatever tables contain them.
    pub(crate) fn listed(&self) -> Vec<Row> {
        self.catalog.read().listed().collect()
    }

    /// The current figures.
    pub(crate) fn view(&self) -> CatalogView {
        let catalog = self.catalog.read();
        let size = catalog.size();
        CatalogView {
            stream: self.stream.clone(),
            items: size.items,
            rows: size.rows,
            fields: size.fields,
            bytes: catalog.bytes(),
        }
    }
}
