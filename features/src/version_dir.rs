//! The directory of one model version: written once, verified as a whole, immutable.
//!
//! | file | columns |
//! |---|---|
//! | `item_features.parquet` | `item: utf8, offset: float, features: list<float>` |
//! | `prior.parquet` | one row per dimension: `mean: double, precision: list<double>` (a row of `Lambda`), `cold_feature: float` |
//! | `cold_map.parquet`, `cold_map.json` | optional: the map from attributes to features, see [`crate::cold_map`] |
//! | `trainer_state.json`, `trainer_items.parquet` | optional: state of the trainer for the next training |
//! | `_SUCCESS` | the [`Manifest`], JSON, written last |
//!
//! No other files are allowed, and none contains data of a single user, so an erasure need not search versions.
//!
//! Rationale: `docs/rfcs/001-version-directory.md`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array, Float64Builder, ListBuilder, RecordBatch, StringArray};
use arrow::datatypes::{Float32Type, Float64Type};
use celeris_model::{ItemId, ModelError, ModelName, Prior, Timestamp, VersionId};
use sha2::{Digest, Sha256};

use crate::bounds::{Contents, DIM_MAX};
use crate::cold_map::{COLD_MAP_FILE, ColdMap, ENCODER_FILE, read_cold_map};
use crate::columns::{ParquetFile, ParquetOut, vector_column};
use crate::error::FeaturesError;
use crate::manifest::{FileEntry, MANIFEST_FILE, MANIFEST_FORMAT, Manifest, WarmStart};
use crate::table::{ColdItem, Theta, check_features};

/// File name of the item features.
pub const ITEM_FEATURES_FILE: &str = "item_features.parquet";
/// File name of the prior of user weights.
pub const PRIOR_FILE: &str = "prior.parquet";
/// File name of the trainer's settings for the next training.
pub const TRAINER_STATE_FILE: &str = "trainer_state.json";
/// File name of the trainer's items for the next training.
pub const TRAINER_ITEMS_FILE: &str = "trainer_items.parquet";

/// All files that a manifest may list.
const VERSION_FILES: [&str; 6] =
    [ITEM_FEATURES_FILE, PRIOR_FILE, COLD_MAP_FILE, ENCODER_FILE, TRAINER_STATE_FILE, TRAINER_ITEMS_FILE];

/// Error text for any other file.
pub const NO_VERSION_FILE: &str =
    "which is no file of a version; a version holds nothing of single users, so write it without";

/// Whether a version may have a file of this name.
#[must_use]
pub fn is_version_file(name: &str) -> bool {
    VERSION_FILES.contains(&name)
}

/// Rows per batch: bounds the memory of writing a large table.
const ROWS_A_BATCH: usize = 16_384;

/// The output of a training.
#[derive(Debug, Clone)]
pub struct VersionContents<'a> {
    /// The model that was trained.
    pub model: ModelName,
    pub theta: &'a Theta,
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
    /// Map from attributes to features for items outside the table; `None` if the training had no attributes.
    pub cold_map: Option<Arc<ColdMap>>,
}

/// Files that a trainer leaves in a version directory for its own use, under names that a manifest may list.
#[derive(Debug, Default)]
pub struct TrainerPart<'a> {
    /// The warm start of the training; `None` if it started from scratch.
    pub warm: Option<WarmStart>,
    /// Tables by file name, each with at least one batch, and all batches of one schema.
    pub tables: Vec<(&'a str, Vec<RecordBatch>)>,
    /// Other files by name.
    pub texts: Vec<(&'a str, Vec<u8>)>,
}

/// Writes a version into `dir`, which is created and must not contain a version yet; the manifest is written last.
///
/// # Errors
/// [`FeaturesError`]; without a manifest, the directory is not a version.
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
    fs::create_dir_all(dir).map_err(|source| FeaturesError::Io { path: dir.to_owned(), source })?;
    let manifest_path = dir.join(MANIFEST_FILE);
    if manifest_path.exists() {
        let problem = "already holds a version; versions are immutable, so choose another directory".to_owned();
        return Err(FeaturesError::Manifest { path: manifest_path, problem });
    }
    let mut files = BTreeMap::new();
    files.insert(ITEM_FEATURES_FILE.to_owned(), write_theta(dir, contents.theta)?);
    files.insert(PRIOR_FILE.to_owned(), write_prior(dir, contents)?);
    for (name, batches) in part.tables {
        if let Some(first) = batches.first() {
            let empty = first.slice(0, 0);
            files.insert(name.to_owned(), write_table(&dir.join(name), &empty, batches.into_iter())?);
        }
    }
    for (name, bytes) in part.texts {
        write_durably(dir, name, &bytes).map_err(|source| FeaturesError::Io { path: dir.join(name), source })?;
        let entry = FileEntry { rows: None, schema: Vec::new(), sha256: sha256_of(&dir.join(name))? };
        files.insert(name.to_owned(), entry);
    }
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        model: contents.model.clone(),
        dim: contents.theta.dim(),
        noise_variance: contents.prior.noise_variance(),
        cold_item_offset: contents.theta.cold_item().offset,
        label_range: contents.label_range,
        algorithm: contents.algorithm.clone(),
        parent: contents.parent,
        watermark: contents.watermark.clone(),
        warm: part.warm,
        created: contents.created,
        metrics: contents.metrics.clone().into_iter().filter(|(_, figure)| figure.is_finite()).collect(),
        files,
    };
    let text = serde_json::to_vec_pretty(&manifest)
        .map_err(|source| FeaturesError::Manifest { path: manifest_path.clone(), problem: source.to_string() })?;
    write_durably(dir, MANIFEST_FILE, &text).map_err(|source| FeaturesError::Io { path: manifest_path, source })?;
    Ok(manifest)
}

