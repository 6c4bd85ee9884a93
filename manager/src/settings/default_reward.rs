//! Settings of default rewards.

use celeris_model::Loss;
use celeris_model::observation::check_label;
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// Reward of a shown slot that received none in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultReward {
    /// Label of the default observation.
    pub label: f32,
    /// Wait after the ranking before the default reward is written, in seconds: from 1 second to 30
    /// days.
    pub after_seconds: f64,
    /// Number of leading slots of a ranking that get a default reward, from 1 to 100: a slot that
    /// the user did not scroll to is no negative feedback.
    #[serde(default = "slots_default")]
    pub slots: u32,
}

fn slots_default() -> u32 {
    10
}

impl DefaultReward {
    /// Shortest wait, in seconds.
    const AFTER_MIN: f64 = 1.0;

    /// Longest wait, in seconds.
    const AFTER_MAX: f64 = 30.0 * 24.0 * 3600.0;

    const SLOTS_MAX: u32 = 100;

    /// Checks the ranges for a model with this loss.
    ///
    /// # Errors
    /// `Setting` or `Model`.
    pub(crate) fn check(&self, loss: Loss) -> Result<(), ManagerError> {
        check_label(self.label)?;
        loss.check_label(self.label)?;
        let wrong = |setting, range, received| Err(ManagerError::Setting { setting, range, received });
        if !(Self::AFTER_MIN..=Self::AFTER_MAX).contains(&self.after_seconds) {
            return wrong("default_reward.after_seconds", "from 1 to 2592000", self.after_seconds);
        }
        if !(1..=Self::SLOTS_MAX).contains(&self.slots) {
            return wrong("default_reward.slots", "from 1 to 100", f64::from(self.slots));
        }
        Ok(())
    }

    pub(crate) fn after_ms(&self) -> i64 {
        (self.after_seconds * 1e3) as i64
    }
}
