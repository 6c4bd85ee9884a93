//! The files of a cold map in a version directory: its numbers, [`celeris_formats::cold_map`], and
//! `cold_map.json` with `format`, `ridge`, and the rules of the `encoder`.

use std::path::Path;

use celeris_formats::cold_map::{self, ColdMapNumbers};
use celeris_formats::version_dir::ENCODER_FILE;
use celeris_formats::{FormatError, Manifest, RecordBatch, checked_file};

use super::{ColdMap, ColdMapParts};
use crate::encoder_file;
use crate::error::FeaturesError;

impl ColdMap {
    /// The contents of [`ENCODER_FILE`] and [`cold_map::FILE`].
    #[must_use]
    pub fn files(&self) -> (Vec<u8>, Vec<RecordBatch>) {
        let text = encoder_file::to_bytes(&self.encoder, self.ridge);
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
    let (encoder, ridge) = encoder_file::read(&path)?;
    let ColdMapNumbers { intercept, coefficients, residual_covariance } = ColdMapNumbers::read(&numbers, manifest.dim)?;
    if intercept.len() != manifest.dim {
        let problem = format!("{} has {} intercepts, expected one row", cold_map::FILE, intercept.len());
        return Err(FormatError::Manifest { path, problem }.into());
    }
    Ok(Some(ColdMap::new(ColdMapParts { encoder, intercept, coefficients, residual_covariance, ridge })?))
}