/// Writes to a temporary file, syncs, renames and syncs the directory, so that the file is either complete or absent.
fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    File::open(dir)?.sync_all()
}

fn write_theta(dir: &Path, theta: &Theta) -> Result<FileEntry, FeaturesError> {
    let slots: Vec<usize> = (0..theta.items().len()).collect();
    let batches = slots.chunks(ROWS_A_BATCH).map(|slots| {
        let items = slots.iter().map(|slot| Some(theta.items()[*slot].as_str())).collect::<StringArray>();
        let offsets = slots.iter().map(|slot| Some(theta.row(*slot).offset)).collect::<Float32Array>();
        let features: Vec<f32> = slots.iter().flat_map(|slot| theta.row(*slot).features).copied().collect();
        theta_batch(items, offsets, &features, theta.dim())
    });
    let empty = theta_batch(StringArray::new_null(0), Float32Array::new_null(0), &[], theta.dim());
    write_table(&dir.join(ITEM_FEATURES_FILE), &empty, batches)
}

fn theta_batch(items: StringArray, offsets: Float32Array, features: &[f32], dim: usize) -> RecordBatch {
    record_batch(vec![
        ("item", Arc::new(items)),
        ("offset", Arc::new(offsets)),
        ("features", vector_column(features, dim)),
    ])
}

fn write_prior(dir: &Path, contents: &VersionContents) -> Result<FileEntry, FeaturesError> {
    let prior = contents.prior;
    let mut precision = ListBuilder::new(Float64Builder::new());
    for row in prior.precision().chunks_exact(prior.dim()) {
        precision.values().append_slice(row);
        precision.append(true);
    }
    let cold = contents.theta.cold_item().features.to_vec();
    let batch = record_batch(vec![
        ("mean", Arc::new(Float64Array::from(prior.mean().to_vec()))),
        ("precision", Arc::new(precision.finish())),
        ("cold_feature", Arc::new(Float32Array::from(cold))),
    ]);
    write_table(&dir.join(PRIOR_FILE), &batch.slice(0, 0), [batch.clone()].into_iter())
}

fn record_batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, false)))
        .expect("columns of one table have one length")
}

fn write_table(
    path: &Path,
    empty: &RecordBatch,
    batches: impl Iterator<Item = RecordBatch>,
) -> Result<FileEntry, FeaturesError> {
    let mut out = ParquetOut::create(path, empty.schema())?;
    for batch in batches {
        out.write(&batch)?;
    }
    let rows = out.finish()?;
    let schema =
        empty.schema().fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect();
    Ok(FileEntry { rows: Some(rows), schema, sha256: sha256_of(path)? })
}

