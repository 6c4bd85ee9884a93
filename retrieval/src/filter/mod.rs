//! The filter language: which items of a catalog are meant, by their attributes.
//!
//! In JSON, one object with one key:
//!
//! | filter | holds for items |
//! |---|---|
//! | `{"all": [..]}` | for which every one of the filters holds |
//! | `{"any": [..]}` | for which at least one holds |
//! | `{"not": {..}}` | for which it does not hold, those without the attribute included |
//! | `{"eq": {"field": .., "value": ..}}` | whose attribute is the value, or a list of texts with it |
//! | `{"in": {"field": .., "values": [..]}}` | the same for one of the values |
//! | `{"range": {"field": .., "gte": .., "lt": ..}}` | whose number or time lies between; also `gt`, `lte` |
//! | `{"exists": {"field": ..}}` | that have the attribute |
//!
//! A filter is checked when it is read, with a message that names the place, and cannot fail afterwards: a field that no
//! item has holds for none.

mod parse;

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

/// How deep filters may lie in one another.
pub const DEPTH_MAX: usize = 8;

/// Filters and values of one filter altogether, at most.
pub const TERMS_MAX: usize = 4096;

/// The longest text that `eq` and `in` find, in bytes.
pub const KEYWORD_BYTES_MAX: usize = 256;

/// The longest name of an attribute, in bytes.
pub const FIELD_BYTES_MAX: usize = 128;

/// Which items are meant.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// Every one of these holds.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// This does not hold.
    Not(Box<Self>),
    /// The attribute is one of the values.
    In {
        /// The attribute.
        field: String,
        /// At least one for `eq`; none holds for no item.
        values: Vec<Value>,
    },
    /// The attribute is a number or time within the bounds.
    Range {
        /// The attribute.
        field: String,
        /// The bounds.
        range: Range,
    },
    /// The attribute is there, and not null.
    Exists {
        /// The attribute.
        field: String,
    },
}

/// What an attribute is compared with.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text of at most [`KEYWORD_BYTES_MAX`] bytes.
    Keyword(String),
    /// A number, or a time in Unix milliseconds.
    Number(f64),
    /// A truth value.
    Boolean(bool),
}

/// Numbers from `low` to `high`, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The least; negative infinity where there is no bound.
    pub low: f64,
    /// The greatest; infinity where there is no bound.
    pub high: f64,
}

impl Range {
    /// Just this number.
    #[must_use]
    pub fn exactly(number: f64) -> Self {
        Self { low: number, high: number }
    }

    /// Whether `number` lies in it; no range holds "not a number".
    #[must_use]
    pub fn contains(self, number: f64) -> bool {
        self.low <= number && number <= self.high
    }
}

/// What is wrong with a filter, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct FilterError {
    /// As in `all[1].eq.value`; empty for the whole filter.
    pub place: String,
    /// What is wrong there, and what is right.
    pub problem: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let separator = if self.place.is_empty() { "" } else { ": " };
        write!(formatter, "{}{separator}{}", self.place, self.problem)
    }
}

impl Filter {
    /// Reads a filter, within the limits of this module.
    ///
    /// # Errors
    /// Naming the place of what is unknown, missing, of another type or beyond a limit.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, FilterError> {
        parse::filter(json)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&json).map_err(de::Error::custom)
    }
}
