//! The baseline loss of a version, and the quality data of versions in the registry.

use celeris_model::{LabelRange, ModelId, Timestamp, VersionId};
use celeris_storage::{RegistryBatch, RegistryKey, StorageError, Watermark};
use serde::{Deserialize, Serialize};

use super::windows::{MeanLoss, Running};

/// Mean loss of a version's first observations, with which later losses are compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub mean: f64,
    /// Number of observations.
    pub count: u64,
    /// Time at which the last of them was processed.
    pub at: Timestamp,
}

/// A baseline, or the losses collected for it so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct StoredBaseline {
    pub(super) known: Option<Baseline>,
    /// The first losses, until there are enough of them.
    first: Running,
}

impl From<Option<Baseline>> for StoredBaseline {
    fn from(known: Option<Baseline>) -> Self {
        Self { known, first: Running::default() }
    }
}

impl StoredBaseline {
    /// Adds a loss. Returns whether it completes a baseline of `wanted` observations.
    pub(super) fn completed_by(&mut self, loss: f64, at: Timestamp, wanted: u64) -> bool {
        if self.known.is_some() {
            return false;
        }
        self.first.add(loss);
        let complete = self.first.mean().filter(|mean| mean.count >= wanted);
        self.known = complete.map(|MeanLoss { mean, count }| Baseline { mean, count, at });
        self.known.is_some()
    }
}

/// The quality data of one version that is stored in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VersionBaseline {
    pub(super) version: VersionId,
    /// The limits of labels in learning and in losses.
    #[serde(default)]
    pub(super) labels: Option<LabelRange>,
    /// Log position at which the version first began to serve.
    pub(super) first: Watermark,
    /// Log position at which the version last began to serve.
    pub(super) since: Watermark,
    /// Time of that moment.
    pub(super) at: Timestamp,
    /// Log position at which the last training ended: triggers evaluate only later observations, so
    /// that none fires twice for the same losses.
    pub(super) armed: Watermark,
    /// `None` until there are enough observations.
    pub(super) baseline: Option<Baseline>,
    /// Baseline on the validation pool, whose loss is higher since the model did not choose its
    /// items.
    #[serde(default)]
    pub(super) pool_baseline: Option<Baseline>,
}

impl VersionBaseline {
    pub(super) fn put(&self, model: ModelId, batch: &mut RegistryBatch) -> Result<(), StorageError> {
        batch.put(baseline_key(model, self.version)?, self)?;
        Ok(())
    }
}

/// The key prefix of the quality data of all versions of a model.
pub(super) fn baselines_key(model: ModelId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["quality".to_owned(), model.to_string()])
}

/// The number is padded, so that keys sort numerically.
pub(super) fn baseline_key(model: ModelId, version: VersionId) -> Result<RegistryKey, StorageError> {
    RegistryKey::new(["quality".to_owned(), model.to_string(), format!("{version:020}", version = version.0)])
}
