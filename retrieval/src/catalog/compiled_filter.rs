//! A filter compiled against a catalog. Compilation takes the bitmaps and numbers it needs quickly,
//! under the catalog's lock; the rows are then computed from these snapshots while the catalog
//! changes.

use std::sync::Arc;

use super::column::Column;
use super::postings::{Postings, Rows};
use crate::CandidateSet;
use crate::filter::{Filter, Range, Value};

/// A filter with the bitmaps and numbers that it refers to, as of its compilation.
#[derive(Debug)]
pub(super) enum Expression {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Rows(Rows),
    Numbers(Column, Range),
}

impl Expression {
    pub(super) fn new(filter: &Filter, postings: &Postings) -> Self {
        let each = |filters: &[Filter]| filters.iter().map(|filter| Self::new(filter, postings)).collect();
        match filter {
            Filter::All(filters) => Self::All(each(filters)),
            Filter::Any(filters) => Self::Any(each(filters)),
            Filter::Not(filter) => Self::Not(Box::new(Self::new(filter, postings))),
            Filter::Exists { field } => Self::Rows(postings.having(field)),
            Filter::Range { field, range } => Self::Numbers(postings.numbers(field), *range),
            Filter::In { field, values } => {
                let one = |value: &Value| match value {
                    Value::Keyword(keyword) => Self::Rows(postings.with_keyword(field, keyword)),
                    Value::Boolean(truth) => Self::Rows(postings.with_boolean(field, *truth)),
                    Value::Number(number) => Self::Numbers(postings.numbers(field), Range::exactly(*number)),
                };
                Self::Any(values.iter().map(one).collect())
            }
        }
    }

    /// Adds the matching rows to `words`.
    fn add_to(&self, words: &mut [u64]) {
        match self {
            Self::Rows(rows) => add_rows(rows, words),
            Self::Numbers(column, range) => column.matching(*range, |at, bits| {
                if let Some(word) = words.get_mut(at) {
                    *word |= bits;
                }
            }),
            Self::Any(filters) => filters.iter().for_each(|filter| filter.add_to(words)),
            Self::All(_) | Self::Not(_) => {
                let rows = self.words(words.len());
                words.iter_mut().zip(rows).for_each(|(word, more)| *word |= more);
            }
        }
    }

    /// The matching rows as a bitmap of `length` words.
    fn words(&self, length: usize) -> Vec<u64> {
        match self {
            Self::All(filters) => {
                let mut filters = filters.iter();
                let Some(first) = filters.next() else { return vec![u64::MAX; length] };
                let mut words = first.words(length);
                for filter in filters {
                    words.iter_mut().zip(filter.words(length)).for_each(|(word, more)| *word &= more);
                }
                words
            }
            Self::Not(filter) => {
                let mut words = filter.words(length);
                words.iter_mut().for_each(|word| *word = !*word);
                words
            }
            _ => {
                let mut words = vec![0; length];
                self.add_to(&mut words);
                words
            }
        }
    }
}

fn add_rows(rows: &Rows, words: &mut [u64]) {
    let mut add = |row: u32| {
        if let Some(word) = words.get_mut(row as usize / 64) {
            *word |= 1 << (row % 64);
        }
    };
    match rows {
        Rows::None => {}
        Rows::One(row) => add(*row),
        Rows::Many(bitmap) => {
            let mut rows = bitmap.iter();
            // In batches: one call per row would cost more than the row itself.
            let mut handful = [0; 1024];
            loop {
                let some = rows.next_many(&mut handful);
                if some.is_empty() {
                    return;
                }
                some.iter().copied().for_each(&mut add);
            }
        }
    }
}

/// The availability times of items, as of the compilation.
#[derive(Debug)]
pub(super) struct Availability {
    pub(super) from: Column,
    pub(super) until: Column,
    /// In Unix milliseconds.
    pub(super) now: f64,
}

impl Availability {
    fn take_from(&self, words: &mut [u64]) {
        let mut take = |at: usize, bits: u64| {
            if let Some(word) = words.get_mut(at) {
                *word &= !bits;
            }
        };
        self.from.matching(Range { low: self.now.next_up(), high: f64::INFINITY }, &mut take);
        self.until.matching(Range { low: f64::NEG_INFINITY, high: self.now }, &mut take);
    }
}

/// A compiled filter over the rows of a catalog that is not evaluated yet. Cheap to create;
/// [`CompiledFilter::allowed`] does the work.
#[derive(Debug)]
#[must_use]
pub struct CompiledFilter {
    pub(super) alive: Arc<Vec<u64>>,
    pub(super) filter: Option<Expression>,
    pub(super) availability: Option<Availability>,
}

impl CompiledFilter {
    /// Evaluates the filter: the rows that are alive, available, and match the filter. Takes a few
    /// nanoseconds for every 64 rows, and a few for every number and row that the filter refers to.
    #[must_use]
    pub fn allowed(&self) -> CandidateSet {
        let mut words = Vec::clone(&self.alive);
        if let Some(filter) = &self.filter {
            let chosen = filter.words(words.len());
            words.iter_mut().zip(chosen).for_each(|(word, more)| *word &= more);
        }
        if let Some(availability) = &self.availability {
            availability.take_from(&mut words);
        }
        CandidateSet::of_words(words)
    }
}
