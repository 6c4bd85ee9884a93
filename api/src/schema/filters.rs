//! The filter language, as OpenAPI describes it.

use utoipa::ToSchema;

/// A filter on item attributes: an object with one key. At most 8 levels deep, with at most 4096
/// filters and values in total. docs/guides/filters.md describes the language.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(min_properties = 1, max_properties = 1, example = json!({"all": [
    {"eq": {"field": "genres", "value": "Drama"}},
    {"range": {"field": "year", "gte": 1940, "lt": 1960}}
]}))]
pub struct Filter {
    /// All of the filters match.
    #[schema(no_recursion, nullable = false)]
    pub all: Option<Vec<Filter>>,
    /// At least one of the filters matches.
    #[schema(no_recursion, nullable = false)]
    pub any: Option<Vec<Filter>>,
    /// The filter does not match. Matches items without the attribute.
    #[schema(no_recursion, nullable = false)]
    pub not: Option<Box<Filter>>,
    #[schema(nullable = false)]
    pub eq: Option<EqFilter>,
    #[serde(rename = "in")]
    #[schema(nullable = false)]
    pub one_of: Option<InFilter>,
    #[schema(nullable = false)]
    pub range: Option<RangeFilter>,
    #[schema(nullable = false)]
    pub exists: Option<ExistsFilter>,
}

/// The attribute equals the value, or is a list of texts that contains it.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EqFilter {
    /// The name of the attribute.
    #[schema(min_length = 1, max_length = 128)]
    pub field: String,
    pub value: FilterValue,
}

/// The attribute equals one of the values, or is a list of texts that contains one of them.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InFilter {
    /// The name of the attribute.
    #[schema(min_length = 1, max_length = 128)]
    pub field: String,
    pub values: Vec<FilterValue>,
}

/// The attribute is a number or time within the bounds: one of `gte` and `gt`, one of `lte` and
/// `lt`, or one of each.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeFilter {
    /// The name of the attribute.
    #[schema(min_length = 1, max_length = 128)]
    pub field: String,
    /// Inclusive lower bound.
    #[schema(nullable = false)]
    pub gte: Option<FilterBound>,
    /// Exclusive lower bound.
    #[schema(nullable = false)]
    pub gt: Option<FilterBound>,
    /// Inclusive upper bound.
    #[schema(nullable = false)]
    pub lte: Option<FilterBound>,
    /// Exclusive upper bound.
    #[schema(nullable = false)]
    pub lt: Option<FilterBound>,
}

/// The attribute exists and is not null.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExistsFilter {
    /// The name of the attribute.
    #[schema(min_length = 1, max_length = 128)]
    pub field: String,
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
