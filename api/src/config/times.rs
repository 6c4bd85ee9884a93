//! Lengths of time in the configuration, such as `30s`.

use std::time::Duration;

use serde::{Deserializer, Serializer, de};

/// A hundred years: times that are added to a clock must not overflow it.
const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    humantime_serde::serialize(time, serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let time: Duration = humantime_serde::deserialize(deserializer)?;
    if time > MAX { Err(de::Error::custom("must be at most 36500days")) } else { Ok(time) }
}
