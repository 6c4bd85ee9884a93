//! The manifest of a version directory: what is in it, and where it came from.

use std::collections::BTreeMap;

use celeris_model::{ModelName, Timestamp, VersionId};
use serde::{Deserialize, Deserializer, Serialize};

/// The layout this crate writes and reads.
pub const MANIFEST_FORMAT: u32 = 1;

/// The manifest's file name. It is written last, so its presence says that the directory is whole.
pub const MANIFEST_FILE: &str = "_SUCCESS";

/// One file of a version directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Rows of a Parquet file; `None` for other files.
    pub rows: Option<u64>,
    /// Its columns, as `name: type`; empty for other files.
    pub schema: Vec<String>,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// Where a version began that was not trained from nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// The version that it went on from.
    pub from: VersionId,
    /// The watermark of the first of its ancestors, which was trained from nothing. What the log held there has shaped the
    /// version, whatever has been erased since; what versions between them have read has not.
    pub cold_watermark: serde_json::Value,
    /// How many versions in a row have gone on from one another since then, this one included.
    pub refreshes: u32,
}

/// What a version directory holds, checked before anything in it is believed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The layout; see [`MANIFEST_FORMAT`].
    pub format: u32,
    /// The model it was trained for.
    pub model: ModelName,
    /// The length of features and weights, the constant included.
    pub dim: usize,
    /// `sigma^2`, the variance of a label around its expected value.
    pub noise_variance: f64,
    /// The offset of an item that the version has never seen.
    pub cold_item_offset: f32,
    /// The smallest and largest label seen in training, if any.
    pub label_range: Option<(f32, f32)>,
    /// How it was trained.
    pub algorithm: String,
    /// The version it was trained after.
    pub parent: Option<VersionId>,
    /// Up to where in the log it was trained, as the one who ordered the training wrote it.
    pub watermark: serde_json::Value,
    /// Where its training began; absent where it began from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmStart>,
    /// When it was finished.
    pub created: Timestamp,
    /// What the trainer measured. A figure of `null` is missing.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    /// The files, by name.
    pub files: BTreeMap<String, FileEntry>,
}

/// Reads figures by name; those of `null` are missing, since JSON has no other way to write a number that is not finite.
///
/// # Errors
/// Where a figure is neither a number nor `null`.
pub fn known_figures<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let figures = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(figures.into_iter().filter_map(|(name, figure)| Some((name, figure?))).collect())
}
