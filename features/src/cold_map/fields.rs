//! What the values of a field are taken for: decided once, by all items of a training.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{Token, hash};

/// A string field of more different values than this is text: as values they would not fit into the hashed columns.
const VALUES_MAX: usize = 10_000;

/// A string field with a longer value (bytes) is text.
const VALUE_BYTES_MAX: usize = 64;

/// Numbers are cut at so many standard deviations: beyond the items that the map was fitted to, a straight line says
/// little.
const DEVIATIONS_MAX: f64 = 4.0;

/// How a field's values become columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Field {
    /// Its strings, if it had any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) strings: Option<Strings>,
    /// Its numbers or times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<Number>,
    /// Its lists of numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) vector: Option<Vector>,
}

/// What the strings of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Strings {
    /// All are RFC 3339 times: a number.
    Time,
    /// Values that repeat: at most half as many different ones as items that have one, and none long.
    Keyword,
    /// Any others.
    Text,
}

/// A number, standardised, and whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Number {
    pub(super) mean: f64,
    /// 0 where all items have the same number.
    pub(super) deviation: f64,
    /// Of the number; that of its presence is the next.
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

/// A vector, scaled to length 1 at the root mean square, and whether it is there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vector {
    /// Vectors of another length are as if missing.
    pub(super) length: u32,
    pub(super) scale: f64,
    /// Of the first entry; the presence has the one after the last.
    pub(super) column: u32,
}

impl Vector {
    pub(super) fn columns(length: usize) -> usize {
        length + 1
    }

    /// An entry is cut where the whole vector would be beyond [`DEVIATIONS_MAX`] usual ones.
    pub(super) fn scaled(&self, entry: f64) -> f32 {
        (entry * self.scale).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX) as f32
    }
}

/// Numbers beyond this magnitude are not looked at while rules are made, since their squares could not be added up.
const NUMBER_MAX: f64 = 1e100;

/// The numbers of a list of numbers; `None` for any other value.
pub(super) fn numbers(values: &[Value]) -> Option<Vec<f64>> {
    if values.is_empty() { None } else { values.iter().map(Value::as_f64).collect() }
}

fn usable(number: f64) -> bool {
    number.abs() <= NUMBER_MAX
}

/// Seconds since 1970 of an RFC 3339 time.
pub(super) fn time(text: &str) -> Option<f64> {
    let parsed: jiff::Timestamp = text.parse().ok()?;
    Some(parsed.as_second() as f64)
}

/// What was seen of a field.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Items that have the field.
    pub(super) items: usize,
    strings: usize,
    times: usize,
    longest: usize,
    /// Hashes of different strings, at most one more than [`VALUES_MAX`].
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

impl Seen {
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

    /// How the field is read, its columns beginning at `column`; and how many it takes of those that are not hashed.
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
