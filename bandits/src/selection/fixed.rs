//! Sums that do not depend on the order of their terms.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// A number in whole units of `2^-30`.
///
/// Adding integers is associative, which adding floats is not. A sum wraps beyond `2^33`, about 8.6
/// billion: a block of the log would have to hold millions of records, each with the largest loss
/// and the lowest probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fixed(i64);

impl Fixed {
    /// Fractional bits.
    pub const FRACTION_BITS: u32 = 30;

    const UNIT: f64 = (1_u64 << Self::FRACTION_BITS) as f64;

    /// The nearest representable number. NaN becomes 0, infinity the largest magnitude.
    #[must_use]
    pub fn nearest(value: f64) -> Self {
        // A cast from float saturates, and maps NaN to 0.
        Self((value * Self::UNIT).round() as i64)
    }

    #[must_use]
    pub fn value(self) -> f64 {
        self.0 as f64 / Self::UNIT
    }

    /// The number of units; equal if and only if the numbers are.
    #[must_use]
    pub fn units(self) -> i64 {
        self.0
    }
}

impl AddAssign for Fixed {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}
