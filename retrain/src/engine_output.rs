//! Reads and validates the output of an external engine.
//!
//! | file | contents |
//! |---|---|
//! | `item_features.parquet` | [`celeris_formats::item_features`] |
//! | `user_weights.parquet` | optional: [`celeris_formats::user_weights`] |
//! | `prior.parquet` | optional: [`celeris_formats::prior`] |
//! | `metrics.json` | optional: one object of numbers |
//! | `_SUCCESS` | JSON, written last: `format`, `files` with `rows` and `sha256`, `noise_variance` with a prior |
//!
//! The reasons are in `docs/rfcs/003-trainer-contract.md`.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use celeris_features::table::is_variance;
use celeris_formats::item_features::{CHOICES, FEATURES, OFFSET, VARIANCE};
use celeris_formats::prior::PriorRows;
use celeris_formats::user_weights::{self, USER, WEIGHTS};
use celeris_formats::{Batch, FormatError, MANIFEST_FILE, ParquetFile, item_features, prior, sha256_of};
use celeris_model::{ItemId, Prior, RecentBias, UserId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::RetrainError;
use crate::prior_fit::CONDITION_MAX;

/// Version of the layout.
const FORMAT: u32 = 1;

/// The engine's metrics.
const METRICS_FILE: &str = "metrics.json";

/// Maximum size of a JSON file.
const JSON_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of metrics.
const FIGURES_MAX: usize = 200;

/// Largest valid magnitude of a feature, offset or weight.
const ENTRY_MAX: f32 = 1e6;

/// Maximum norm of an item's features relative to the median norm; an item above it would dominate
/// every ranking.
const NORM_RATIO_MAX: f64 = 1e3;

/// Valid range of the RMS of features: similar scales keep a user's state exact in `f32`. Checked
/// only if the engine provides its own prior.
const RMS_RANGE: (f64, f64) = (1e-2, 1e2);

/// Layout of a row of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    /// Length of features in a version, including the constant.
    pub(crate) dim: usize,
    /// Number of the engine's factors, to which the constant is added.
    pub(crate) rank: usize,
}

/// The validated output of an engine.
#[derive(Debug)]
pub(crate) struct EngineOutput {
    pub(crate) items: Vec<ItemId>,
    /// Length `items`.
    pub(crate) offsets: Vec<f32>,
    /// Row-major `items x width`.
    pub(crate) features: Vec<f32>,
    /// Row-major `items x dim`; empty if the engine has none. Only with a prior.
    pub(crate) choices: Vec<f32>,
    /// Length `items`; empty if the engine does not know. Only with a prior.
    pub(crate) variances: Vec<f32>,
    /// `rank` without a prior, otherwise `dim`.
    pub(crate) width: usize,
    pub(crate) prior: Option<EnginePrior>,
    /// Users with weights of `width` entries each; empty if there are none.
    pub(crate) users: Vec<UserId>,
    pub(crate) user_weights: Vec<f32>,
    pub(crate) figures: BTreeMap<String, f64>,
}

