//! The filter language: selects items of a catalog by their attributes.
//!
//! In JSON, one object with one key:
//!
//! | filter | matches items |
//! |---|---|
//! | `{"all": [..]}` | that match all of the filters |
//! | `{"any": [..]}` | that match at least one of the filters |
//! | `{"not": {..}}` | that do not match the filter, including items without the attribute |
//! | `{"eq": {"field": .., "value": ..}}` | whose attribute equals the value, or is a list that contains it |
//! | `{"in": {"field": .., "values": [..]}}` | the same for any of the values |
//! | `{"range": {"field": .., "gte": .., "lt": ..}}` | whose number or time is in the range; also `gt`, `lte` |
//! | `{"exists": {"field": ..}}` | that have the attribute |
//!
//! A filter is validated when it is parsed, with a message that names the place, and cannot fail
//! afterwards: a filter on a field that no item has matches none.

mod parse;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

/// The deepest nesting of filters.
pub const DEPTH_MAX: usize = 8;

/// Maximum total number of filters and values in one filter.
pub const TERMS_MAX: usize = 4096;

/// The longest string that `eq` and `in` match, in bytes.
pub const KEYWORD_BYTES_MAX: usize = 256;

/// The longest name of an attribute, in bytes.
pub const FIELD_BYTES_MAX: usize = 128;

/// A parsed filter.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// The attribute is one of the values.
    In {
        field: String,
        /// One value for `eq`; an empty list matches no item.
        values: Vec<Value>,
    },
    /// The attribute is a number or time within the bounds.
    Range {
        field: String,
        range: Range,
    },
    /// The attribute is present and not null.
    Exists {
        field: String,
    },
}

/// A value to compare an attribute with.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string of at most [`KEYWORD_BYTES_MAX`] bytes.
    Keyword(String),
    /// A number, or a time in Unix milliseconds.
    Number(f64),
    Boolean(bool),
}

/// Numbers from `low` to `high`, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Negative infinity if there is no bound.
    pub low: f64,
    /// Infinity if there is no bound.
    pub high: f64,
}

impl Range {
    /// A range of one number.
    #[must_use]
    pub fn exactly(number: f64) -> Self {
        Self { low: number, high: number }
    }

    /// Whether `number` is in the range; false for NaN.
    #[must_use]
    pub fn contains(self, number: f64) -> bool {
        self.low <= number && number <= self.high
    }
}

/// An invalid filter, with the place of the problem.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct FilterError {
    /// A path such as `all[1].eq.value`; empty for the whole filter.
    pub place: String,
    /// A description of the problem and of valid input.
    pub problem: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let separator = if self.place.is_empty() { "" } else { ": " };
        write!(formatter, "{}{separator}{}", self.place, self.problem)
    }
}

impl Filter {
    /// Parses a filter, within the limits of this module.
    ///
    /// # Errors
    /// [`FilterError`] for anything unknown, missing, of another type or beyond a limit.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, FilterError> {
        parse::filter(json)
    }

    /// The names of the attributes that the filter refers to.
    #[must_use]
    pub fn fields(&self) -> BTreeSet<&str> {
        match self {
            Self::All(filters) | Self::Any(filters) => filters.iter().flat_map(Self::fields).collect(),
            Self::Not(filter) => filter.fields(),
            Self::In { field, .. } | Self::Range { field, .. } | Self::Exists { field } => [field.as_str()].into(),
        }
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = serde_json::Value::deserialize(deserializer)?;
        Self::from_json(&json).map_err(de::Error::custom)
    }
}
