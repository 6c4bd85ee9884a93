//! Encodes all attributes of an item as a sparse row of numbers, each by its kind.
//!
//! | value | columns |
//! |---|---|
//! | boolean, keyword | one hashed column for field and value |
//! | list of strings | one hashed column for field and each string |
//! | text | hashed columns of its words and their trigrams, scaled to length 1 |
//! | number, time | the standardised value, and 1 for its presence |
//! | list of numbers | its scaled entries, and 1 for its presence |
//!
//! Hashed columns share a table of bounded width, each token with its own sign, so that collisions
//! cancel out on average (Weinberger et al., "Feature hashing for large scale multitask learning",
//! ICML 2009). Whether the strings of a field are keywords or text is decided at training from all
//! of its values.

mod fields;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::fields::{Field, FieldStats, Number, Strings, Vector, numbers, time};
use self::text::{Token, hash, text_tokens};

/// Maximum number of fields considered when the encoder is fitted; more names than this are
/// unlikely to be fields.
const FIELDS_MAX: usize = 1024;

/// Maximum number of columns in addition to the hashed ones; the fields present in most items come
/// first.
const DENSE_COLUMNS_MAX: usize = 512;

/// Maximum number of hashed columns. Measured on ml-latest-small, more do not improve predictions.
const HASHED_COLUMNS_MAX: usize = 512;

/// Minimum number of hashed columns: with fewer, the values of a handful of fields collide.
const HASHED_COLUMNS_MIN: usize = 64;

/// Maximum number of strings read from a list.
const TAGS_MAX: usize = 256;

/// Availability times of an item: they are no property of its content and are not encoded.
const RESERVED: [&str; 2] = ["available_from", "available_until"];

/// The rules by which the attributes of items become columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeEncoder {
    /// Number of hashed columns, a power of two; they come first.
    hashed: u32,
    /// Number of other columns.
    dense: u32,
    fields: BTreeMap<String, Field>,
}

impl AttributeEncoder {
    /// Fits the encoder to these items, with about one hashed column for every four of them.
    #[must_use]
    pub fn learn<'a>(items: impl IntoIterator<Item = &'a Map<String, Value>>) -> Self {
        let mut learner = AttributeLearner::default();
        items.into_iter().for_each(|attributes| learner.add(attributes));
        learner.finish()
    }

    /// The names of the fields that it reads, ascending.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    #[must_use]
    pub fn width(&self) -> usize {
        (self.hashed + self.dense) as usize
    }

    /// The rules as JSON, which is the content of an object.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and finite numbers always serialise")
    }

    /// Reads what [`AttributeEncoder::encoded`] gave.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let encoder: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        encoder.check()?;
        if encoder.encoded() == bytes { Ok(encoder) } else { Err("is not in its canonical form".to_owned()) }
    }

    /// Checks rules that were read from a file.
    ///
    /// # Errors
    /// A description of the problem.
    pub fn check(&self) -> Result<(), String> {
        let (hashed, dense) = (self.hashed as usize, self.dense as usize);
        if !self.hashed.is_power_of_two() || hashed > HASHED_COLUMNS_MAX || dense > DENSE_COLUMNS_MAX {
            return Err(format!("has {hashed} hashed and {dense} other columns, beyond the limits of an encoder"));
        }
        if self.fields.len() > FIELDS_MAX {
            return Err(format!("has {} fields, the maximum is {FIELDS_MAX}", self.fields.len()));
        }
        for (name, field) in &self.fields {
            let number = field.number.map(|number| (number.column, Number::COLUMNS, [number.mean, number.deviation]));
            let vector = field.vector.map(|vector| {
                (vector.column, Vector::columns(vector.length as usize), [vector.scale, f64::from(vector.length)])
            });
            for (column, columns, numbers) in number.into_iter().chain(vector) {
                let inside = column >= self.hashed && column as usize + columns <= self.width();
                if !inside || !numbers.iter().all(|number| number.is_finite()) {
                    return Err(format!("field {name:?} has columns or numbers out of range"));
                }
            }
        }
        Ok(())
    }

    /// The non-zero columns of these attributes, ascending, each once. Ignores fields that no item
    /// of the training had, and values of another kind than the field's.
    #[must_use]
    pub fn encode(&self, attributes: &Map<String, Value>) -> Vec<(u32, f32)> {
        let mut row = Row { hashed: self.hashed, columns: Vec::new() };
        for (name, value) in attributes {
            if let Some(field) = self.fields.get(name) {
                row.add(name, field, value);
            }
        }
        merged(row.columns)
    }
}

