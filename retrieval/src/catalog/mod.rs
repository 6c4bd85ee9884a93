//! The items of a stream: their rows, their attributes, and whether they are alive.
//!
//! An item gets a [`Row`] when it is added first and keeps it for life: a deletion leaves a hole,
//! and an item that is added again gets its old row. It is *alive*, and may be returned, if it is
//! not deleted and is described, was observed, or is in the table of an active version. A deleted
//! item stays deleted, whatever observes it or contains it, until it is described again.
//!
//! A catalog is plain data without a lock. A caller that shares one creates a [`CompiledFilter`]
//! under its lock, which takes microseconds, and evaluates it outside.

mod attributes;
mod column;
mod compiled_filter;
mod postings;
mod search;
mod summary;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use celeris_model::{ItemId, Timestamp};
use foldhash::fast::RandomState;
use serde_json::{Map, Value};

pub use attributes::{
    ATTRIBUTES_MAX, AVAILABLE_FROM, AVAILABLE_UNTIL, AttributeError, FIELDS_MAX, TAGS_MAX, check_of_user,
};
pub use compiled_filter::CompiledFilter;
pub use search::{Found, Page, Search};
pub use summary::{AttributeKind, AttributeSummary, AttributeValue, NumberRange, UnknownAttribute};

use crate::Row;
use crate::filter::Filter;
use compiled_filter::{Availability, Expression};
use postings::Postings;

/// The status of one row.
#[derive(Debug, Clone, Copy, Default)]
struct RowStatus {
    /// Whether a caller has described the item.
    described: bool,
    /// Whether an observation of the item was stored.
    observed: bool,
    /// Whether a caller has deleted the item and not described it since.
    deleted: bool,
    /// Number of active versions that have the item in their table.
    tables: u16,
}

impl RowStatus {
    fn is_alive(self) -> bool {
        self.is_listed() || !self.deleted && self.tables > 0
    }

    /// Whether it is alive even if no version has it in its table.
    fn is_listed(self) -> bool {
        !self.deleted && (self.described || self.observed)
    }
}

/// The size of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CatalogSize {
    /// Number of items that are alive.
    pub items: usize,
    /// Number of rows, including holes.
    pub rows: usize,
    /// Number of distinct attributes.
    pub fields: usize,
}

/// The items of one stream.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By row.
    items: Vec<ItemId>,
    rows: HashMap<ItemId, Row, RandomState>,
    statuses: Vec<RowStatus>,
    /// One bit per row; shared with filters that are being evaluated.
    alive: Arc<Vec<u64>>,
    postings: Postings,
    /// Total heap size of all ids.
    id_bytes: usize,
}

impl Catalog {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Rejects attributes beyond the limits, naming the attribute. `coming` holds the names of
    /// attributes that were accepted before but are not in the catalog yet; the new names of
    /// `attributes` are added to it.
    ///
    /// # Errors
    /// [`AttributeError`].
    pub fn check(&self, attributes: &Map<String, Value>, coming: &mut BTreeSet<String>) -> Result<(), AttributeError> {
        attributes::check(attributes)?;
        let named = attributes.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
        let new: Vec<&String> =
            named.filter(|name| !self.postings.has_field(name) && !coming.contains(*name)).collect();
        let free = FIELDS_MAX.saturating_sub(self.postings.fields() + coming.len());
        if let Some(first) = new.get(free) {
            return Err(AttributeError::Fields { field: (*first).clone() });
        }
        coming.extend(new.into_iter().cloned());
        Ok(())
    }

    /// The row of `item`, assigned if it has none; that does not make it alive.
    pub fn add(&mut self, item: &ItemId) -> Row {
        if let Some(row) = self.rows.get(item) {
            return *row;
        }
        let row = Row::try_from(self.items.len()).expect("the items of a stream fit its memory long before 2^32");
        self.items.push(item.clone());
        self.id_bytes += item.heap_bytes();
        self.rows.insert(item.clone(), row);
        self.statuses.push(RowStatus::default());
        row
    }

    /// Describes an item, replacing its previous attributes. A deleted item is restored.
    pub fn put(&mut self, item: &ItemId, attributes: &Map<String, Value>) -> Row {
        let row = self.add(item);
        self.postings.put(row, attributes);
        self.change(row, |status| RowStatus { described: true, deleted: false, ..status });
        row
    }

    /// Notes that an observation of the item was stored. A deleted item stays deleted.
    pub fn observe(&mut self, item: &ItemId) -> Row {
        let row = self.add(item);
        self.change(row, |status| RowStatus { observed: true, ..status });
        row
    }

