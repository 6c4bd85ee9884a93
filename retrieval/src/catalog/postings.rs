//! An inverted index of attributes: a bitmap for every value, the numbers of every attribute, and
//! the terms of each row.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use roaring::RoaringBitmap;
use serde_json::{Map, Value};

use super::attributes::Meaning;
use super::column::Column;
use crate::Row;

type Table<K, V> = HashMap<K, V, RandomState>;
type TermId = u32;
type FieldId = u32;

/// The rows of one value. Most values of an attribute like a title have one row, which needs no
/// bitmap.
#[derive(Debug, Clone, Default)]
pub(super) enum Rows {
    #[default]
    None,
    One(Row),
    Many(Arc<RoaringBitmap>),
}

impl Rows {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(rows) => usize::try_from(rows.len()).unwrap_or(usize::MAX),
        }
    }

    fn insert(&mut self, row: Row) {
        match self {
            Self::None => *self = Self::One(row),
            Self::One(other) if *other == row => {}
            Self::One(other) => *self = Self::Many(Arc::new([*other, row].into_iter().collect())),
            Self::Many(rows) => {
                Arc::make_mut(rows).insert(row);
            }
        }
    }

    fn remove(&mut self, row: Row) {
        match self {
            Self::One(other) if *other == row => *self = Self::None,
            Self::Many(rows) => {
                Arc::make_mut(rows).remove(row);
                if rows.is_empty() {
                    *self = Self::None;
                }
            }
            Self::None | Self::One(_) => {}
        }
    }
}

/// The condition of a term on its rows.
#[derive(Debug, Clone)]
enum Condition {
    Exists,
    Is(bool),
    Has(Arc<str>),
}

#[derive(Debug)]
struct Term {
    field: FieldId,
    condition: Condition,
    rows: Rows,
}

/// One attribute.
#[derive(Debug, Default)]
struct Field {
    name: Arc<str>,
    exists: Option<TermId>,
    /// Terms for false and true.
    booleans: [Option<TermId>; 2],
    keywords: Table<Arc<str>, TermId>,
    numbers: Column,
}

/// The attributes of all rows. Terms and fields without rows are removed.
#[derive(Debug, Default)]
pub(super) struct Postings {
    fields: Vec<Field>,
    by_name: Table<Arc<str>, FieldId>,
    free_fields: Vec<FieldId>,
    terms: Vec<Term>,
    free_terms: Vec<TermId>,
    /// Each row's terms, ascending.
    of_row: Vec<Box<[TermId]>>,
    /// Total number of entries of `of_row`.
    entries: usize,
    /// Total size of all strings.
    text_bytes: usize,
}

