//! Settings of the guard.

use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// At the end of a guard, fewer observations than this decide nothing; also the shortest guard that
/// can be configured.
pub(crate) const OBSERVATIONS_MIN: u64 = 10;

/// Longest guard in observations; the comparison holds and repeatedly evaluates all of them.
pub(crate) const OBSERVATIONS_MAX: u64 = 100_000;

/// Longest guard in seconds: a year.
const SECONDS_MAX: u64 = 365 * 24 * 3600;

/// Settings of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Observations after which the guard ends, from 10 to 100,000; 0 disables the guard.
    pub observations: u64,
    /// Seconds after which the guard ends at the latest, at most a year; 0 disables the guard.
    pub seconds: u64,
    /// Share of the previous version's loss by which the new version may be worse.
    pub margin: f64,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { observations: 1000, seconds: 3600, margin: 0.05 }
    }
}

impl GuardConfig {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// `Setting` with the name of the field.
    pub fn check(&self) -> Result<(), ManagerError> {
        let wrong = |setting, range, received| Err(ManagerError::Setting { setting, range, received });
        if self.observations != 0 && !(OBSERVATIONS_MIN..=OBSERVATIONS_MAX).contains(&self.observations) {
            return wrong("guard.observations", "0, or from 10 to 100000", self.observations as f64);
        }
        if self.seconds > SECONDS_MAX {
            return wrong("guard.seconds", "at most 31536000", self.seconds as f64);
        }
        if !(0.0..=10.0).contains(&self.margin) {
            return wrong("guard.margin", "from 0 to 10", self.margin);
        }
        Ok(())
    }
}
