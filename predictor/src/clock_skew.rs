//! How far the time of an observation may be ahead of this node's clock.

use std::time::{Duration, SystemTime};

use celeris_model::Timestamp;

/// The greatest accepted difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockSkew(pub(crate) Duration);

impl ClockSkew {
    /// The latest time that is accepted now.
    pub(crate) fn latest(self) -> Timestamp {
        let skew = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        Timestamp(Timestamp::from(SystemTime::now()).0.saturating_add(skew))
    }
}
