//! Registry records of models and versions.

use std::collections::BTreeMap;
use std::path::Path;

use celeris_formats::manifest::known_figures;
use celeris_formats::{FormatError, MANIFEST_FILE, Manifest, sha256_of};
use celeris_model::{HalfLife, ModelId, ModelName, Timestamp, VersionId};
use celeris_storage::Watermark;
use serde::{Deserialize, Serialize};

use super::gate_report::GateReport;
use crate::settings::ModelConfig;

/// Registry record of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Its id, which keys all data of the model; a model created later under the same name has
    /// another.
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
    /// Its computed parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<VersionPart>,
    /// Smallest and largest label in the training data, outliers aside.
    pub label_range: Option<(f32, f32)>,
    /// Time in which an observation loses half of its weight; if absent, weights do not decay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<HalfLife>,
    /// Metrics reported by the trainer; a value that is not finite is omitted.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    /// End of the part of the log it was trained on; `None` if it was not trained on the log.
    pub watermark: Option<Watermark>,
    /// End of the part of the log whose records may all have been used to train it, directly or by
    /// a version it was warm started from. Behind it, trainings left out the records drawn for
    /// holdouts. `None` if it was not trained on the log.
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
    /// SHA-256 of its manifest, in lower-case hexadecimal, by which the nodes of a cluster know its
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
}

/// A computed part of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionPart {
    pub part: String,
    /// The fields, as `context.hour`, that no observation of the training had in a form that the pipeline can read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread_fields: Vec<String>,
    /// Whether its columns were the same in all observations, or none had it.
    #[serde(default)]
    pub is_constant: bool,
}

/// Origin of a version that was trained from an earlier one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmRecord {
    /// The version that the training started from.
    pub from: VersionId,
    /// Watermark of the cold training that the version descends from: the version depends on the
    /// log up to there.
    ///
    /// `None` if it cannot be read; the version may then have been trained on any user erased
    /// since.
    pub cold_watermark: Option<Watermark>,
}

impl VersionRecord {
    pub(crate) fn new(version: VersionId, items: usize, half_life: Option<HalfLife>, manifest: &Manifest) -> Self {
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
            parts: Vec::new(),
            label_range: manifest.label_range,
            half_life,
            metrics: manifest.metrics.clone(),
            holdout_from: None,
            pinned: false,
            gate: None,
            manifest: None,
        }
    }

    /// The record of a version whose directory is `dir`.
    ///
    /// # Errors
    /// `Format` if its manifest cannot be read.
    pub(crate) fn in_dir(self, dir: &Path) -> Result<Self, FormatError> {
        Ok(Self { manifest: Some(sha256_of(&dir.join(MANIFEST_FILE))?), ..self })
    }

    /// End of the part of the log whose records may all have been used to train the version,
    /// directly or by a version it was warm started from. Behind it, the drawn records were not
    /// used.
    pub(crate) fn trained_up_to(&self) -> Watermark {
        self.holdout_from.clone().unwrap_or_else(Watermark::start)
    }
}

/// A guard in progress, as stored in the registry. A restart continues it with a new comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarding {
    /// The version that was active before.
    pub against: VersionId,
    /// Time of the switch.
    pub since: Timestamp,
}
