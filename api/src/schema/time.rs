//! Times in requests.

use celeris_model::Timestamp;
use serde::{Deserialize, Deserializer};
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

/// Reads a timestamp as RFC 3339 text or as Unix milliseconds.
///
/// # Errors
/// If it is neither.
pub fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected an RFC 3339 time or Unix milliseconds")]
    enum Either {
        Milliseconds(i64),
        Text(String),
    }
    Ok(match Option::<Either>::deserialize(deserializer)? {
        None => None,
        Some(Either::Milliseconds(milliseconds)) => Some(Timestamp(milliseconds)),
        Some(Either::Text(text)) => {
            let wanted = "expected an RFC 3339 time such as 2026-11-22T09:30:00Z, or Unix milliseconds";
            let unreadable = |_| serde::de::Error::custom(format!("{wanted}, got {text:?}"));
            let parsed: jiff::Timestamp = text.parse().map_err(unreadable)?;
            Some(Timestamp(parsed.as_millisecond()))
        }
    })
}
