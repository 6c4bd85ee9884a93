//! Writes and reads the contents of a version directory, whose files
//! [`celeris_formats::version_dir`] defines.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use celeris_formats::columns::ROWS_A_BATCH;
use celeris_formats::manifest::MANIFEST_FORMAT;
use celeris_formats::prior::PriorRows;
use celeris_formats::version_dir::check_rows;
use celeris_formats::{
    Manifest, ParquetFile, RecordBatch, VersionDirWriter, WarmStart, checked_file, item_features, prior, read_manifest,
};
use celeris_model::{ModelError, ModelName, Prior, Timestamp, VersionId};
use celeris_pipelines::{Catalog, Objects};

use crate::bounds::Contents;
use crate::cold_map::{ColdMap, read_cold_map};
use crate::error::FeaturesError;
use crate::parts::{Parts, read_parts};
use crate::table::{CHOICE_ABS_MAX, ColdItem, Theta, VARIANCE_MAX, check_features, is_variance};
use crate::user_map::{UserMap, read_user_map};

/// The output of a training.
#[derive(Debug, Clone)]
pub struct VersionContents<'a> {
    /// The model that was trained.
    pub model: ModelName,
    pub theta: &'a Theta,
    /// Row-major `items x dim`: the choice vectors of the items of `theta`; empty without.
    pub choices: &'a [f32],
    /// The prior of user weights and the noise.
    pub prior: &'a Prior,
    /// The smallest and largest label in the training data.
    pub label_range: Option<(f32, f32)>,
    /// The training algorithm.
    pub algorithm: String,
    /// The version that was active when it was trained.
    pub parent: Option<VersionId>,
    /// The watermark of the log up to which it was trained.
    pub watermark: serde_json::Value,
    /// Time at which the training finished.
    pub created: Timestamp,
    /// Metrics of the trainer. Figures that are not finite are left out of the manifest.
    pub metrics: BTreeMap<String, f64>,
}

/// A version directory that has been verified and read.
#[derive(Debug, Clone)]
pub struct LoadedVersion {
    pub manifest: Manifest,
    pub theta: Theta,
    /// The prior of user weights and the noise.
    pub prior: Prior,
    /// Map from attributes to features for items outside the table; `None` if the training had no
    /// attributes.
    pub cold_map: Option<Arc<ColdMap>>,
    /// Map from attributes of users to their prior means; `None` if the training had none, or they did not help.
    pub user_map: Option<Arc<UserMap>>,
    /// The computed parts of its features; `None` if all features are factors.
    pub parts: Option<Arc<Parts>>,
}

