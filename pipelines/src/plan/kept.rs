//! Values that are kept between runs.

use crate::graph::Fingerprint;
use crate::values::{Slot, Span, View};

/// A range of one of the lists.
type Range = [u32; 2];

/// Which value, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    Missing,
    Number(f32),
    Text(Range),
    Texts(Range, Range),
    Dense(Range),
    /// Of columns and of numbers.
    Sparse(Range, Range),
    Category(u32),
    Sums(Range),
}

/// Values of several nodes, one list for each kind of number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    /// Of the plan that computed them.
    pub plan: Fingerprint,
    entries: Box<[Entry]>,
    numbers: Box<[f32]>,
    columns: Box<[u32]>,
    sums: Box<[f64]>,
    text: Box<str>,
    spans: Box<[Span]>,
}

/// What a plan needs to know about an item: the values that depend on nothing else. Computed once for a version, and
/// compact: a linear model keeps one sum.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemValues(pub(super) Kept);

/// What a plan needs to know about a context: computed once for a request.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextValues(pub(super) Kept);

/// Lists that grow.
#[derive(Default)]
struct Lists {
    numbers: Vec<f32>,
    columns: Vec<u32>,
    sums: Vec<f64>,
    text: String,
    spans: Vec<Span>,
}

fn push<T: Copy>(list: &mut Vec<T>, values: &[T]) -> Range {
    let begin = list.len() as u32;
    list.extend_from_slice(values);
    [begin, list.len() as u32]
}

fn range<T>(list: &[T], [begin, end]: Range) -> &[T] {
    &list[begin as usize..end as usize]
}

impl Lists {
    fn push(&mut self, value: View) -> Entry {
        match value {
            View::Missing => Entry::Missing,
            View::Number(number) => Entry::Number(number),
            View::Text(text) => Entry::Text(self.push_text(text)),
            View::Texts(text, spans) => Entry::Texts(self.push_text(text), push(&mut self.spans, spans)),
            View::Dense(numbers) => Entry::Dense(push(&mut self.numbers, numbers)),
            View::Sparse(columns, numbers) => {
                Entry::Sparse(push(&mut self.columns, columns), push(&mut self.numbers, numbers))
            }
            View::Category(category) => Entry::Category(category),
            View::Sums(sums) => Entry::Sums(push(&mut self.sums, sums)),
        }
    }

    fn push_text(&mut self, text: &str) -> Range {
        let begin = self.text.len() as u32;
        self.text.push_str(text);
        [begin, self.text.len() as u32]
    }
}

impl Kept {
    /// Copies these slots.
    pub(super) fn of(plan: Fingerprint, slots: &[Slot], exports: &[u32]) -> Self {
        let mut lists = Lists::default();
        let entries = exports.iter().map(|slot| lists.push(slots[*slot as usize].view())).collect();
        Self {
            plan,
            entries,
            numbers: lists.numbers.into(),
            columns: lists.columns.into(),
            sums: lists.sums.into(),
            text: lists.text.into(),
            spans: lists.spans.into(),
        }
    }

    pub(super) fn view(&self, export: u32) -> View<'_> {
        let text = |[begin, end]: Range| &self.text[begin as usize..end as usize];
        match self.entries[export as usize] {
            Entry::Missing => View::Missing,
            Entry::Number(number) => View::Number(number),
            Entry::Text(at) => View::Text(text(at)),
            Entry::Texts(at, spans) => View::Texts(text(at), range(&self.spans, spans)),
            Entry::Dense(numbers) => View::Dense(range(&self.numbers, numbers)),
            Entry::Sparse(columns, numbers) => {
                View::Sparse(range(&self.columns, columns), range(&self.numbers, numbers))
            }
            Entry::Category(category) => View::Category(category),
            Entry::Sums(sums) => View::Sums(range(&self.sums, sums)),
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.entries)
            + size_of_val(&*self.numbers)
            + size_of_val(&*self.columns)
            + size_of_val(&*self.sums)
            + self.text.len()
            + size_of_val(&*self.spans)
    }
}

impl ItemValues {
    /// Memory that they take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl ContextValues {
    /// Memory that they take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