/// A prior that the engine has fitted.
#[derive(Debug)]
pub(crate) struct EnginePrior {
    pub(crate) prior: Prior,
    pub(crate) cold_features: Vec<f32>,
    /// Defaults to the mean of the items' offsets.
    pub(crate) cold_item_offset: Option<f32>,
    /// Defaults to 0.
    pub(crate) cold_item_variance: Option<f32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputManifest {
    format: u32,
    files: BTreeMap<String, OutputFile>,
    #[serde(default)]
    noise_variance: Option<f64>,
    #[serde(default)]
    recent_bias: Option<RecentBias>,
    #[serde(default)]
    cold_item_offset: Option<f32>,
    #[serde(default)]
    cold_item_variance: Option<f32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFile {
    rows: u64,
    sha256: String,
}

/// Reads an engine's output folder.
///
/// # Errors
/// `Output` or [`RetrainError::Format`] with the file, the row if any, and a remedy.
pub(crate) fn read_engine_output(dir: &Path, width: Width) -> Result<EngineOutput, RetrainError> {
    let manifest = read_manifest(dir)?;
    for (name, file) in &manifest.files {
        let path = dir.join(name);
        let found = sha256_of(&path)?;
        if found != file.sha256 {
            let problem = format!(
                "its SHA-256 is {found}, {MANIFEST_FILE} says {}; {MANIFEST_FILE} has to be written last, from whole files",
                file.sha256
            );
            return Err(RetrainError::Output { path, problem });
        }
    }
    let prior = manifest.files.contains_key(prior::FILE).then(|| read_prior(dir, &manifest, width.dim)).transpose()?;
    let width = if prior.is_some() { width.dim } else { width.rank };
    let mut output = EngineOutput {
        items: Vec::new(),
        offsets: Vec::new(),
        features: Vec::new(),
        choices: Vec::new(),
        variances: Vec::new(),
        width,
        prior,
        users: Vec::new(),
        user_weights: Vec::new(),
        figures: read_figures(&dir.join(METRICS_FILE))?,
    };
    read_items(dir, &manifest, &mut output)?;
    if manifest.files.contains_key(user_weights::FILE) {
        read_users(dir, &manifest, &mut output)?;
    }
    Ok(output)
}

fn read_manifest(dir: &Path) -> Result<OutputManifest, RetrainError> {
    let path = dir.join(MANIFEST_FILE);
    let error = |problem: String| RetrainError::Output { path: path.clone(), problem };
    let Some(manifest) = read_json::<OutputManifest>(&path)? else {
        let problem =
            "is missing: the trainer ended without saying that its output is whole; it has to write this file last";
        return Err(error(problem.to_owned()));
    };
    if manifest.format != FORMAT {
        return Err(error(format!("has format {}, this program reads {FORMAT}", manifest.format)));
    }
    if !manifest.files.contains_key(item_features::FILE) {
        return Err(error(format!("does not list {}, which every trainer has to write", item_features::FILE)));
    }
    let known = [item_features::FILE, prior::FILE, user_weights::FILE];
    if let Some(other) = manifest.files.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(error(format!("lists {other:?}; the files are {}", known.join(", "))));
    }
    Ok(manifest)
}

/// Parses a small JSON file; `None` if it does not exist.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RetrainError> {
    let io = |source| RetrainError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io)?,
    };
    let mut text = Vec::new();
    file.take(JSON_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
    let error = |problem: String| RetrainError::Output { path: path.to_owned(), problem };
    if text.len() as u64 > JSON_BYTES_MAX {
        return Err(error(format!("is longer than {JSON_BYTES_MAX} bytes")));
    }
    Ok(Some(serde_json::from_slice(&text).map_err(|problem| error(problem.to_string()))?))
}

fn read_figures(path: &Path) -> Result<BTreeMap<String, f64>, RetrainError> {
    let figures: BTreeMap<String, f64> = read_json(path)?.unwrap_or_default();
    if figures.len() > FIGURES_MAX {
        let problem = format!("has {} figures, at most {FIGURES_MAX} are kept", figures.len());
        return Err(RetrainError::Output { path: path.to_owned(), problem });
    }
    Ok(figures)
}

/// Reads a table of the output and checks its number of rows against the manifest.
fn read_rows(
    dir: &Path,
    name: &str,
    manifest: &OutputManifest,
    mut take: impl FnMut(&Batch) -> Result<(), RetrainError>,
) -> Result<PathBuf, RetrainError> {
    let path = dir.join(name);
    let mut file = ParquetFile::open(&path)?;
    let mut rows: u64 = 0;
    while let Some(batch) = file.next_batch()? {
        rows += batch.rows() as u64;
        take(&batch)?;
    }
    let expected = manifest.files[name].rows;
    if rows != expected {
        let problem = format!("has {rows} rows, {MANIFEST_FILE} says {expected}");
        return Err(RetrainError::Output { path, problem });
    }
    Ok(path)
}

/// Checks the vectors of `column`, which have `width` entries each, for finiteness and size.
fn check_vectors(batch: &Batch, column: &str, values: &[f32], width: usize) -> Result<(), FormatError> {
    for (row, values) in values.chunks_exact(width).enumerate() {
        if let Some((place, value)) = values.iter().enumerate().find(|(_, value)| !is_sound(**value)) {
            return Err(batch.value_error(row, column, &unsound(place, *value)));
        }
    }
    Ok(())
}

fn is_sound(value: f32) -> bool {
    value.is_finite() && value.abs() <= ENTRY_MAX
}

fn unsound(place: usize, value: f32) -> String {
    if value.is_finite() {
        return format!("entry {place} is {value}, beyond {ENTRY_MAX}; the training has diverged, regularise it more");
    }
    format!("entry {place} is {value}, not a finite number; the training has diverged, regularise it more")
}

