//! The interpretation of a field's values, decided once from all items of a training.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{Token, hash};

/// A string field with more distinct values is text: as keywords they would not fit the hashed
/// columns.
const VALUES_MAX: usize = 10_000;

/// A string field with a longer value (in bytes) is text.
const VALUE_BYTES_MAX: usize = 64;

/// Numbers are clamped to this many standard deviations: far from the items that the map was fitted
/// to, linear extrapolation is unreliable.
const DEVIATIONS_MAX: f64 = 4.0;

/// The rules by which a field's values become columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    /// Kind of its strings, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) strings: Option<Strings>,
    /// Scaling of its numbers or times, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<Number>,
    /// Scaling of its lists of numbers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) vector: Option<Vector>,
}

/// The kind of the strings of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Strings {
    /// All are RFC 3339 times: a number.
    Time,
    /// Repeating values: at most half as many distinct values as items, and none long.
    Keyword,
    /// All other strings.
    Text,
}

/// A standardised number, and its presence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Number {
    pub(super) mean: f64,
    /// 0 if all items have the same number.
    pub(super) deviation: f64,
    /// Column of the number; the next one is its presence.
    pub(super) column: u32,
}

impl Number {
    pub(super) const COLUMNS: usize = 2;

    pub(super) fn standardised(&self, value: f64) -> f32 {
        if self.deviation <= 0.0 {
            return 0.0;
        }
        ((value - self.mean) / self.deviation).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX) as f32
    }
}

/// A vector, scaled to a root mean square length of 1, and its presence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vector {
    /// Vectors of another length count as missing.
    pub(super) length: u32,
    pub(super) scale: f64,
    /// Column of the first entry; the presence follows the last entry.
    pub(super) column: u32,
}

impl Vector {
    pub(super) fn columns(length: usize) -> usize {
        length + 1
    }

    /// Clamps each entry at the length of [`DEVIATIONS_MAX`] typical vectors.
    pub(super) fn scaled(&self, entry: f64) -> f32 {
        (entry * self.scale).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX) as f32
    }
}

/// Numbers beyond this magnitude are ignored when the encoder is fitted, since the sum of their
/// squares would overflow.
const NUMBER_MAX: f64 = 1e100;

/// The numbers of a list of numbers; `None` for any other value.
pub(super) fn numbers(values: &[Value]) -> Option<Vec<f64>> {
    if values.is_empty() { None } else { values.iter().map(Value::as_f64).collect() }
}

fn usable(number: f64) -> bool {
    number.abs() <= NUMBER_MAX
}

/// Parses an RFC 3339 time to seconds since 1970.
pub(super) fn time(text: &str) -> Option<f64> {
    let parsed: jiff::Timestamp = text.parse().ok()?;
    Some(parsed.as_second() as f64)
}

/// Statistics of a field's values.
#[derive(Debug, Default)]
pub(super) struct FieldStats {
    /// Number of items that have the field.
    pub(super) items: usize,
    strings: usize,
    times: usize,
    longest: usize,
    /// Hashes of distinct strings, at most one more than [`VALUES_MAX`].
    values: HashSet<u64>,
    numbers: Moments,
    /// Length of the first vector.
    length: usize,
    vectors: usize,
    squares: f64,
}

/// Mean and variance by Welford's method.
#[derive(Debug, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }
}

impl FieldStats {
    pub(super) fn add(&mut self, name: &str, value: &Value) {
        self.items += usize::from(!value.is_null());
        match value {
            Value::String(text) => {
                self.strings += 1;
                self.longest = self.longest.max(text.len());
                if self.values.len() <= VALUES_MAX {
                    self.values.insert(hash(name, Token::Value, text));
                }
                if let Some(seconds) = time(text) {
                    self.times += 1;
                    self.numbers.add(seconds);
                }
            }
            Value::Number(number) => {
                if let Some(number) = number.as_f64().filter(|number| usable(*number)) {
                    self.numbers.add(number);
                }
            }
            Value::Array(values) => {
                let all_usable = |vector: &Vec<f64>| vector.iter().all(|entry| usable(*entry));
                let Some(vector) = numbers(values).filter(all_usable) else { return };
                if self.length == 0 {
                    self.length = vector.len();
                }
                if self.length == vector.len() {
                    self.vectors += 1;
                    self.squares += vector.iter().map(|entry| entry * entry).sum::<f64>();
                }
            }
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
    }

    /// The rules of the field, with columns from `column` on, and the number of non-hashed columns
    /// it takes.
    pub(super) fn field(&self, column: usize) -> (Field, usize) {
        let strings = (self.strings > 0).then(|| self.kind_of_strings());
        let mut next = column;
        let mut take = |columns| {
            let first = u32::try_from(next).unwrap_or(u32::MAX);
            next += columns;
            first
        };
        let is_number = self.numbers.count > 0.0 && matches!(strings, None | Some(Strings::Time));
        let number = is_number.then(|| Number {
            mean: self.numbers.mean,
            deviation: (self.numbers.squares / self.numbers.count).sqrt(),
            column: take(Number::COLUMNS),
        });
        let vector = (self.vectors > 0 && self.squares > 0.0).then(|| Vector {
            length: u32::try_from(self.length).unwrap_or(u32::MAX),
            scale: (self.vectors as f64 / self.squares).sqrt(),
            column: take(Vector::columns(self.length)),
        });
        (Field { strings, number, vector }, next - column)
    }

    fn kind_of_strings(&self) -> Strings {
        if self.times == self.strings {
            Strings::Time
        } else if self.values.len() <= VALUES_MAX
            && 2 * self.values.len() <= self.strings
            && self.longest <= VALUE_BYTES_MAX
        {
            Strings::Keyword
        } else {
            Strings::Text
        }
    }
}
