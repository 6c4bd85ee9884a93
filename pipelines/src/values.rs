//! Values of nodes, in reused buffers.

use crate::limits::NUMBER_ABS_MAX;

/// A range of bytes of a text.
pub type Span = [u32; 2];

/// What a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Missing,
    Number,
    Text,
    Texts,
    Dense,
    Sparse,
    Category,
    Sums,
}

/// The value of a node. Its buffers keep their memory when the next value is written.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    kind: Kind,
    numbers: Vec<f32>,
    columns: Vec<u32>,
    sums: Vec<f64>,
    text: String,
    spans: Vec<Span>,
}

/// A value as operators read it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum View<'a> {
    /// No text or no category.
    Missing,
    /// NaN if it is missing.
    Number(f32),
    Text(&'a str),
    /// Texts or words: ranges of a text.
    Texts(&'a str, &'a [Span]),
    /// NaN for missing entries.
    Dense(&'a [f32]),
    /// Ascending columns, and their values.
    Sparse(&'a [u32], &'a [f32]),
    Category(u32),
    /// Sums of products that are not complete yet.
    Sums(&'a [f64]),
}

impl Slot {
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self.kind {
            Kind::Missing => View::Missing,
            Kind::Number => View::Number(self.numbers[0]),
            Kind::Text => View::Text(&self.text),
            Kind::Texts => View::Texts(&self.text, &self.spans),
            Kind::Dense => View::Dense(&self.numbers),
            Kind::Sparse => View::Sparse(&self.columns, &self.numbers),
            Kind::Category => View::Category(self.columns[0]),
            Kind::Sums => View::Sums(&self.sums),
        }
    }

    pub fn set_missing(&mut self) {
        self.kind = Kind::Missing;
    }

    /// Writes a number; `None` is a missing one.
    pub fn set_number(&mut self, number: Option<f32>) {
        self.dense().push(number.unwrap_or(f32::NAN));
        self.kind = Kind::Number;
    }

    pub fn set_category(&mut self, category: u32) {
        self.columns.clear();
        self.columns.push(category);
        self.kind = Kind::Category;
    }

    /// An empty text to write.
    pub fn text(&mut self) -> &mut String {
        self.text.clear();
        self.kind = Kind::Text;
        &mut self.text
    }

    /// An empty text, and ranges of it, to write.
    pub fn texts(&mut self) -> (&mut String, &mut Vec<Span>) {
        self.text.clear();
        self.spans.clear();
        self.kind = Kind::Texts;
        (&mut self.text, &mut self.spans)
    }

    /// An empty vector to write.
    pub fn dense(&mut self) -> &mut Vec<f32> {
        self.numbers.clear();
        self.kind = Kind::Dense;
        &mut self.numbers
    }

    /// Empty columns and values to write, columns ascending.
    pub fn sparse(&mut self) -> (&mut Vec<u32>, &mut Vec<f32>) {
        self.numbers.clear();
        self.columns.clear();
        self.kind = Kind::Sparse;
        (&mut self.columns, &mut self.numbers)
    }

    /// Zeros to add to.
    pub fn sums(&mut self, outputs: usize) -> &mut [f64] {
        self.sums.clear();
        self.sums.resize(outputs, 0.0);
        self.kind = Kind::Sums;
        &mut self.sums
    }

    /// Copies a value.
    pub fn set(&mut self, value: View) {
        match value {
            View::Missing => self.set_missing(),
            View::Number(number) => self.set_number((!number.is_nan()).then_some(number)),
            View::Text(text) => self.text().push_str(text),
            View::Texts(text, spans) => {
                let (own_text, own_spans) = self.texts();
                own_text.push_str(text);
                own_spans.extend_from_slice(spans);
            }
            View::Dense(numbers) => self.dense().extend_from_slice(numbers),
            View::Sparse(columns, numbers) => {
                let (own_columns, own_numbers) = self.sparse();
                own_columns.extend_from_slice(columns);
                own_numbers.extend_from_slice(numbers);
            }
            View::Category(category) => self.set_category(category),
            View::Sums(sums) => self.sums(sums.len()).copy_from_slice(sums),
        }
    }

    /// Memory of its buffers, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.numbers.capacity() * size_of::<f32>()
            + self.columns.capacity() * size_of::<u32>()
            + self.sums.capacity() * size_of::<f64>()
            + self.text.capacity()
            + self.spans.capacity() * size_of::<Span>()
    }
}

impl View<'_> {
    /// Appends bytes that differ for different values.
    pub(crate) fn write_key(&self, key: &mut Vec<u8>) {
        let count = |key: &mut Vec<u8>, kind: u8, count: usize| {
            key.push(kind);
            key.extend_from_slice(&(count as u64).to_le_bytes());
        };
        match self {
            Self::Missing => key.push(0),
            Self::Number(number) => {
                key.push(1);
                key.extend_from_slice(&number.to_le_bytes());
            }
            Self::Text(text) => {
                count(key, 2, text.len());
                key.extend_from_slice(text.as_bytes());
            }
            Self::Texts(text, spans) => {
                count(key, 3, text.len());
                key.extend_from_slice(text.as_bytes());
                count(key, 3, spans.len());
                key.extend(spans.iter().flatten().flat_map(|end| end.to_le_bytes()));
            }
            Self::Dense(numbers) => {
                count(key, 4, numbers.len());
                key.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Self::Sparse(columns, numbers) => {
                count(key, 5, columns.len());
                key.extend(columns.iter().flat_map(|column| column.to_le_bytes()));
                key.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            }
            Self::Category(category) => {
                key.push(6);
                key.extend_from_slice(&category.to_le_bytes());
            }
            Self::Sums(sums) => {
                count(key, 7, sums.len());
                key.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
            }
        }
    }
}

/// Rounds a result, and replaces one beyond ±[`NUMBER_ABS_MAX`] by that bound, so that it is finite. NaN becomes 0.
#[must_use]
#[inline]
pub fn bounded(result: f64) -> f32 {
    if result.is_nan() {
        return 0.0;
    }
    let max = f64::from(NUMBER_ABS_MAX);
    result.clamp(-max, max) as f32
}

/// Writes a vector or a number; missing numbers are 0.
pub(crate) fn write_dense(value: View, out: &mut [f32]) {
    let present = |number: f32| if number.is_nan() { 0.0 } else { number };
    match value {
        View::Number(number) => out.fill(present(number)),
        View::Dense(numbers) => out.iter_mut().zip(numbers).for_each(|(out, number)| *out = present(*number)),
        View::Sparse(columns, numbers) => {
            out.fill(0.0);
            columns.iter().zip(numbers).for_each(|(column, number)| out[*column as usize] = present(*number));
        }
        _ => out.fill(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_as_it_was_written() {
        let mut slot = Slot::default();
        for value in [
            View::Missing,
            View::Number(2.0),
            View::Text("a b"),
            View::Texts("ab", &[[0, 1], [1, 2]]),
            View::Dense(&[1.0, 2.0]),
            View::Sparse(&[3, 7], &[1.0, -1.0]),
            View::Category(4),
            View::Sums(&[0.5, 0.25]),
        ] {
            slot.set(value);
            assert_eq!(slot.view(), value);
        }
    }

    #[test]
    fn results_are_finite() {
        let results = [f64::INFINITY, -1e300, f64::NAN, 0.1].map(bounded);
        assert_eq!(results, [1e30, -1e30, 0.0, 0.1]);
    }
}
