//! Fading of sums, so that an arm that has recovered is used again, while states remain a function
//! of the log.
//!
//! The log is a set of *lanes*, each of which counts its records from 1: a partition, or one user's
//! events. A lane is cut into blocks of a fixed length, and each block has its own sums. A block
//! fades with its *age*, the number of records after its last one in all lanes together. The log
//! orders records within lanes only, so the age is estimated from the lane's own end and the lane's
//! share of all records: `(clock - last) · total / clock`, with `clock` the lane's last record and
//! `total` the number of records of all lanes.
//!
//! The age is a function of places and ends alone, not of client timestamps or of the order in
//! which lanes were read, and it never decreases as the log grows. So a block that is too old to
//! count can be dropped for good, memory is bounded, and a rebuild reads only the end of the log.

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::BanditError;

/// Number of blocks for each half-life, if lanes are equally busy.
const BLOCKS_A_HALF_LIFE: u64 = 4;

/// Half-lives after which a block no longer counts: less than a part in 4000 of its weight is left.
const HALF_LIVES: u64 = 12;

/// Half-lives for which past weights can be computed: the blocks before that point still hold
/// enough.
pub const HALF_LIVES_KNOWN: u64 = 8;

/// Maximum number of blocks of a lane without fading: their length doubles as the lane grows.
const BLOCKS_MAX: u64 = 64;

/// The number of records in which a sum loses half of its weight: records of the stream, or of the
/// user if each user has sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct HalfLifeRecords(u64);

impl HalfLifeRecords {
    pub const MIN: u64 = 10;

    /// The longest half-life: a rebuild reads twelve times as many records.
    pub const MAX: u64 = 1_000_000;

    /// A half-life of `records` records.
    ///
    /// # Errors
    /// [`BanditError::OutOfRange`] unless it is from 10 to 1,000,000.
    pub fn new(records: u64) -> Result<Self, BanditError> {
        if !(Self::MIN..=Self::MAX).contains(&records) {
            let (range, value) = ("from 10 to 1000000 records", records as f64);
            return Err(BanditError::OutOfRange { parameter: "half_life_records", range, value });
        }
        Ok(Self(records))
    }

    #[must_use]
    pub fn records(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for HalfLifeRecords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// How lanes are cut into blocks, and how these fade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// `None` if sums do not fade.
    half_life: Option<HalfLifeRecords>,
    lanes: usize,
}

/// Ends of a lane and of all lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The lane's last record.
    pub(crate) lane: u64,
    /// Number of records of all lanes.
    pub(crate) total: u64,
}

impl Blocks {
    pub(crate) fn new(half_life: Option<HalfLifeRecords>, lanes: usize) -> Self {
        Self { half_life, lanes }
    }

    /// Number of records in a block of a lane that ends at `clock`.
    pub(crate) fn length(&self, clock: u64) -> u64 {
        match self.half_life {
            Some(half_life) => (half_life.0 / (BLOCKS_A_HALF_LIFE * self.lanes as u64)).max(1),
            None => clock.div_ceil(BLOCKS_MAX).next_power_of_two(),
        }
    }

    /// Whether a block whose last record is `last` still counts.
    pub(crate) fn is_live(&self, last: u64, clock: Clock) -> bool {
        let Some(half_life) = self.half_life else { return true };
        let after = u128::from(clock.lane.saturating_sub(last));
        // In integers, so that the boundary is the same everywhere.
        after * u128::from(clock.total) <= u128::from(HALF_LIVES * half_life.0) * u128::from(clock.lane)
    }

    /// The remaining share of the weight of a block whose last record is `last`.
    pub(crate) fn retained(&self, last: u64, clock: Clock) -> f64 {
        let Some(half_life) = self.half_life else { return 1.0 };
        let after = clock.lane.saturating_sub(last) as f64;
        let age = after * clock.total as f64 / clock.lane.max(1) as f64;
        (-age / half_life.0 as f64).exp2()
    }

    /// The first record of a lane that may be in a block that counts.
    pub(crate) fn first_live(&self, clock: Clock) -> u64 {
        let Some(half_life) = self.half_life else { return 1 };
        let after = u128::from(HALF_LIVES * half_life.0) * u128::from(clock.lane) / u128::from(clock.total.max(1));
        let last = clock.lane.saturating_sub(u64::try_from(after).unwrap_or(u64::MAX));
        let length = self.length(clock.lane);
        last.saturating_sub(1) / length * length + 1
    }
}
