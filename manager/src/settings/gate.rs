//! Settings of the gate.

use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// Settings of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// Required improvement as a share of the incumbent's loss; a negative value allows the
    /// candidate to be worse.
    pub margin: f64,
    /// Share of the log, from 0 to 0.5, that candidates are not trained on but evaluated on: half
    /// of the records of the newest part, which is twice this share.
    pub holdout_share: f64,
    /// Number of observations of the validation pool in the holdout from which they are also
    /// evaluated separately.
    pub pool_min: u64,
    /// Lets every candidate pass; the report contains the verdict that it would have received.
    pub force: bool,
    /// Seconds of live traffic on which a candidate runs in shadow mode before it may serve; at
    /// most 3600.
    pub shadow_seconds: u64,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self { margin: 0.0, holdout_share: 0.05, pool_min: 100, force: false, shadow_seconds: 0 }
    }
}

impl GateConfig {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// `Setting` with the name of the field.
    pub fn check(&self) -> Result<(), ManagerError> {
        let wrong = |setting, range, received| Err(ManagerError::Setting { setting, range, received });
        if !(-1.0..1.0).contains(&self.margin) {
            return wrong("gate.margin", "from -1 to below 1", self.margin);
        }
        if !(0.0..=0.5).contains(&self.holdout_share) {
            return wrong("gate.holdout_share", "from 0 to 0.5", self.holdout_share);
        }
        if self.shadow_seconds > 3600 {
            return wrong("gate.shadow_seconds", "at most 3600", self.shadow_seconds as f64);
        }
        Ok(())
    }
}
