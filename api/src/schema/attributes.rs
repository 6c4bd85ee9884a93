//! Attributes of a catalog, as filters see them.

use celeris_retrieval::catalog::{self, AttributeSummary, AttributeValue};
use serde::Serialize;
use utoipa::ToSchema;

/// The attributes of a catalog.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AttributeList)]
pub struct Attributes {
    /// In the order of their names.
    #[schema(max_items = 256)]
    pub attributes: Vec<Attribute>,
}

/// An attribute that filters can name.
#[derive(Debug, Serialize, ToSchema)]
pub struct Attribute {
    /// The name: `field` of a filter.
    pub name: String,
    /// How its values can be compared; empty if only `exists` matches them.
    pub kinds: Vec<AttributeKind>,
    /// Number of items that have it.
    pub items: usize,
    /// Number of distinct texts and booleans.
    pub distinct: usize,
    /// The most frequent texts and booleans, the most frequent first.
    pub values: Vec<ValueCount>,
    /// The range of its numbers and times; null if it has none.
    pub numbers: Option<Numbers>,
}

/// A value and its number of items.
#[derive(Debug, Serialize, ToSchema)]
pub struct ValueCount {
    /// `value` of a filter `eq`.
    pub value: TextOrBoolean,
    /// Number of items with this value.
    pub items: usize,
}

/// A text or a boolean.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TextOrBoolean {
    Text(String),
    Boolean(bool),
}

/// The numbers and times of an attribute; times in Unix milliseconds.
#[derive(Debug, Serialize, ToSchema)]
pub struct Numbers {
    /// Number of items with a number or time.
    pub items: usize,
    pub min: f64,
    pub max: f64,
}

mirror_enum! {
    /// How the values of an attribute can be compared.
    AttributeKind = catalog::AttributeKind {
        /// By `eq` and `in` with a text: texts, and lists of texts.
        Keyword,
        /// By `range`, `eq` and `in`: numbers, and times.
        Number,
        /// By `eq` with true or false.
        Boolean,
    }
}

impl From<AttributeSummary> for Attribute {
    fn from(summary: AttributeSummary) -> Self {
        let AttributeSummary { name, kinds, items, distinct, values, numbers } = summary;
        let value = |(value, items)| {
            let value = match value {
                AttributeValue::Keyword(text) => TextOrBoolean::Text(text),
                AttributeValue::Boolean(truth) => TextOrBoolean::Boolean(truth),
            };
            ValueCount { value, items }
        };
        let numbers = numbers.map(|catalog::NumberRange { items, min, max }| Numbers { items, min, max });
        Self {
            name,
            kinds: kinds.into_iter().map(Into::into).collect(),
            items,
            distinct,
            values: values.into_iter().map(value).collect(),
            numbers,
        }
    }
}
