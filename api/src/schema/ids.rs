//! Ids and names, as OpenAPI describes them. Requests may contain integers in their place, which
//! are kept as their decimal text.

use utoipa::ToSchema;

/// The id of a user, item, observation, decision or job: text of 1 to 256 bytes without control
/// characters.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 256, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
pub struct Id(pub String);

/// The name of a model, selection, stream or segment: up to 64 ASCII letters, digits, `-` and `_`.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_-]+$")]
pub struct Name(pub String);

/// An integer in place of an id or name.
#[derive(ToSchema)]
#[schema(minimum = -9_223_372_036_854_775_808_i64, maximum = 18_446_744_073_709_551_615_u64)]
pub struct Number(pub i64);

/// An id as text, or as an integer, which is kept as its decimal text.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum IdOrInteger {
    Text(Id),
    Integer(Number),
}

/// A name as text, or as an integer, which is kept as its decimal text.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum NameOrInteger {
    Text(Name),
    Integer(Number),
}
