//! A study that a model starts again and again.

use celeris_study::{Sampler, Space};
use serde::{Deserialize, Serialize};

/// What follows a study that has found better settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The model gets the settings and is retrained with them.
    Retrain,
}

/// Start a study once this time has passed since the last one began, if there are new observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledStudy {
    /// In seconds.
    pub every: f64,
    pub space: Space,
    /// Number of trials besides that of the present settings.
    pub trials: u32,
    /// Seconds after which no trial begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Number of trials at a time of this node, and of workers on other machines.
    pub workers: u32,
    #[serde(default)]
    pub remote_workers: u32,
    #[serde(default)]
    pub sampler: Sampler,
    /// Whether trials continue from the best one so far.
    #[serde(default)]
    pub collaborative: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Then>,
}
