//! The manifest of a version directory: its contents and their provenance.

use std::collections::BTreeMap;

use celeris_model::{ModelName, RecentBias, Timestamp, VersionId};
use serde::{Deserialize, Deserializer, Serialize};

/// The format that this crate writes and reads.
pub const MANIFEST_FORMAT: u32 = 1;

/// The manifest's file name. It is written last, so its presence marks the directory as complete.
pub const MANIFEST_FILE: &str = "_SUCCESS";

/// One file of a version directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Rows of a Parquet file; `None` for other files.
    pub rows: Option<u64>,
    /// Columns of a Parquet file as `name: type`; empty for other files.
    pub schema: Vec<String>,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
}

/// The origin of a version that was not trained from scratch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// The version whose training was continued.
    pub from: VersionId,
    /// The log watermark of the first ancestor, which was trained from scratch. The version
    /// reflects the log at that watermark even if parts of it have been erased since; it does not
    /// reflect records that only the versions in between have read.
    pub cold_watermark: serde_json::Value,
    /// The number of consecutive warm starts since then, including this version.
    pub refreshes: u32,
}

/// The contents of a version directory, used to verify its files before they are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The format; see [`MANIFEST_FORMAT`].
    pub format: u32,
    /// The model that the version was trained for.
    pub model: ModelName,
    /// The length of features and weights, including the constant.
    pub dim: usize,
    /// `sigma^2`, the variance of a label around its expected value.
    pub noise_variance: f64,
    /// The rule of the users' recent bias, for squared loss; absent if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent_bias: Option<RecentBias>,
    /// The offset of an item unknown to the version.
    pub cold_item_offset: f32,
    /// What the uncertainty of such an item adds to the variance of a score; absent in a version that does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_item_variance: Option<f32>,
    /// The smallest and largest label seen in training, if any.
    pub label_range: Option<(f32, f32)>,
    /// The training algorithm.
    pub algorithm: String,
    /// The version that was active when it was trained.
    pub parent: Option<VersionId>,
    /// The watermark of the log up to which it was trained, in the format of the caller that
    /// ordered the training.
    pub watermark: serde_json::Value,
    /// The warm start of the training; absent if it started from scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<WarmStart>,
    /// Time at which the training finished.
    pub created: Timestamp,
    /// Metrics of the trainer. A figure of `null` is missing.
    #[serde(deserialize_with = "known_figures")]
    pub metrics: BTreeMap<String, f64>,
    pub files: BTreeMap<String, FileEntry>,
}

/// Deserialises figures by name and skips those that are `null`, the JSON form of a number that is
/// not finite.
///
/// # Errors
/// If a figure is neither a number nor `null`.
pub fn known_figures<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let figures = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    Ok(figures.into_iter().filter_map(|(name, figure)| Some((name, figure?))).collect())
}