/// Files that a trainer leaves in a version directory for its own use, under names that a manifest
/// may list.
#[derive(Debug, Default)]
pub struct TrainerPart<'a> {
    /// The warm start of the training; `None` if it started from scratch.
    pub warm: Option<WarmStart>,
    /// Tables by file name, each with at least one batch, and all batches of one schema.
    pub tables: Vec<(&'a str, Vec<RecordBatch>)>,
    /// Other files by name.
    pub texts: Vec<(&'a str, Vec<u8>)>,
}

/// Writes a version into `dir`, which is created and must not contain a version yet; the manifest
/// is written last.
///
/// # Errors
/// [`FeaturesError::Format`]; without a manifest, the directory is not a version.
pub fn write_version(dir: &Path, contents: &VersionContents) -> Result<Manifest, FeaturesError> {
    write_trained_version(dir, contents, TrainerPart::default())
}

/// As [`write_version`], with the trainer's own files.
///
/// # Errors
/// As [`write_version`].
pub fn write_trained_version(
    dir: &Path,
    contents: &VersionContents,
    part: TrainerPart,
) -> Result<Manifest, FeaturesError> {
    let VersionContents { theta, prior, .. } = contents;
    let mut out = VersionDirWriter::create(dir)?;
    out.table(item_features::FILE, theta_tables(theta, contents.choices))?;
    out.table(prior::FILE, [prior::table(prior, theta.cold_item().features)])?;
    for (name, batches) in part.tables {
        out.table(name, batches)?;
    }
    for (name, bytes) in part.texts {
        out.text(name, &bytes)?;
    }
    Ok(out.finish(Manifest {
        format: MANIFEST_FORMAT,
        model: contents.model.clone(),
        dim: theta.dim(),
        noise_variance: prior.noise_variance(),
        recent_bias: prior.recent_bias(),
        cold_item_offset: theta.cold_item().offset,
        cold_item_variance: Some(theta.cold_item().variance).filter(|variance| *variance > 0.0),
        label_range: contents.label_range,
        algorithm: contents.algorithm.clone(),
        parent: contents.parent,
        watermark: contents.watermark.clone(),
        warm: part.warm,
        created: contents.created,
        metrics: contents.metrics.clone().into_iter().filter(|(_, figure)| figure.is_finite()).collect(),
        files: BTreeMap::new(),
    })?)
}

/// The tables of all items, at least one.
fn theta_tables<'a>(theta: &'a Theta, choices: &'a [f32]) -> impl Iterator<Item = RecordBatch> + 'a {
    let (items, dim) = (theta.items(), theta.dim());
    (0..items.len().max(1)).step_by(ROWS_A_BATCH).map(move |start| {
        let end = (start + ROWS_A_BATCH).min(items.len());
        let features = &theta.features()[start * dim..end * dim];
        let choices = choices.get(start * dim..end * dim).unwrap_or_default();
        let variances = theta.variances().get(start..end).unwrap_or_default();
        let (items, offsets) = (&items[start..end], &theta.offsets()[start..end]);
        item_features::table(item_features::ItemFeatureTable {
            items,
            offsets,
            features,
            choices,
            variances,
            width: dim,
        })
    })
}

/// Reads and verifies a version directory: manifest, checksums, row counts, columns, lengths,
/// finiteness, a proper prior, and all numbers within their bounds ([`crate::bounds`]).
///
/// # Errors
/// [`FeaturesError`], naming the file and the place in it.
pub fn read_version(dir: &Path) -> Result<LoadedVersion, FeaturesError> {
    read_version_sharing(dir, (&Objects::in_memory(), &Catalog::default()))
}

/// As [`read_version`]; objects and stages of its parts are shared with those in memory.
///
/// # Errors
/// As [`read_version`].
pub fn read_version_sharing(dir: &Path, shared: (&Objects, &Catalog)) -> Result<LoadedVersion, FeaturesError> {
    let manifest = read_manifest(dir)?;
    for name in manifest.files.keys() {
        checked_file(dir, &manifest, name)?;
    }
    let (prior, cold_features) = read_prior(dir, &manifest)?;
    let theta = read_theta(dir, &manifest, cold_features, &prior)?;
    let cold_map = read_cold_map(dir, &manifest)?.map(Arc::new);
    let user_map = read_user_map(dir, &manifest)?.map(Arc::new);
    let contents = Contents {
        dir,
        manifest: &manifest,
        theta: &theta,
        prior: &prior,
        cold_map: cold_map.as_deref(),
        user_map: user_map.as_deref(),
    };
    contents.check()?;
    let parts = read_parts(dir, &manifest, theta.items(), shared)?.map(Arc::new);
    Ok(LoadedVersion { manifest, theta, prior, cold_map, user_map, parts })
}

fn read_prior(dir: &Path, manifest: &Manifest) -> Result<(Prior, Vec<f32>), FeaturesError> {
    let dim = manifest.dim;
    let mut rows = PriorRows::default();
    let mut file = ParquetFile::open(&dir.join(prior::FILE))?;
    while let Some(batch) = file.next_batch()? {
        rows.read(&batch, dim)?;
    }
    let PriorRows { mean, precision, cold_features } = rows;
    check_rows(dir, manifest, prior::FILE, mean.len())?;
    if mean.len() != dim {
        return Err(ModelError::DimMismatch { what: "rows of the prior", expected: dim, received: mean.len() }.into());
    }
    Ok((Prior::new(mean, precision, manifest.noise_variance)?.with_recent_bias(manifest.recent_bias), cold_features))
}

fn read_theta(dir: &Path, manifest: &Manifest, cold_features: Vec<f32>, prior: &Prior) -> Result<Theta, FeaturesError> {
    let dim = manifest.dim;
    let (mut items, mut offsets, mut features, mut pulls) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut variances = Vec::new();
    let mut file = ParquetFile::open(&dir.join(item_features::FILE))?;
    while let Some(batch) = file.next_batch()? {
        let rows = item_features::read_rows(&batch, dim)?;
        for (row, values) in rows.features.chunks_exact(dim).enumerate() {
            check_features(values, dim).map_err(|problem| batch.value_error(row, item_features::FEATURES, &problem))?;
        }
        for (row, choice) in rows.choices.chunks_exact(dim).enumerate() {
            if !choice.iter().all(|entry| entry.abs() <= CHOICE_ABS_MAX) {
                let problem = format!("expected numbers between -{CHOICE_ABS_MAX:e} and {CHOICE_ABS_MAX:e}");
                return Err(batch.value_error(row, item_features::CHOICES, &problem).into());
            }
        }
        for (row, variance) in rows.variances.iter().enumerate() {
            if !is_variance(*variance) {
                let problem = format!("expected a number from 0 to {VARIANCE_MAX:e}");
                return Err(batch.value_error(row, item_features::VARIANCE, &problem).into());
            }
        }
        pulls.extend(prior.pulls(&rows.choices));
        variances.extend(rows.variances);
        items.extend(rows.items);
        offsets.extend(rows.offsets);
        features.extend(rows.features);
    }
    check_rows(dir, manifest, item_features::FILE, items.len())?;
    let cold_item = ColdItem { offset: manifest.cold_item_offset, features: cold_features };
    Ok(Theta::new(items, offsets, features, cold_item)?
        .with_choices(pulls)?
        .with_variances(variances, manifest.cold_item_variance.unwrap_or_default())?)
}
