//! Attributes as a sparse row of numbers.
//!
//! | value | columns |
//! |---|---|
//! | boolean, keyword | one hashed column for field and value |
//! | list of strings | one hashed column for field and each string |
//! | text | hashed columns of its words and of three letters in a row, together of length 1 |
//! | number, time | the standardised value and, for its presence, 1 |
//! | list of numbers | its entries, scaled, and 1 for its presence |
//!
//! Hashed columns share a table of bounded width, each token with a sign of its own, so that what collides cancels out on
//! average (Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009). Which strings are
//! keywords and which are text is a property of the field, decided at training by all of its values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::{Field, Number, Seen, Strings, Vector, numbers, time};
use super::text::{Token, hash, text_tokens};

/// Fields that are looked at while rules are made; more names than this are hardly fields.
const FIELDS_MAX: usize = 1024;

/// Columns at most beside the hashed ones: fields that most items have come first.
const DENSE_COLUMNS_MAX: usize = 512;

/// Hashed columns at most. Measured on ml-latest-small, more predict no better.
const HASHED_COLUMNS_MAX: usize = 512;

/// Hashed columns at least: with fewer, the values of a handful of fields collide.
const HASHED_COLUMNS_MIN: usize = 64;

/// Strings of a list that are read; a list is not a text.
const TAGS_MAX: usize = 256;

/// When an item may be shown: that is about the catalog, and says nothing of the item.
const RESERVED: [&str; 2] = ["available_from", "available_until"];

/// How the attributes of items become columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    /// A power of two: the hashed columns, which come first.
    hashed: u32,
    /// The columns beside them.
    dense: u32,
    fields: BTreeMap<String, Field>,
}

impl Encoder {
    /// The rules that fit these items, with about a hashed column for every four of them.
    #[must_use]
    pub fn learn<'a>(items: impl IntoIterator<Item = &'a Map<String, Value>>) -> Self {
        let mut seen: BTreeMap<&str, Seen> = BTreeMap::new();
        let mut count = 0;
        for attributes in items {
            count += 1;
            for (name, value) in attributes.iter().filter(|(name, _)| !RESERVED.contains(&name.as_str())) {
                if seen.len() < FIELDS_MAX || seen.contains_key(name.as_str()) {
                    seen.entry(name).or_default().add(name, value);
                }
            }
        }
        let hashed = (count / 4_usize).next_power_of_two().clamp(HASHED_COLUMNS_MIN, HASHED_COLUMNS_MAX);
        let mut by_items: Vec<(&str, Seen)> = seen.into_iter().filter(|(_, seen)| seen.items > 0).collect();
        by_items.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.items));
        let (mut fields, mut width) = (BTreeMap::new(), hashed);
        for (name, seen) in by_items {
            let (field, columns) = seen.field(width);
            if width + columns <= hashed + DENSE_COLUMNS_MAX {
                width += columns;
                fields.insert(name.to_owned(), field);
            }
        }
        let number = |count: usize| u32::try_from(count).expect("both bounds are far below 2^32");
        Self { hashed: number(hashed), dense: number(width - hashed), fields }
    }

    /// How many columns there are.
    #[must_use]
    pub fn width(&self) -> usize {
        (self.hashed + self.dense) as usize
    }

    /// Checks rules that were read from a file.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn check(&self) -> Result<(), String> {
        let (hashed, dense) = (self.hashed as usize, self.dense as usize);
        if !self.hashed.is_power_of_two() || hashed > HASHED_COLUMNS_MAX || dense > DENSE_COLUMNS_MAX {
            return Err(format!("has {hashed} hashed and {dense} other columns, which no training makes"));
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

    /// The columns of these attributes that are not zero, ascending, each once. Fields that no item of the training had
    /// are ignored, as are values of another kind than the field's.
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

/// A row under way; a column may be there more than once.
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

/// The columns ascending, values of one column added up, zeros left out.
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
#[path = "encoder_tests.rs"]
mod tests;
