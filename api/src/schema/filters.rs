//! The filter language, as OpenAPI describes it.

use utoipa::ToSchema;

/// Which items are meant, by their attributes: an object with one key. At most 8 filters deep, and at most 4096 filters and
/// values altogether. docs/filters.md describes the language.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = json!({"all": [
    {"eq": {"field": "genres", "value": "Drama"}},
    {"range": {"field": "year", "gte": 1940, "lt": 1960}}
]}))]
pub enum Filter {
    /// Every one of these holds.
    #[schema(no_recursion)]
    All(Vec<Filter>),
    /// At least one of these holds.
    #[schema(no_recursion)]
    Any(Vec<Filter>),
    /// This does not hold; it holds for items without the attribute.
    #[schema(no_recursion)]
    Not(Box<Filter>),
    /// The attribute is the value, or a list of texts with it.
    Eq {
        /// The attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
        value: FilterValue,
    },
    /// The attribute is one of the values, or a list of texts with one of them.
    In {
        /// The attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
        values: Vec<FilterValue>,
    },
    /// The attribute is a number or time within the bounds: one of `gte` and `gt`, one of `lte` and `lt`, or both.
    Range {
        /// The attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
        /// At least this.
        gte: Option<FilterBound>,
        /// Above this.
        gt: Option<FilterBound>,
        /// At most this.
        lte: Option<FilterBound>,
        /// Below this.
        lt: Option<FilterBound>,
    },
    /// The attribute is there, and not null.
    Exists {
        /// The attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
    },
}

/// What an attribute is compared with.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum FilterValue {
    /// At most 256 bytes.
    Text(String),
    Number(f64),
    Boolean(bool),
}

/// The end of a range.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum FilterBound {
    /// A number, or a time in Unix milliseconds.
    Number(f64),
    /// A time as RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    Time(String),
}
