//! The items of a stream: their rows, their attributes, and which of them there are now.
//!
//! An item gets a [`Row`] when it is first met and keeps it for life: a deletion leaves a hole, and a returning item
//! fills its own hole again. It is *alive*, and may be found, while it is described or in the table of a version that
//! serves, and is not deleted.
//!
//! A catalog is plain data without a lock. Whoever shares one asks for a [`Selection`] under the lock, which takes
//! microseconds, and makes rows of it outside.

mod attributes;
mod column;
mod postings;
mod search;
mod selection;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use celeris_model::{ItemId, Timestamp};
use foldhash::fast::RandomState;
use serde_json::{Map, Value};

pub use attributes::{ATTRIBUTES_MAX, AVAILABLE_FROM, AVAILABLE_UNTIL, AttributeError, FIELDS_MAX, TAGS_MAX};
pub use search::{Found, Page, Search};
pub use selection::Selection;

use crate::Row;
use crate::filter::Filter;
use postings::Postings;
use selection::{Availability, Compiled};

/// What a catalog knows of one row besides its attributes.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// Whether a caller has described the item.
    described: bool,
    /// Whether a caller has deleted the item, and nobody has described it since.
    deleted: bool,
    /// Versions that serve and have the item in their table.
    tables: u16,
}

impl Standing {
    fn is_alive(self) -> bool {
        !self.deleted && (self.described || self.tables > 0)
    }
}

/// How large a catalog is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CatalogSize {
    /// Items that are alive.
    pub items: usize,
    /// Rows, holes included.
    pub rows: usize,
    /// Different attributes.
    pub fields: usize,
}

/// The items of one stream.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By row.
    items: Vec<ItemId>,
    rows: HashMap<ItemId, Row, RandomState>,
    standings: Vec<Standing>,
    /// One bit a row; shared with selections that are being made.
    alive: Arc<Vec<u64>>,
    postings: Postings,
    /// Bytes of all ids.
    id_bytes: usize,
}

impl Catalog {
    /// A catalog without items.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses attributes that this catalog does not take, naming the attribute. `coming` holds the names that come new
    /// with attributes that were taken before and are not in the catalog yet; those of these are added.
    ///
    /// # Errors
    /// What is wrong with them.
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

    /// The row of `item`, which is given one where it has none, and is not alive by that.
    pub fn add(&mut self, item: &ItemId) -> Row {
        if let Some(row) = self.rows.get(item) {
            return *row;
        }
        let row = Row::try_from(self.items.len()).expect("the items of a stream fit its memory long before 2^32");
        self.items.push(item.clone());
        self.id_bytes += item.heap_bytes();
        self.rows.insert(item.clone(), row);
        self.standings.push(Standing::default());
        row
    }

    /// Describes an item, in place of what was said of it before. One that was deleted is back.
    pub fn put(&mut self, item: &ItemId, attributes: &Map<String, Value>) -> Row {
        let row = self.add(item);
        self.postings.put(row, attributes);
        self.change(row, |standing| Standing { described: true, deleted: false, ..standing });
        row
    }

    /// Deletes an item, whether it was described, is in a table, or is not known yet; answers whether it was alive.
    pub fn delete(&mut self, item: &ItemId) -> bool {
        let row = self.add(item);
        let was_alive = self.is_alive(row);
        self.postings.clear(row);
        self.change(row, |standing| Standing { described: false, deleted: true, ..standing });
        was_alive
    }

    /// A version that has these rows in its table serves from now on.
    pub fn enlist(&mut self, rows: &[Row]) {
        for row in rows {
            self.change(*row, |standing| Standing { tables: standing.tables.saturating_add(1), ..standing });
        }
    }

    /// A version that has these rows in its table, and was enlisted, serves no more.
    pub fn dismiss(&mut self, rows: &[Row]) {
        for row in rows {
            self.change(*row, |standing| Standing { tables: standing.tables.saturating_sub(1), ..standing });
        }
    }

    fn change(&mut self, row: Row, change: impl FnOnce(Standing) -> Standing) {
        let standing = &mut self.standings[row as usize];
        let was = standing.is_alive();
        *standing = change(*standing);
        let is = standing.is_alive();
        if was != is {
            let words = Arc::make_mut(&mut self.alive);
            let at = row as usize / 64;
            if at >= words.len() {
                words.resize(at + 1, 0);
            }
            words[at] ^= 1 << (row % 64);
        }
    }

    /// The row of an item that has one, alive or not.
    #[must_use]
    pub fn row(&self, item: &ItemId) -> Option<Row> {
        self.rows.get(item).copied()
    }

    /// The item of a row that was given out.
    ///
    /// # Panics
    /// For a row that this catalog has not given out.
    #[must_use]
    pub fn item(&self, row: Row) -> &ItemId {
        &self.items[row as usize]
    }

    /// Whether the item of this row may be found.
    #[must_use]
    pub fn is_alive(&self, row: Row) -> bool {
        self.alive.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Whether a caller has described the item of this row, and not deleted it since.
    #[must_use]
    pub fn is_described(&self, row: Row) -> bool {
        self.standings.get(row as usize).is_some_and(|standing| standing.described)
    }

    /// Whether a caller has deleted the item of this row, and not described it since.
    #[must_use]
    pub fn is_deleted(&self, row: Row) -> bool {
        self.standings.get(row as usize).is_some_and(|standing| standing.deleted)
    }

    /// The rows of items that callers have described, ascending.
    pub fn described(&self) -> impl Iterator<Item = Row> + '_ {
        let rows = (0..).zip(&self.standings);
        rows.filter(|(_, standing)| standing.described).map(|(row, _)| row)
    }

    /// What may be shown at `now`: the rows that live, are available then, and that `filter` holds for.
    pub fn select(&self, filter: Option<&Filter>, now: Timestamp) -> Selection {
        let numbers = |field| self.postings.numbers(field);
        let availability =
            Availability { from: numbers(AVAILABLE_FROM), until: numbers(AVAILABLE_UNTIL), now: now.0 as f64 };
        Selection { availability: Some(availability), ..self.select_always(filter) }
    }

    /// The rows that live and that `filter` holds for, available or not.
    pub fn select_always(&self, filter: Option<&Filter>) -> Selection {
        let filter = filter.map(|filter| Compiled::new(filter, &self.postings));
        Selection { alive: Arc::clone(&self.alive), filter, availability: None }
    }

    /// How large it is.
    #[must_use]
    pub fn size(&self) -> CatalogSize {
        let items = self.alive.iter().map(|word| word.count_ones() as usize).sum();
        CatalogSize { items, rows: self.items.len(), fields: self.postings.fields() }
    }

    /// About the bytes that it holds in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// An id in the list, and one in the hash table with its row and its share of empty places.
        const ITEM: usize = 64;
        let items = self.items.len() * (ITEM + size_of::<Standing>()) + self.id_bytes;
        items + size_of_val(&**self.alive) + self.postings.bytes()
    }
}
