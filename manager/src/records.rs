//! What the registry keeps of models and versions.

use std::collections::BTreeMap;

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_features::Manifest;
use celeris_features::manifest::known_figures;
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

/// The smallest dimension: the constant, which is the user's bias.
pub const DIM_MIN: usize = 1;

pub use celeris_features::bounds::DIM_MAX;

/// How a model is configured when it is created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Its name.
    pub name: ModelName,
    /// The stream it learns from.
    pub stream: StreamName,
    /// The length of features and weights, the constant included.
    pub dim: usize,
    /// The loss that user weights minimise.
    pub loss: Loss,
    /// The time in which an observation loses half of its weight; absent, nothing is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<HalfLife>,
    /// How it ranks where a request names no policy.
    pub policy: PolicySpec,
    /// The share of such rankings that are drawn uniformly for the validation pool.
    pub pool_share: PoolShare,
    /// How its candidates are judged.
    #[serde(default)]
    pub gate: GateConfig,
    /// How long a new version is guarded.
    #[serde(default)]
    pub guard: GuardConfig,
    /// How many versions are kept beside those that must be.
    #[serde(default = "keep_versions_default")]
    pub keep_versions: u32,
    /// When it is retrained by itself.
    #[serde(default)]
    pub triggers: Triggers,
    /// Who trains it and how.
    #[serde(default)]
    pub trainer: TrainerSettings,
    /// The reward of shown slots for which none has come in time; absent, they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_reward: Option<DefaultReward>,
}

fn keep_versions_default() -> u32 {
    KEEP_VERSIONS_DEFAULT
}

impl ModelConfig {
    /// A model of this dimension that learns from the stream of its own name, and is as usual in everything else.
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

    /// The learning rule of the version with this prior.
    pub(crate) fn learning(&self, prior: Prior) -> Learning {
        Learning::new(prior, self.loss, self.half_life)
    }

    /// Checks the settings that have ranges.
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

/// A model in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Its identity, by which everything is kept that belongs to it; a model created under its name later has another.
    pub id: ModelId,
    /// Its configuration.
    pub config: ModelConfig,
    /// When it was created.
    pub created: Timestamp,
    /// The version that serves.
    pub active: VersionId,
    /// The number of the newest version; numbers are never reused.
    pub newest: VersionId,
    /// The versions that served before, oldest first, at most [`SERVED_MAX`]: the way back.
    pub served: Vec<VersionId>,
    /// The guard of the active version, while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarding: Option<Guarding>,
}

/// How many earlier versions a rollback can go back through.
pub const SERVED_MAX: usize = 32;

impl ModelRecord {
    /// Its name and its identity.
    pub(crate) fn identity(&self) -> (&ModelName, ModelId) {
        (&self.config.name, self.id)
    }

    /// The record with `version` serving, and the one that served kept as the way back.
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

/// A version in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionRecord {
    /// Its number within the model.
    pub version: VersionId,
    /// The version it was trained after.
    pub parent: Option<VersionId>,
    /// How it was trained.
    pub algorithm: String,
    /// When it was finished.
    pub created: Timestamp,
    /// The length of features and weights.
    pub dim: usize,
    /// How many items its table holds.
    pub items: u64,
    /// The smallest and largest label it was trained on.
    pub label_range: Option<(f32, f32)>,
    /// What the trainer measured; a figure that is no finite number is missing.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    /// Up to where it was trained on the log; `None` for one that was not.
    pub watermark: Option<Watermark>,
    /// Up to where all records may have shaped it, its own training's or those of a version that it went on from. Behind
    /// it, trainings have left out the records that are drawn for tails. `None` for one that no record has shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holdout_from: Option<Watermark>,
    /// Where its training began; `None` where it began from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmRecord>,
    /// Whether it is kept however old it is.
    #[serde(default)]
    pub pinned: bool,
    /// How it was judged before it might serve; `None` where nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateReport>,
}

/// Where a version began that was not trained from nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmRecord {
    /// The version that it went on from.
    pub from: VersionId,
    /// The watermark of the first of its ancestors, which was trained from nothing: what the log held there has shaped the
    /// version.
    ///
    /// `None` where it cannot be read; the version may then know of whatever its own training did not read as erased.
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

/// The identity that was given to a model or selection last.
pub(crate) fn last_id_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["last_model_id"])
}

/// All models and selections that are deleted, and of which something may be left.
pub(crate) fn all_deleted_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["deleted"])
}

/// One of them.
pub(crate) fn deleted_key(id: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["deleted".to_owned(), id.to_string()])
}

/// All models.
pub(crate) fn models_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["model"])
}

/// One model.
pub(crate) fn model_key(model: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["model", model.as_str()])
}

/// All versions of one model.
pub(crate) fn versions_key(model: &ModelName) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["version", model.as_str()])
}

/// One version; the number is padded so that the registry's order is theirs.
pub(crate) fn version_key(model: &ModelName, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["version".to_owned(), model.to_string(), format!("{version:020}", version = version.0)])
}

/// All jobs.
pub(crate) fn jobs_key() -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["job"])
}

/// One job.
pub(crate) fn job_key(job: &str) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["job", job])
}