/// SHA-256 of a file, in lower-case hexadecimal.
///
/// # Errors
/// [`FeaturesError::Io`].
pub fn sha256_of(path: &Path) -> Result<String, FeaturesError> {
    struct Sink(Sha256);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(Sha256::new());
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut sink));
    copied.map_err(|source| FeaturesError::Io { path: path.to_owned(), source })?;
    Ok(sink.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Reads and verifies a version directory: manifest, checksums, row counts, columns, lengths, finiteness, a proper
/// prior, and all numbers within their bounds ([`crate::bounds`]).
///
/// # Errors
/// [`FeaturesError`], naming the file and the place in it.
pub fn read_version(dir: &Path) -> Result<LoadedVersion, FeaturesError> {
    let manifest = read_manifest(dir)?;
    for (name, entry) in &manifest.files {
        check_sha256(dir, name, entry)?;
    }
    let (prior, cold_features) = read_prior(dir, &manifest)?;
    let theta = read_theta(dir, &manifest, cold_features)?;
    let cold_map = read_cold_map(dir, &manifest)?.map(Arc::new);
    Contents { dir, manifest: &manifest, theta: &theta, prior: &prior, cold_map: cold_map.as_deref() }.check()?;
    Ok(LoadedVersion { manifest, theta, prior, cold_map })
}

fn check_sha256(dir: &Path, name: &str, entry: &FileEntry) -> Result<PathBuf, FeaturesError> {
    let path = dir.join(name);
    let found = sha256_of(&path)?;
    if found == entry.sha256 {
        return Ok(path);
    }
    Err(FeaturesError::Mismatch { path, what: "the SHA-256", expected: entry.sha256.clone(), found })
}

/// The path of one file of a version directory after its checksum has been verified; `None` if the version has no such
/// file.
///
/// # Errors
/// [`FeaturesError::Io`] or [`FeaturesError::Mismatch`].
pub fn checked_file(dir: &Path, manifest: &Manifest, name: &str) -> Result<Option<PathBuf>, FeaturesError> {
    manifest.files.get(name).map(|entry| check_sha256(dir, name, entry)).transpose()
}

/// Reads the manifest of a version directory and checks that this program supports it.
///
/// # Errors
/// [`FeaturesError::Manifest`] or [`FeaturesError::Io`].
pub fn read_manifest(dir: &Path) -> Result<Manifest, FeaturesError> {
    let path = dir.join(MANIFEST_FILE);
    let text = match fs::read(&path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            let problem = "is missing; the directory is not a finished version".to_owned();
            return Err(FeaturesError::Manifest { path, problem });
        }
        other => other.map_err(|source| FeaturesError::Io { path: path.clone(), source })?,
    };
    let error = |problem: String| FeaturesError::Manifest { path: path.clone(), problem };
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|source| error(source.to_string()))?;
    if manifest.format != MANIFEST_FORMAT {
        return Err(error(format!("has format {}, this program reads {MANIFEST_FORMAT}", manifest.format)));
    }
    if !(1..=DIM_MAX).contains(&manifest.dim) {
        return Err(error(format!("dim must be from 1 to {DIM_MAX}, got {}", manifest.dim)));
    }
    for name in [ITEM_FEATURES_FILE, PRIOR_FILE] {
        if !manifest.files.contains_key(name) {
            return Err(error(format!("does not list {name}")));
        }
    }
    if let Some(name) = manifest.files.keys().find(|name| !is_version_file(name)) {
        return Err(error(format!("lists {name:?}, {NO_VERSION_FILE}")));
    }
    Ok(manifest)
}

fn check_rows(dir: &Path, name: &str, manifest: &Manifest, found: usize) -> Result<(), FeaturesError> {
    let expected = manifest.files[name].rows;
    if expected == Some(found as u64) {
        return Ok(());
    }
    Err(FeaturesError::Mismatch {
        path: dir.join(name),
        what: "the number of rows",
        expected: expected.map_or("none".to_owned(), |rows| rows.to_string()),
        found: found.to_string(),
    })
}

fn read_prior(dir: &Path, manifest: &Manifest) -> Result<(Prior, Vec<f32>), FeaturesError> {
    let dim = manifest.dim;
    let (mut mean, mut precision, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    let mut file = ParquetFile::open(&dir.join(PRIOR_FILE))?;
    while let Some(batch) = file.next_batch()? {
        mean.extend_from_slice(batch.numbers::<Float64Type>("mean")?.values());
        precision.extend(batch.lists::<Float64Type>("precision", dim)?);
        cold.extend_from_slice(batch.numbers::<Float32Type>("cold_feature")?.values());
    }
    check_rows(dir, PRIOR_FILE, manifest, mean.len())?;
    if mean.len() != dim {
        return Err(ModelError::DimMismatch { what: "rows of the prior", expected: dim, received: mean.len() }.into());
    }
    Ok((Prior::new(mean, precision, manifest.noise_variance)?, cold))
}

fn read_theta(dir: &Path, manifest: &Manifest, cold_features: Vec<f32>) -> Result<Theta, FeaturesError> {
    let dim = manifest.dim;
    let (mut items, mut offsets, mut features) = (Vec::new(), Vec::new(), Vec::new());
    let mut file = ParquetFile::open(&dir.join(ITEM_FEATURES_FILE))?;
    while let Some(batch) = file.next_batch()? {
        for (row, item) in batch.text("item")?.iter().flatten().enumerate() {
            items.push(ItemId::new(item).map_err(|problem| batch.value_error(row, "item", &problem))?);
        }
        offsets.extend_from_slice(batch.numbers::<Float32Type>("offset")?.values());
        let values = batch.lists::<Float32Type>("features", dim)?;
        for (row, values) in values.chunks_exact(dim).enumerate() {
            check_features(values, dim).map_err(|problem| batch.value_error(row, "features", &problem))?;
        }
        features.extend(values);
    }
    check_rows(dir, ITEM_FEATURES_FILE, manifest, items.len())?;
    let cold_item = ColdItem { offset: manifest.cold_item_offset, features: cold_features };
    Ok(Theta::new(items, offsets, features, cold_item)?)
}
