//! Which times of observations are accepted.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use celeris_model::Timestamp;

/// From the earliest time to this node's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptedTimes {
    pub(crate) earliest: Timestamp,
    /// How far a time may be ahead of the clock.
    pub(crate) clock_skew_max: Duration,
}

impl AcceptedTimes {
    /// The times that are accepted now.
    pub(crate) fn now(self) -> RangeInclusive<Timestamp> {
        let skew = i64::try_from(self.clock_skew_max.as_millis()).unwrap_or(i64::MAX);
        self.earliest..=Timestamp(Timestamp::from(SystemTime::now()).0.saturating_add(skew))
    }
}
