//! Predicts the offset and features of an item from its attributes, for items added after the
//! training.
//!
//! A linear map from encoded attributes ([`AttributeEncoder`]) to `[f_1 … f_(dim-1), offset]`, fitted by
//! ridge regression to the items of a training (`celeris_retrain::cold_map`), as in Agarwal and
//! Chen, "Regression-based latent factor models" (KDD 2009). The covariance of the map's residuals
//! is estimated on held-out items; it adds to the uncertainty of scores by mapped features, see
//! [`ColdMap::variance`].

mod file;

use celeris_model::linear::quadratic;
use celeris_model::{Learning, ModelError, UserModel};
use celeris_pipelines::AttributeEncoder;
use serde_json::{Map, Value};

pub use self::file::read_cold_map;
use crate::table::{ColdItem, FEATURE_ABS_MAX, OFFSET_ABS_MAX};

/// A fitted map from attributes to offset and features.
///
/// Vectors over the `dim` targets hold the features without their constant first and the offset
/// last, the order of the weights `w~ = [w_1 … w_(dim-1), 1]` with which a score multiplies them.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdMap {
    encoder: AttributeEncoder,
    dim: usize,
    intercept: Vec<f32>,
    /// Row-major `encoder.width() x dim`.
    coefficients: Vec<f32>,
    /// Row-major `dim x dim`, symmetric.
    residual_covariance: Vec<f64>,
    ridge: f64,
}

/// The parts of a map; [`ColdMap::new`] checks their shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdMapParts {
    pub encoder: AttributeEncoder,
    /// Length `dim`: the targets of an item whose columns are all zero.
    pub intercept: Vec<f32>,
    /// Row-major `encoder.width() x dim`.
    pub coefficients: Vec<f32>,
    /// Row-major `dim x dim`: the covariance `S` of the residuals of an item's targets.
    pub residual_covariance: Vec<f64>,
    /// The ridge parameter of the fit.
    pub ridge: f64,
}

impl ColdMap {
    /// A map for features of `intercept.len()` entries.
    ///
    /// # Errors
    /// `DimMismatch` if lengths disagree, `NonFinite`.
    pub fn new(parts: ColdMapParts) -> Result<Self, ModelError> {
        let ColdMapParts { encoder, intercept, coefficients, residual_covariance, ridge } = parts;
        let dim = intercept.len();
        let expect = |what, expected, received| {
            if expected == received { Ok(()) } else { Err(ModelError::DimMismatch { what, expected, received }) }
        };
        expect("cold map coefficients", encoder.width() * dim, coefficients.len())?;
        expect("cold map residual covariance", dim * dim, residual_covariance.len())?;
        let finite = intercept.iter().chain(&coefficients).all(|x| x.is_finite());
        if !finite || !residual_covariance.iter().all(|x| x.is_finite()) || !ridge.is_finite() {
            return Err(ModelError::NonFinite { what: "cold map" });
        }
        Ok(Self { encoder, dim, intercept, coefficients, residual_covariance, ridge })
    }

    /// The map to features of length `dim`, whose further entries before the constant are zero: those of computed parts,
    /// which it does not predict.
    ///
    /// The caller guarantees that `dim` is not smaller than the map's.
    #[must_use]
    pub fn with_zeros(&self, dim: usize) -> Self {
        let added = dim - self.dim;
        let row = |row: &[f32]| [&row[..self.dim - 1], &vec![0.0; added], &row[self.dim - 1..]].concat();
        let place = |j: usize| if j < self.dim - 1 { j } else { j + added };
        let mut residual_covariance = vec![0.0; dim * dim];
        for (i, entries) in self.residual_covariance.chunks_exact(self.dim).enumerate() {
            for (j, entry) in entries.iter().enumerate() {
                residual_covariance[place(i) * dim + place(j)] = *entry;
            }
        }
        Self {
            encoder: self.encoder.clone(),
            dim,
            intercept: row(&self.intercept),
            coefficients: self.coefficients.chunks_exact(self.dim).flat_map(row).collect(),
            residual_covariance,
            ridge: self.ridge,
        }
    }

    /// The length of the mapped features, including the constant.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
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

    /// The largest magnitude in the residual covariance.
    pub(crate) fn covariance_max(&self) -> f64 {
        self.residual_covariance.iter().fold(0.0, |max, entry| entry.abs().max(max))
    }

    /// The predicted offset and features for these attributes, in O(non-zero columns x dim).
    ///
    /// The features are valid: finite, within [`FEATURE_ABS_MAX`], the last entry 1.
    #[must_use]
    pub fn map(&self, attributes: &Map<String, Value>) -> ColdItem {
        let mut targets = self.intercept.clone();
        for (column, value) in self.encoder.encode(attributes) {
            let row = &self.coefficients[column as usize * self.dim..][..self.dim];
            for (target, coefficient) in targets.iter_mut().zip(row) {
                *target += value * coefficient;
            }
        }
        let offset = targets.last_mut().map(|last| std::mem::replace(last, 1.0));
        for target in &mut targets {
            *target = target.clamp(-FEATURE_ABS_MAX, FEATURE_ABS_MAX);
        }
        match offset {
            Some(offset) => ColdItem { offset: offset.clamp(-OFFSET_ABS_MAX, OFFSET_ABS_MAX), features: targets },
            None => ColdItem { offset: 0.0, features: targets },
        }
    }

    /// The additional variance of a score by mapped features: with weights `w ~ N(m, C)` and
    /// residuals `r ~ N(0, S)` of the targets, independent of them, the response `w~ · r` has the
    /// variance `m~^T S m~ + tr(S C)`, with `C` zero where `w~` is the constant 1 of the offset.
    ///
    /// It depends on the user and not on the item. The caller guarantees that the state has the
    /// map's `dim`.
    #[must_use]
    pub fn variance(&self, user: &UserModel, learning: &Learning) -> f64 {
        let dim = self.dim;
        debug_assert_eq!(user.dim(), dim);
        let mut weights: Vec<f32> = user.weights().iter().map(|w| *w as f32).collect();
        if let Some(last) = weights.last_mut() {
            *last = 1.0;
        }
        let of_weights = quadratic(&self.residual_covariance, &weights);
        let gram_inverse = user.gram_inverse();
        let rows = self.residual_covariance.chunks_exact(dim).zip(gram_inverse.chunks_exact(dim)).take(dim - 1);
        let trace: f64 = rows.flat_map(|(s, c)| s.iter().zip(c).take(dim - 1)).map(|(s, c)| s * c).sum();
        (of_weights + learning.noise_variance() * trace).max(0.0)
    }
}
