//! How sums fade, so that an arm that has recovered is taken back, and stay a function of the log all the same.
//!
//! The log is a set of *lanes*, each of which counts its records from 1: a partition, or one user's events. A lane is cut
//! into blocks of a fixed length, and each block has its own sums. A block fades with its *age*, the number of records that
//! have come after its last one in all lanes together. The log orders records within lanes only, so the age is told from
//! the lane's own end and the lane's share of all records: `(clock - last) · total / clock`, with `clock` the lane's last
//! record and `total` the records of all lanes.
//!
//! That is a function of places and ends alone, not of times that clients send or of the order in which lanes were read, and
//! it never decreases as the log grows. So a block that is too old to count can be dropped for good, memory is bounded, and
//! rebuilding reads only the end of the log.

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::BanditError;

/// Blocks in which a half-life is counted, if lanes are equally busy.
const BLOCKS_A_HALF_LIFE: u64 = 4;

/// Half-lives after which a block no longer counts: less than a part in 4000 of its weight is left.
const HALF_LIVES: u64 = 12;

/// Half-lives back to which weights can be told: what is behind that point still holds enough to tell them from.
pub const HALF_LIVES_TOLD: u64 = 8;

/// Blocks of a lane, where nothing fades: their length is doubled as the lane grows.
const BLOCKS_MAX: u64 = 64;

/// The records in which a sum loses half of its weight: of the stream, or of the user where each user has sums of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct HalfLifeRecords(u64);

impl HalfLifeRecords {
    /// The shortest.
    pub const MIN: u64 = 10;

    /// The longest: rebuilding reads twelve times as many records.
    pub const MAX: u64 = 1_000_000;

    /// A half-life of so many records.
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

    /// How many.
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
    /// `None` where nothing fades.
    half_life: Option<HalfLifeRecords>,
    lanes: usize,
}

/// Ends of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The lane's last record.
    pub(crate) lane: u64,
    /// The records of all lanes.
    pub(crate) total: u64,
}

impl Blocks {
    pub(crate) fn new(half_life: Option<HalfLifeRecords>, lanes: usize) -> Self {
        Self { half_life, lanes }
    }

    /// How many records a block of a lane has that ends at `clock`.
    pub(crate) fn length(&self, clock: u64) -> u64 {
        match self.half_life {
            Some(half_life) => (half_life.0 / (BLOCKS_A_HALF_LIFE * self.lanes as u64)).max(1),
            None => clock.div_ceil(BLOCKS_MAX).next_power_of_two(),
        }
    }

    /// Whether a block still counts whose last record is `last`.
    pub(crate) fn is_live(&self, last: u64, clock: Clock) -> bool {
        let Some(half_life) = self.half_life else { return true };
        let after = u128::from(clock.lane.saturating_sub(last));
        // In whole numbers, so that the border is the same whoever asks.
        after * u128::from(clock.total) <= u128::from(HALF_LIVES * half_life.0) * u128::from(clock.lane)
    }

    /// The share of its weight that a block has left whose last record is `last`.
    pub(crate) fn retained(&self, last: u64, clock: Clock) -> f64 {
        let Some(half_life) = self.half_life else { return 1.0 };
        let after = clock.lane.saturating_sub(last) as f64;
        let age = after * clock.total as f64 / clock.lane.max(1) as f64;
        (-age / half_life.0 as f64).exp2()
    }

    /// The first record of a lane that may be part of a block that counts.
    pub(crate) fn first_live(&self, clock: Clock) -> u64 {
        let Some(half_life) = self.half_life else { return 1 };
        let after = u128::from(HALF_LIVES * half_life.0) * u128::from(clock.lane) / u128::from(clock.total.max(1));
        let last = clock.lane.saturating_sub(u64::try_from(after).unwrap_or(u64::MAX));
        let length = self.length(clock.lane);
        last.saturating_sub(1) / length * length + 1
    }
}
