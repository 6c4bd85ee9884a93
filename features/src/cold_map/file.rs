//! The files of a cold map in a version directory: its numbers, [`celeris_formats::cold_map`], and
//! `cold_map.json` with `format`, `ridge`, and the rules of the `encoder`.

use std::fs;
use std::path::Path;

use celeris_formats::cold_map::{self, ColdMapNumbers};
use celeris_formats::version_dir::ENCODER_FILE;
use celeris_formats::{FormatError, Manifest, RecordBatch, checked_file};
use celeris_pipelines::AttributeEncoder;
use serde::{Deserialize, Serialize};

use super::{ColdMap, ColdMapParts};
use crate::error::FeaturesError;

/// The format that this program writes and reads; hashes and signs of tokens are part of it.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncoderFile {
    format: u32,
    ridge: f64,
    encoder: AttributeEncoder,
}

impl ColdMap {
    /// The contents of [`ENCODER_FILE`] and [`cold_map::FILE`].
    #[must_use]
    pub fn files(&self) -> (Vec<u8>, Vec<RecordBatch>) {
        let file = EncoderFile { format: FORMAT, ridge: self.ridge, encoder: self.encoder.clone() };
        let text = serde_json::to_vec_pretty(&file).expect("names and finite numbers always serialise");
        let numbers = ColdMapNumbers {
            intercept: self.intercept.clone(),
            coefficients: self.coefficients.clone(),
            residual_covariance: self.residual_covariance.clone(),
        };
        (text, vec![numbers.table(self.dim)])
    }
}

/// Reads the map of a version directory whose checksums have been verified; `None` if it has none.
///
/// # Errors
/// [`FeaturesError`], naming the file and the problem.
pub fn read_cold_map(dir: &Path, manifest: &Manifest) -> Result<Option<ColdMap>, FeaturesError> {
    let Some(numbers) = checked_file(dir, manifest, cold_map::FILE)? else { return Ok(None) };
    let path = dir.join(ENCODER_FILE);
    let error = |problem: String| FormatError::Manifest { path: path.clone(), problem };
    let text = fs::read(&path).map_err(|source| FormatError::Io { path: path.clone(), source })?;
    let file: EncoderFile = serde_json::from_slice(&text).map_err(|source| error(source.to_string()))?;
    if file.format != FORMAT {
        return Err(error(format!("has format {}, this program reads {FORMAT}", file.format)).into());
    }
    file.encoder.check().map_err(error)?;
    let ColdMapNumbers { intercept, coefficients, residual_covariance } = ColdMapNumbers::read(&numbers, manifest.dim)?;
    if intercept.len() != manifest.dim {
        return Err(error(format!("{} has {} intercepts, expected one row", cold_map::FILE, intercept.len())).into());
    }
    let EncoderFile { encoder, ridge, .. } = file;
    Ok(Some(ColdMap::new(ColdMapParts { encoder, intercept, coefficients, residual_covariance, ridge })?))
}
