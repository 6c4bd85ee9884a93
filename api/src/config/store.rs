//! The sections of what a node stores: `[decisions]`, `[sealing]` and `[verification]`.

use std::time::Duration;

use bytesize::ByteSize;
use celeris_storage::StorageOptions;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sizes;

/// Recording of decisions: whether, in how much detail, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Decisions {
    /// Whether decisions are recorded.
    pub enabled: bool,
    /// Decisions over at most this many candidates record all of them.
    pub candidates_in_full: usize,
    /// The share of decisions over more candidates that record all of them; the others record a
    /// digest.
    pub candidates_sampled: f64,
    /// Maximum bytes of decisions per second, with bursts of one second's worth; decisions beyond
    /// it are dropped and counted.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub bytes_per_second: ByteSize,
    /// Maximum number of decisions queued for the writer; decisions beyond it are dropped and
    /// counted.
    pub queue: usize,
    /// How long decisions are kept and rewards are joined to them.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub retention: Duration,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            enabled: true,
            candidates_in_full: 256,
            candidates_sampled: 0.01,
            bytes_per_second: ByteSize::mib(16),
            queue: 8192,
            retention: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

/// The longest queue of decisions: its memory is taken at the start.
const QUEUE_MAX: usize = 1 << 24;

impl Decisions {
    pub(super) fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.candidates_sampled) {
            let received = self.candidates_sampled;
            return Err(format!("decisions.candidates_sampled: must be from 0 to 1, got {received}"));
        }
        if self.queue > QUEUE_MAX {
            return Err(format!("decisions.queue: must be at most {QUEUE_MAX}, got {}", self.queue));
        }
        let numbers = [
            ("queue", self.queue == 0),
            ("bytes_per_second", self.bytes_per_second.as_u64() == 0),
            ("retention", self.retention.is_zero()),
        ];
        if let Some((name, _)) = numbers.iter().find(|(_, is_zero)| *is_zero) {
            return Err(format!("decisions.{name}: must be above 0; decisions.enabled = false turns them off"));
        }
        Ok(())
    }
}

/// Copying of the log to sealed Parquet segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sealing {
    /// Whether the log is copied to Parquet files.
    pub enabled: bool,
    /// The longest time a record waits to be sealed. Amended records disappear from the files
    /// within twice this time.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub interval: Duration,
    /// This many waiting records trigger sealing before the interval has passed.
    pub records: u64,
}

impl Default for Sealing {
    fn default() -> Self {
        Self { enabled: true, interval: Duration::from_secs(60), records: 100_000 }
    }
}

/// Background verification of the store's checksums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Verification {
    /// Delay after the start of the node.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub delay: Duration,
    /// Time between the end of one full pass and the start of the next.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub interval: Duration,
    /// Read rate, per second.
    #[serde(serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub bytes_per_second: ByteSize,
}

impl Default for Verification {
    fn default() -> Self {
        let options = StorageOptions::default();
        Self {
            delay: options.verification_delay,
            interval: options.verification_interval,
            bytes_per_second: ByteSize(options.verification_bytes_per_second),
        }
    }
}
