//! The filter language, as OpenAPI describes it.

use utoipa::ToSchema;

/// A filter on item attributes: an object with one key. At most 8 levels deep, with at most 4096
/// filters and values in total. docs/filters.md describes the language.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = json!({"all": [
    {"eq": {"field": "genres", "value": "Drama"}},
    {"range": {"field": "year", "gte": 1940, "lt": 1960}}
]}))]
pub enum Filter {
    /// All of the filters match.
    #[schema(no_recursion)]
    All(Vec<Filter>),
    /// At least one of the filters matches.
    #[schema(no_recursion)]
    Any(Vec<Filter>),
    /// The filter does not match. Matches items without the attribute.
    #[schema(no_recursion)]
    Not(Box<Filter>),
    /// The attribute equals the value, or is a list of texts that contains it.
    Eq {
        /// The name of the attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
        value: FilterValue,
    },
    /// The attribute equals one of the values, or is a list of texts that contains one of them.
    In {
        /// The name of the attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
        values: Vec<FilterValue>,
    },
    /// The attribute is a number or time within the bounds: one of `gte` and `gt`, one of `lte` and
    /// `lt`, or one of each.
    Range {
        /// The name of the attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
        /// Inclusive lower bound.
        gte: Option<FilterBound>,
        /// Exclusive lower bound.
        gt: Option<FilterBound>,
        /// Inclusive upper bound.
        lte: Option<FilterBound>,
        /// Exclusive upper bound.
        lt: Option<FilterBound>,
    },
    /// The attribute exists and is not null.
    Exists {
        /// The name of the attribute.
        #[schema(min_length = 1, max_length = 128)]
        field: String,
    },
}

/// A value that an attribute is compared with.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum FilterValue {
    /// A text of at most 256 bytes.
    Text(String),
    Number(f64),
    Boolean(bool),
}

/// A bound of a range.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum FilterBound {
    /// A number, or a time in Unix milliseconds.
    Number(f64),
    /// A time in RFC 3339 format.
    #[schema(value_type = String, format = DateTime)]
    Time(String),
}