impl Postings {
    /// Number of distinct attributes.
    pub(super) fn fields(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn has_field(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Replaces the attributes of a row.
    pub(super) fn put(&mut self, row: Row, attributes: &Map<String, Value>) {
        let mut terms = Vec::with_capacity(2 * attributes.len());
        for (name, value) in attributes {
            let Some(meaning) = Meaning::of(value) else { continue };
            let field = self.field(name);
            terms.push(self.term(field, &Condition::Exists));
            terms.extend(meaning.boolean.map(|truth| self.term(field, &Condition::Is(truth))));
            for keyword in meaning.keywords {
                terms.push(self.keyword(field, keyword));
            }
            let numbers = &mut self.fields[field as usize].numbers;
            match meaning.number {
                Some(number) => numbers.set(row, number),
                None => numbers.clear(row),
            }
        }
        terms.sort_unstable();
        terms.dedup();
        if self.of_row.len() <= row as usize {
            self.of_row.resize(row as usize + 1, Box::default());
        }
        let before = std::mem::take(&mut self.of_row[row as usize]);
        self.entries = self.entries + terms.len() - before.len();
        for term in terms.iter().filter(|term| before.binary_search(term).is_err()) {
            self.terms[*term as usize].rows.insert(row);
        }
        for term in before.iter().filter(|term| terms.binary_search(term).is_err()) {
            self.take_out(row, *term);
        }
        self.of_row[row as usize] = terms.into();
    }

    /// Removes all attributes of a row.
    pub(super) fn clear(&mut self, row: Row) {
        self.put(row, &Map::new());
    }

    fn take_out(&mut self, row: Row, id: TermId) {
        let term = &mut self.terms[id as usize];
        term.rows.remove(row);
        let (field, is_last) = (term.field, matches!(term.rows, Rows::None));
        let condition = is_last.then(|| std::mem::replace(&mut term.condition, Condition::Exists));
        if self.fields[field as usize].exists == Some(id) {
            self.fields[field as usize].numbers.clear(row);
        }
        let Some(condition) = condition else { return };
        let of = &mut self.fields[field as usize];
        match condition {
            Condition::Exists => of.exists = None,
            Condition::Is(truth) => of.booleans[usize::from(truth)] = None,
            Condition::Has(keyword) => {
                of.keywords.remove(&keyword);
                self.text_bytes -= keyword.len();
            }
        }
        self.free_terms.push(id);
        if of.exists.is_none() && of.keywords.is_empty() && of.booleans == [None; 2] {
            self.by_name.remove(&of.name);
            *of = Field::default();
            self.free_fields.push(field);
        }
    }

    fn field(&mut self, name: &str) -> FieldId {
        if let Some(found) = self.by_name.get(name) {
            return *found;
        }
        let name: Arc<str> = name.into();
        let field = Field { name: Arc::clone(&name), ..Field::default() };
        let id = match self.free_fields.pop() {
            Some(free) => {
                self.fields[free as usize] = field;
                free
            }
            None => {
                self.fields.push(field);
                FieldId::try_from(self.fields.len() - 1).expect("fields are counted in hundreds")
            }
        };
        self.by_name.insert(name, id);
        id
    }

    fn keyword(&mut self, field: FieldId, keyword: &str) -> TermId {
        match self.fields[field as usize].keywords.get(keyword) {
            Some(found) => *found,
            None => self.term(field, &Condition::Has(keyword.into())),
        }
    }

    fn term(&mut self, field: FieldId, condition: &Condition) -> TermId {
        let of = &self.fields[field as usize];
        let found = match condition {
            Condition::Exists => of.exists,
            Condition::Is(truth) => of.booleans[usize::from(*truth)],
            Condition::Has(keyword) => of.keywords.get(keyword).copied(),
        };
        if let Some(found) = found {
            return found;
        }
        let term = Term { field, condition: condition.clone(), rows: Rows::None };
        let id = match self.free_terms.pop() {
            Some(free) => {
                self.terms[free as usize] = term;
                free
            }
            None => {
                self.terms.push(term);
                TermId::try_from(self.terms.len() - 1).expect("a catalog's terms fit its memory long before 2^32")
            }
        };
        let of = &mut self.fields[field as usize];
        match condition {
            Condition::Exists => of.exists = Some(id),
            Condition::Is(truth) => of.booleans[usize::from(*truth)] = Some(id),
            Condition::Has(keyword) => {
                of.keywords.insert(Arc::clone(keyword), id);
                self.text_bytes += keyword.len();
            }
        }
        id
    }

    fn rows_of(&self, term: Option<TermId>) -> Rows {
        term.map(|term| self.terms[term as usize].rows.clone()).unwrap_or_default()
    }

    fn of(&self, field: &str) -> Option<&Field> {
        self.by_name.get(field).map(|field| &self.fields[*field as usize])
    }

    pub(super) fn having(&self, field: &str) -> Rows {
        self.rows_of(self.of(field).and_then(|field| field.exists))
    }

    /// The rows with this string.
    pub(super) fn with_keyword(&self, field: &str, keyword: &str) -> Rows {
        self.rows_of(self.of(field).and_then(|field| field.keywords.get(keyword).copied()))
    }

    pub(super) fn with_boolean(&self, field: &str, truth: bool) -> Rows {
        self.rows_of(self.of(field).and_then(|field| field.booleans[usize::from(truth)]))
    }

    pub(super) fn numbers(&self, field: &str) -> Column {
        self.of(field).map(|field| field.numbers.clone()).unwrap_or_default()
    }

    /// The names of all attributes, in no particular order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// The rows of each of an attribute's strings, in no particular order.
    pub(super) fn keywords_of(&self, field: &str) -> impl Iterator<Item = (&str, &Rows)> {
        let keywords = self.of(field).into_iter().flat_map(|field| &field.keywords);
        keywords.map(|(keyword, term)| (&**keyword, &self.terms[*term as usize].rows))
    }

    /// All strings with their rows, in no particular order.
    pub(super) fn keywords(&self) -> impl Iterator<Item = (&str, &Rows)> {
        let terms = self.fields.iter().flat_map(|field| &field.keywords);
        terms.map(|(keyword, term)| (&**keyword, &self.terms[*term as usize].rows))
    }

    /// Approximate size in memory, in bytes, from counters.
    pub(super) fn bytes(&self) -> usize {
        /// A term, its entries in two tables with their share of empty slots, and the allocation of
        /// its string.
        const TERM: usize = size_of::<Term>() + 80;
        /// A row of a term: its entry on either side.
        const ENTRY: usize = size_of::<TermId>() + size_of::<u16>();
        let rows = self.of_row.len() * size_of::<Box<[TermId]>>() + self.entries * ENTRY;
        let numbers: usize = self.fields.iter().map(|field| field.numbers.bytes()).sum();
        self.text_bytes + self.terms.len() * TERM + rows + numbers
    }
}