fn read_items(dir: &Path, manifest: &OutputManifest, output: &mut EngineOutput) -> Result<(), RetrainError> {
    let mut seen: HashSet<ItemId> = HashSet::new();
    let path = read_rows(dir, item_features::FILE, manifest, |batch| {
        let rows = item_features::read_rows(batch, output.width)?;
        for (row, (item, offset)) in rows.items.iter().zip(&rows.offsets).enumerate() {
            if !is_sound(*offset) {
                return Err(batch.value_error(row, OFFSET, &unsound(0, *offset)).into());
            }
            if !seen.insert(item.clone()) {
                return Err(batch.value_error(row, item_features::ITEM, &format!("{item} appears twice")).into());
            }
        }
        check_vectors(batch, FEATURES, &rows.features, output.width)?;
        check_vectors(batch, CHOICES, &rows.choices, output.width)?;
        if let Some((row, value)) = rows.variances.iter().enumerate().find(|(_, value)| !is_variance(**value)) {
            return Err(batch.value_error(row, VARIANCE, &format!("{value} is no variance of a score")).into());
        }
        output.choices.extend(rows.choices);
        output.variances.extend(rows.variances);
        output.items.extend(rows.items);
        output.offsets.extend(rows.offsets);
        output.features.extend(rows.features);
        Ok(())
    })?;
    let error = |problem: String| RetrainError::Output { path: path.clone(), problem };
    if output.items.is_empty() {
        return Err(error("has no rows: the trainer learnt nothing".to_owned()));
    }
    if output.prior.is_none() && !(output.choices.is_empty() && output.variances.is_empty()) {
        let problem =
            format!("the columns {CHOICES} and {VARIANCE} belong to a prior of the trainer's own, {}", prior::FILE);
        return Err(error(problem));
    }
    check_norms(output).map_err(error)
}

fn check_norms(output: &EngineOutput) -> Result<(), String> {
    let width = output.width;
    // With a prior, the last feature is the constant, which is no measure of their size.
    let free = if output.prior.is_some() { width - 1 } else { width };
    let norm = |row: &[f32]| row[..free].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let norms: Vec<f64> = output.features.chunks_exact(width).map(norm).collect();
    let mut ascending: Vec<f64> = norms.iter().copied().filter(|norm| *norm > 0.0).collect();
    ascending.sort_by(f64::total_cmp);
    let Some(median) = ascending.get(ascending.len() / 2) else {
        return if free == 0 { Ok(()) } else { Err("all features are 0: the trainer learnt nothing".to_owned()) };
    };
    if let Some(row) = norms.iter().position(|norm| *norm > median * NORM_RATIO_MAX) {
        return Err(format!(
            "row {row}: the features of item {} have norm {:.3e}, the median is {median:.3e}: it would rule every \
             ranking; the training has diverged, regularise it more",
            output.items[row], norms[row]
        ));
    }
    if output.prior.is_some() {
        for column in 0..free {
            let squares: f64 = output.features.chunks_exact(width).map(|row| f64::from(row[column]).powi(2)).sum();
            let rms = (squares / norms.len() as f64).sqrt();
            if rms > 0.0 && !(RMS_RANGE.0..=RMS_RANGE.1).contains(&rms) {
                return Err(format!(
                    "column {column} of the features has root mean square {rms:.3e}; scale features to about 1, and \
                     the prior inversely, or leave the prior to Celeris"
                ));
            }
        }
        if let Some(row) =
            output.features.chunks_exact(width).position(|row| row[width - 1].to_bits() != 1.0_f32.to_bits())
        {
            return Err(format!(
                "row {row}: the last feature is not the constant 1, which a file beside a prior ends in"
            ));
        }
    }
    Ok(())
}

fn read_users(dir: &Path, manifest: &OutputManifest, output: &mut EngineOutput) -> Result<(), RetrainError> {
    read_rows(dir, user_weights::FILE, manifest, |batch| {
        output.users.extend(batch.parsed(USER, str::parse::<UserId>)?);
        let weights = batch.lists::<f32>(WEIGHTS, output.width)?;
        check_vectors(batch, WEIGHTS, &weights, output.width)?;
        output.user_weights.extend(weights);
        Ok(())
    })?;
    Ok(())
}

fn read_prior(dir: &Path, manifest: &OutputManifest, dim: usize) -> Result<EnginePrior, RetrainError> {
    let mut rows = PriorRows::default();
    let path = read_rows(dir, prior::FILE, manifest, |batch| Ok(rows.read(batch, dim)?))?;
    let PriorRows { mean, precision, cold_features } = rows;
    let error = |problem: String| RetrainError::Output { path: path.clone(), problem };
    if mean.len() != dim {
        return Err(error(format!("has {} rows, the model's dim is {dim}", mean.len())));
    }
    let Some(noise_variance) = manifest.noise_variance else {
        return Err(error(format!("{MANIFEST_FILE} names no noise_variance, which belongs to a prior")));
    };
    let prior = Prior::new(mean, precision, noise_variance).map_err(|problem| error(problem.to_string()))?;
    let condition = prior.condition();
    if condition > CONDITION_MAX {
        return Err(error(format!(
            "the precision has condition {condition:.3e}, at most {CONDITION_MAX:e} is exact enough"
        )));
    }
    if let Some(variance) = manifest.cold_item_variance.filter(|variance| !is_variance(*variance)) {
        return Err(error(format!(
            "{MANIFEST_FILE} has the cold_item_variance {variance}, which is no variance of a score"
        )));
    }
    Ok(EnginePrior {
        prior: prior.with_recent_bias(manifest.recent_bias),
        cold_features,
        cold_item_offset: manifest.cold_item_offset,
        cold_item_variance: manifest.cold_item_variance,
    })
}