    /// Deletes an item, even if it is unknown yet; returns whether it was alive.
    pub fn delete(&mut self, item: &ItemId) -> bool {
        let row = self.add(item);
        let was_alive = self.is_alive(row);
        self.postings.clear(row);
        self.change(row, |status| RowStatus { described: false, deleted: true, ..status });
        was_alive
    }

    /// Registers an active version with these rows in its table.
    pub fn enlist(&mut self, rows: &[Row]) {
        for row in rows {
            self.change(*row, |status| RowStatus { tables: status.tables.saturating_add(1), ..status });
        }
    }

    /// Unregisters a version that was registered with [`Catalog::enlist`].
    pub fn dismiss(&mut self, rows: &[Row]) {
        for row in rows {
            self.change(*row, |status| RowStatus { tables: status.tables.saturating_sub(1), ..status });
        }
    }

    fn change(&mut self, row: Row, change: impl FnOnce(RowStatus) -> RowStatus) {
        let status = &mut self.statuses[row as usize];
        let was = status.is_alive();
        *status = change(*status);
        let is = status.is_alive();
        if was != is {
            let words = Arc::make_mut(&mut self.alive);
            let at = row as usize / 64;
            if at >= words.len() {
                words.resize(at + 1, 0);
            }
            words[at] ^= 1 << (row % 64);
        }
    }

    /// The row of an item, alive or not; `None` if it has none.
    #[must_use]
    pub fn row(&self, item: &ItemId) -> Option<Row> {
        self.rows.get(item).copied()
    }

    /// The item of a row.
    ///
    /// # Panics
    /// For a row that this catalog has not assigned.
    #[must_use]
    pub fn item(&self, row: Row) -> &ItemId {
        &self.items[row as usize]
    }

    /// Whether the item of this row may be returned.
    #[must_use]
    pub fn is_alive(&self, row: Row) -> bool {
        self.alive.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Whether a caller has described the item of this row, and not deleted it since.
    #[must_use]
    pub fn is_described(&self, row: Row) -> bool {
        self.statuses.get(row as usize).is_some_and(|status| status.described)
    }

    /// Whether a caller has deleted the item of this row, and not described it since.
    #[must_use]
    pub fn is_deleted(&self, row: Row) -> bool {
        self.statuses.get(row as usize).is_some_and(|status| status.deleted)
    }

    /// Whether an observation of the item of this row was noted.
    #[must_use]
    pub fn is_observed(&self, row: Row) -> bool {
        self.statuses.get(row as usize).is_some_and(|status| status.observed)
    }

    /// Whether the item of this row is alive whatever tables contain it.
    #[must_use]
    pub fn is_listed(&self, row: Row) -> bool {
        self.statuses.get(row as usize).is_some_and(|status| status.is_listed())
    }

    /// The rows of items that are alive whatever tables contain them, ascending.
    pub fn listed(&self) -> impl Iterator<Item = Row> + '_ {
        let rows = (0..).zip(&self.statuses);
        rows.filter(|(_, status)| status.is_listed()).map(|(row, _)| row)
    }

    /// The rows that are alive, available at `now`, and match `filter`.
    pub fn compile(&self, filter: Option<&Filter>, now: Timestamp) -> CompiledFilter {
        let numbers = |field| self.postings.numbers(field);
        let availability =
            Availability { from: numbers(AVAILABLE_FROM), until: numbers(AVAILABLE_UNTIL), now: now.0 as f64 };
        CompiledFilter { availability: Some(availability), ..self.compile_always(filter) }
    }

    /// The rows that are alive and match `filter`, available or not.
    pub fn compile_always(&self, filter: Option<&Filter>) -> CompiledFilter {
        let filter = filter.map(|filter| Expression::new(filter, &self.postings));
        CompiledFilter { alive: Arc::clone(&self.alive), filter, availability: None }
    }

    #[must_use]
    pub fn size(&self) -> CatalogSize {
        let items = self.alive.iter().map(|word| word.count_ones() as usize).sum();
        CatalogSize { items, rows: self.items.len(), fields: self.postings.fields() }
    }

    /// Approximate size in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// An id in the list, and one in the hash table with its row and its share of empty slots.
        const ITEM: usize = 64;
        let items = self.items.len() * (ITEM + size_of::<RowStatus>()) + self.id_bytes;
        items + size_of_val(&**self.alive) + self.postings.bytes()
    }
}
