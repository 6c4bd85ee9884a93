//! Times in requests.

use utoipa::ToSchema;

/// A time, as RFC 3339 text or as Unix milliseconds.
#[derive(ToSchema)]
#[serde(untagged)]
#[schema(examples("2026-11-22T09:30:00Z", json!(1_795_339_800_000_i64)))]
pub enum Time {
    /// RFC 3339 text.
    #[schema(value_type = String, format = DateTime)]
    Text(String),
    /// Unix milliseconds.
    Milliseconds(i64),
}
