//! Predicts the prior mean of a user from the user's attributes.
//!
//! A linear map from encoded attributes ([`AttributeEncoder`]) to `q`, by which the prior mean of the user's weights differs
//! from that of all users, fitted to the users of a training (`celeris_retrain::user_map`), as in Agarwal and Chen,
//! "Regression-based latent factor models" (KDD 2009). The covariance of the prior stays that of all users.
//!
//! Its files in a version directory are the numbers, [`celeris_formats::user_map`], and `user_map.json` with `format`,
//! `ridge`, and the rules of the `encoder`.

use std::path::Path;

use celeris_formats::user_map::{self, UserMapNumbers};
use celeris_formats::version_dir::USER_ENCODER_FILE;
use celeris_formats::{FormatError, Manifest, RecordBatch, checked_file};
use celeris_model::ModelError;
use celeris_pipelines::AttributeEncoder;
use serde_json::{Map, Value};

use crate::encoder_file;
use crate::error::FeaturesError;
use crate::table::CHOICE_ABS_MAX;

/// The largest magnitude of an entry of `q`, as of that of a choice vector.
const SHIFT_ABS_MAX: f32 = CHOICE_ABS_MAX;

/// A fitted map from attributes of users to prior means.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMap {
    encoder: AttributeEncoder,
    /// Length `dim`: `q` of a user whose columns are all zero.
    intercept: Vec<f32>,
    /// Row-major `encoder.width() x dim`.
    coefficients: Vec<f32>,
    ridge: f64,
}

impl UserMap {
    /// A map to prior means of `intercept.len()` entries, with `coefficients` row-major `encoder.width() x dim`, fitted with
    /// this ridge.
    ///
    /// # Errors
    /// `DimMismatch` if lengths disagree, `NonFinite`.
    pub fn new(
        encoder: AttributeEncoder,
        (intercept, coefficients): (Vec<f32>, Vec<f32>),
        ridge: f64,
    ) -> Result<Self, ModelError> {
        let (expected, received) = (encoder.width() * intercept.len(), coefficients.len());
        if expected != received {
            return Err(ModelError::DimMismatch { what: "user map coefficients", expected, received });
        }
        if !intercept.iter().chain(&coefficients).all(|entry| entry.is_finite()) || !ridge.is_finite() {
            return Err(ModelError::NonFinite { what: "user map" });
        }
        Ok(Self { encoder, intercept, coefficients, ridge })
    }

    /// The length of the prior means.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.intercept.len()
    }

    /// The ridge parameter of the fit.
    #[must_use]
    pub fn ridge(&self) -> f64 {
        self.ridge
    }

    /// The largest magnitude of an intercept or coefficient.
    pub(crate) fn coefficient_max(&self) -> f32 {
        self.intercept.iter().chain(&self.coefficients).fold(0.0, |max, entry| entry.abs().max(max))
    }

    /// `q` for these attributes, in O(non-zero columns x dim); `None` if the map knows none of them.
    #[must_use]
    pub fn shift(&self, attributes: &Map<String, Value>) -> Option<Vec<f32>> {
        let columns = self.encoder.encode(attributes);
        if columns.is_empty() {
            return None;
        }
        let mut shift = self.intercept.clone();
        for (column, value) in columns {
            let row = &self.coefficients[column as usize * self.dim()..][..self.dim()];
            for (entry, coefficient) in shift.iter_mut().zip(row) {
                *entry += value * coefficient;
            }
        }
        shift.iter_mut().for_each(|entry| *entry = entry.clamp(-SHIFT_ABS_MAX, SHIFT_ABS_MAX));
        Some(shift)
    }

    /// The contents of [`USER_ENCODER_FILE`] and [`user_map::FILE`].
    #[must_use]
    pub fn files(&self) -> (Vec<u8>, Vec<RecordBatch>) {
        let text = encoder_file::to_bytes(&self.encoder, self.ridge);
        let numbers = UserMapNumbers { intercept: self.intercept.clone(), coefficients: self.coefficients.clone() };
        (text, vec![numbers.table()])
    }
}

/// Reads the map of a version directory whose checksums have been verified; `None` if it has none.
///
/// # Errors
/// [`FeaturesError`], naming the file and the problem.
pub fn read_user_map(dir: &Path, manifest: &Manifest) -> Result<Option<UserMap>, FeaturesError> {
    let Some(numbers) = checked_file(dir, manifest, user_map::FILE)? else { return Ok(None) };
    let path = dir.join(USER_ENCODER_FILE);
    let (encoder, ridge) = encoder_file::read(&path)?;
    let UserMapNumbers { intercept, coefficients } = UserMapNumbers::read(&numbers, manifest.dim)?;
    if intercept.len() != manifest.dim {
        let problem = format!("{} has {} intercepts, expected one row", user_map::FILE, intercept.len());
        return Err(FormatError::Manifest { path, problem }.into());
    }
    Ok(Some(UserMap::new(encoder, (intercept, coefficients), ridge)?))
}
