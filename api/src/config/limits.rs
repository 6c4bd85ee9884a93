//! The section `[limits]`.

use std::time::Duration;

use bytesize::ByteSize;
use celeris_model::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sizes;

/// Limits of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum size of a JSON body.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub body: ByteSize,
    /// Maximum size of an object of pipelines.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub object: ByteSize,
    /// Maximum total size of all partially received bodies; requests beyond it are answered with
    /// 503.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub arriving: ByteSize,
    /// Maximum size of one NDJSON line.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub line: ByteSize,
    /// Maximum number of items in one predict or topk request.
    pub items_per_request: usize,
    /// Maximum number of concurrent requests; requests beyond it are answered with 503.
    pub requests: usize,
    /// Maximum number of open NDJSON streams; streams beyond it are answered with 503. They do not
    /// count as requests.
    pub streams: usize,
    /// Maximum number of open NDJSON streams of one API key, or token; streams beyond it are answered with 429.
    pub streams_per_key: usize,
    /// How long a stream may send nothing before it is closed; empty lines keep it open.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub stream_idle_timeout: Duration,
    /// The earliest timestamp of an observation, as RFC 3339 text. The default rejects times in
    /// seconds, which as milliseconds are in January 1970.
    #[serde(with = "rfc3339")]
    #[schema(value_type = String)]
    pub earliest_time: Timestamp,
    /// How far the timestamp of an observation may be ahead of the node's clock.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub clock_skew: Duration,
    /// How long a request may take; it is answered with 504 after that.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub request_timeout: Duration,
    /// Maximum number of observations in flight per NDJSON stream.
    pub observations_in_flight: usize,
    /// Maximum number of models.
    pub models: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: ByteSize::mib(4),
            object: ByteSize::mib(64),
            arriving: ByteSize::mib(256),
            line: ByteSize::kib(64),
            items_per_request: 10_000,
            requests: 1024,
            streams: 64,
            streams_per_key: 32,
            stream_idle_timeout: Duration::from_secs(60),
            earliest_time: YEAR_2000,
            clock_skew: Duration::from_secs(300),
            request_timeout: Duration::from_secs(30),
            observations_in_flight: 8192,
            models: 100,
        }
    }
}

/// The most of what is counted: a semaphore has no more permits on any machine.
const COUNT_MAX: usize = 1 << 28;

impl Limits {
    /// Checks that the node can do something within each limit.
    pub(super) fn check(&self) -> Result<(), String> {
        let sizes = [("body", self.body), ("object", self.object), ("arriving", self.arriving), ("line", self.line)];
        let counts = [
            ("items_per_request", self.items_per_request),
            ("requests", self.requests),
            ("streams", self.streams),
            ("streams_per_key", self.streams_per_key),
            ("observations_in_flight", self.observations_in_flight),
            ("models", self.models),
        ];
        let times = [("stream_idle_timeout", self.stream_idle_timeout), ("request_timeout", self.request_timeout)];
        let empty = sizes.iter().find(|(_, size)| size.as_u64() == 0).map(|(name, _)| *name);
        let empty = empty.or_else(|| times.iter().find(|(_, time)| time.is_zero()).map(|(name, _)| *name));
        if let Some(name) = empty {
            return Err(format!("limits.{name}: must be above 0"));
        }
        match counts.iter().find(|(_, count)| !(1..=COUNT_MAX).contains(count)) {
            Some((name, count)) => Err(format!("limits.{name}: must be from 1 to {COUNT_MAX}, got {count}")),
            None => Ok(()),
        }
    }
}

const YEAR_2000: Timestamp = Timestamp(946_684_800_000);

/// A timestamp as RFC 3339 text.
mod rfc3339 {
    use celeris_model::Timestamp;
    use celeris_model::observation::EARLIEST;
    use serde::{Deserialize, Deserializer, Serializer, de, ser};

    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        let time = jiff::Timestamp::from_millisecond(time.0).map_err(ser::Error::custom)?;
        serializer.collect_str(&time)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|_| de::Error::custom(format!("expected a time like 1995-01-01T00:00:00Z, got {text:?}")))?;
        Ok(Timestamp(time.as_millisecond()).max(EARLIEST))
    }
}