/// Collects what an encoder needs to know of items.
#[derive(Debug, Default)]
pub struct AttributeLearner {
    items: usize,
    stats: BTreeMap<String, FieldStats>,
}

impl AttributeLearner {
    pub fn add(&mut self, attributes: &Map<String, Value>) {
        self.items += 1;
        for (name, value) in attributes.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str())) {
            if let Some(stats) = self.stats.get_mut(name) {
                stats.add(name, value);
            } else if self.stats.len() < FIELDS_MAX {
                self.stats.entry(name.clone()).or_default().add(name, value);
            }
        }
    }

    #[must_use]
    pub fn finish(self) -> AttributeEncoder {
        let hashed = (self.items / 4).next_power_of_two().clamp(HASHED_COLUMNS_MIN, HASHED_COLUMNS_MAX);
        let mut by_items: Vec<(String, FieldStats)> =
            self.stats.into_iter().filter(|(_, stats)| stats.items > 0).collect();
        by_items.sort_by_key(|(_, stats)| std::cmp::Reverse(stats.items));
        let (mut fields, mut width) = (BTreeMap::new(), hashed);
        for (name, stats) in by_items {
            let (field, columns) = stats.field(width);
            if width + columns <= hashed + DENSE_COLUMNS_MAX {
                width += columns;
                fields.insert(name, field);
            }
        }
        let number = |count: usize| u32::try_from(count).expect("both bounds are far below 2^32");
        AttributeEncoder { hashed: number(hashed), dense: number(width - hashed), fields }
    }
}

/// A row under construction; a column may occur more than once.
struct Row {
    hashed: u32,
    columns: Vec<(u32, f32)>,
}

impl Row {
    fn add(&mut self, name: &str, field: &Field, value: &Value) {
        match (value, field.strings) {
            (Value::Bool(value), _) => self.add_token(hash(name, Token::Value, if *value { "true" } else { "false" })),
            (Value::String(text), Some(Strings::Keyword)) => self.add_token(hash(name, Token::Value, text)),
            (Value::String(text), Some(Strings::Text)) => self.add_text(&text_tokens(name, text)),
            (Value::String(text), Some(Strings::Time)) => self.add_number(field.number, time(text)),
            (Value::Number(number), _) => self.add_number(field.number, number.as_f64()),
            (Value::Array(values), _) => match (numbers(values), field.vector) {
                (Some(entries), Some(vector)) => self.add_vector(vector, &entries),
                _ => {
                    for text in values.iter().take(TAGS_MAX).filter_map(Value::as_str) {
                        self.add_token(hash(name, Token::Tag, text));
                    }
                }
            },
            (Value::String(_), None) | (Value::Null | Value::Object(_), _) => {}
        }
    }

    fn add_token(&mut self, token: u64) {
        let signed = self.signed(token);
        self.columns.push(signed);
    }

    fn signed(&self, token: u64) -> (u32, f32) {
        let column = u32::try_from(token & u64::from(self.hashed - 1)).expect("below `hashed`");
        (column, if token >> 63 == 0 { 1.0 } else { -1.0 })
    }

    fn add_text(&mut self, tokens: &[u64]) {
        let mut columns = merged(tokens.iter().map(|token| self.signed(*token)).collect());
        let length = columns.iter().map(|(_, value)| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            columns.iter_mut().for_each(|(_, value)| *value /= length);
            self.columns.extend(columns);
        }
    }

    fn add_number(&mut self, number: Option<Number>, value: Option<f64>) {
        if let (Some(number), Some(value)) = (number, value) {
            self.columns.extend([(number.column, number.standardised(value)), (number.column + 1, 1.0)]);
        }
    }

    fn add_vector(&mut self, vector: Vector, entries: &[f64]) {
        if entries.len() == vector.length as usize {
            let entries = (vector.column..).zip(entries.iter().map(|entry| vector.scaled(*entry)));
            self.columns.extend(entries);
            self.columns.push((vector.column + vector.length, 1.0));
        }
    }
}

/// Sorts the columns, sums duplicates and drops zeros.
fn merged(mut columns: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
    columns.sort_by_key(|(column, _)| *column);
    columns.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            first.1 += later.1;
        }
        same
    });
    columns.retain(|(_, value)| *value != 0.0);
    columns
}

#[cfg(test)]
mod tests;
