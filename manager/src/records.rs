//! Registry records of models and versions.

use std::collections::BTreeMap;

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_formats::Manifest;
use celeris_formats::manifest::known_figures;
use celeris_model::{HalfLife, Learning, Loss, ModelId, ModelName, Prior, StreamName, Timestamp, VersionId};
use celeris_predictor::RankingDefaults;
use celeris_storage::{RegistryKey, StorageError, Watermark};
use serde::{Deserialize, Serialize};

use crate::decisions::DefaultReward;
use crate::error::ManagerError;
use crate::gate::{GateConfig, GateReport};
use crate::guard::{GuardConfig, Guarding};
use crate::training::TrainerSettings;
use crate::triggers::Triggers;
use crate::versions::{KEEP_VERSIONS_DEFAULT, KEEP_VERSIONS_MAX};

/// Smallest dimension: only the constant feature, whose weight is the user's bias.
pub const DIM_MIN: usize = 1;

pub use celeris_formats::version_dir::DIM_MAX;

/// Configuration of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    pub name: ModelName,
    /// The stream that the model learns from.
    pub stream: StreamName,
    /// Length of feature and weight vectors, including the constant.
    pub dim: usize,
    /// The loss that user weights minimise.
    pub loss: Loss,
    /// Time in which an observation loses half of its weight; if absent, weights do not decay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<HalfLife>,
    /// Policy of rankings whose request names none.
    pub policy: PolicySpec,
    /// Share of these rankings that are drawn uniformly for the validation pool.
    pub pool_share: PoolShare,
    #[serde(default)]
    pub gate: GateConfig,
    #[serde(default)]
    pub guard: GuardConfig,
    /// Number of versions kept in addition to the required ones.
    #[serde(default = "keep_versions_default")]
    pub keep_versions: u32,
    /// Triggers of automatic retraining.
    #[serde(default)]
    pub triggers: Triggers,
    #[serde(default)]
    pub trainer: TrainerSettings,
    /// Reward of shown slots that received none in time; if absent, such slots have no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_reward: Option<DefaultReward>,
}

fn keep_versions_default() -> u32 {
    KEEP_VERSIONS_DEFAULT
}

impl ModelConfig {
    /// A model with this dimension that learns from the stream of the same name, with defaults for everything else.
    #[must_use]
    pub fn new(name: ModelName, dim: usize) -> Self {
        Self {
            stream: StreamName::of_model(&name),
            name,
            dim,
            loss: Loss::default(),
            half_life: None,
            policy: PolicySpec::default(),
            pool_share: PoolShare::default(),
            gate: GateConfig::default(),
            guard: GuardConfig::default(),
            keep_versions: KEEP_VERSIONS_DEFAULT,
            triggers: Triggers::default(),
            trainer: TrainerSettings::default(),
            default_reward: None,
        }
    }

    /// The learning rule of a version with this prior.
    pub(crate) fn learning(&self, prior: Prior) -> Learning {
        Learning::new(prior, self.loss, self.half_life)
    }

    /// Checks the settings with ranges.
    ///
    /// # Errors
    /// `Dim` or `Setting`.
    pub(crate) fn check(&self) -> Result<(), ManagerError> {
        if !(DIM_MIN..=DIM_MAX).contains(&self.dim) {
            return Err(ManagerError::Dim { min: DIM_MIN, max: DIM_MAX, received: self.dim });
        }
        self.gate.check()?;
        self.guard.check()?;
        if !(1..=KEEP_VERSIONS_MAX).contains(&self.keep_versions) {
            let received = f64::from(self.keep_versions);
            return Err(ManagerError::Setting { setting: "keep_versions", range: "from 1 to 1000", received });
        }
        if let Some(reward) = &self.default_reward {
            reward.check(self.loss)?;
        }
        self.triggers.check()
    }

    pub(crate) fn defaults(&self) -> RankingDefaults {
        RankingDefaults { policy: self.policy.clone(), pool_share: self.pool_share }
    }
}

/// Registry record of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Its id, which keys all data of the model; a model created later under the same name has another.
    pub id: ModelId,
    pub config: ModelConfig,
    pub created: Timestamp,
    /// The active version.
    pub active: VersionId,
    /// Number of the newest version; numbers are never reused.
    pub newest: VersionId,
    /// Previously active versions, oldest first, at most [`SERVED_MAX`]; used by rollbacks.
    pub served: Vec<VersionId>,
    /// The guard of the active version, while it is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarding: Option<Guarding>,
}

/// Number of earlier versions that rollbacks can reach.
pub const SERVED_MAX: usize = 32;

impl ModelRecord {
    /// Its name and id.
    pub(crate) fn identity(&self) -> (&ModelName, ModelId) {
        (&self.config.name, self.id)
    }

    /// The record with `version` active and the previous version appended to `served`.
    pub(crate) fn activating(mut self, version: VersionId) -> Self {
        if self.active != version {
            self.served.push(self.active);
            let excess = self.served.len().saturating_sub(SERVED_MAX);
            self.served.drain(..excess);
            self.active = version;
        }
        self
    }
}

/// Registry record of a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionRecord {
    /// Number within the model.
    pub version: VersionId,
    /// The version that was active when its training began.
    pub parent: Option<VersionId>,
    /// Name of the training algorithm.
    pub algorithm: String,
    /// Time at which the training finished.
    pub created: Timestamp,
    /// Length of feature and weight vectors.
    pub dim: usize,
    /// Number of items in its feature table.
    pub items: u64,
    /// Smallest and largest label in the training data.
    pub label_range: Option<(f32, f32)>,
    /// Metrics reported by the trainer; a value that is not finite is omitted.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    /// End of the part of the log it was trained on; `None` if it was not trained on the log.
    pub watermark: Option<Watermark>,
    /// End of the part of the log whose records may all have been used to train it, directly or by a version it was
    /// warm started from. Behind it, trainings left out the records drawn for holdouts. `None` if it was not trained on
    /// the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holdout_from: Option<Watermark>,
    /// Start of a warm training; `None` after a cold training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmRecord>,
    /// Whether it is exempt from pruning.
    #[serde(default)]
    pub pinned: bool,
    /// Report of the gate; `None` if the version was not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateReport>,
}

/// Origin of a version that was trained from an earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmRecord {
    /// The version that the training started from.
    pub from: VersionId,
    /// Watermark of the cold training that the version descends from: the version depends on the log up to there.
    ///
    /// `None` if it cannot be read; the version may then have been trained on any user erased since.
    pub cold_watermark: Option<Watermark>,
}

impl VersionRecord {
    pub(crate) fn new(version: VersionId, items: usize, manifest: &Manifest) -> Self {
        Self {
            watermark: serde_json::from_value(manifest.watermark.clone()).ok(),
            warm: manifest.warm.as_ref().map(|warm| WarmRecord {
                from: warm.from,
                cold_watermark: serde_json::from_value(warm.cold_watermark.clone()).ok(),
            }),
            version,
            parent: manifest.parent,
            algorithm: manifest.algorithm.clone(),
            created: manifest.created,
            dim: manifest.dim,
            items: items as u64,
            label_range: manifest.label_range,
            metrics: manifest.metrics.clone(),
            holdout_from: None,
            pinned: false,
            gate: None,
        }
    }
}

/// The id that was allocated last.
pub(crate) fn last_id_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["last_model_id"])
}

/// All deleted models and selections of which data may be left.
pub(crate) fn all_deleted_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["deleted"])
}

pub(crate) fn deleted_key(id: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["deleted".to_owned(), id.to_string()])
}

pub(crate) fn models_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["model"])
}

pub(crate) fn model_key(model: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["model", model.as_str()])
}

pub(crate) fn versions_key(model: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["version", model.as_str()])
}

/// The number is padded, so that keys sort numerically.
pub(crate) fn version_key(model: &ModelName, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["version".to_owned(), model.to_string(), format!("{version:020}", version = version.0)])
}

pub(crate) fn jobs_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["job"])
}

pub(crate) fn job_key(job: &str) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["job", job])
}
