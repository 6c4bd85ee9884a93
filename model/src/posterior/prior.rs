//! The prior of a user before their first observation.

use super::recent_bias::RecentBias;
use crate::error::ModelError;
use crate::linear::{Real, cholesky, norm_inf, symmetric_eigen};

/// The largest condition number of a version's precision for which states in `f32` are accurate.
pub const CONDITION_MAX: f64 = 1e4;

/// Relative difference up to which a matrix counts as symmetric: rounding of a matrix written and
/// read in `f64`.
const ASYMMETRY_MAX: f64 = 1e-9;

/// The Gaussian prior of user weights and the noise of labels, fitted when a version is trained.
///
/// A user's weights are distributed as `N(mean, noise_variance * precision^-1)` and a label as
/// `N(offset + w·f, noise_variance)`. The precision `Lambda` is thus in units of the noise, as in
/// the ridge problem `min |y - X w|^2 + (w - w0)^T Lambda (w - w0)`. The state of a new user equals
/// this prior; `mean` is the bootstrap of Velox §2.5.
#[derive(Debug, Clone, PartialEq)]
pub struct Prior {
    mean: Vec<f64>,
    precision: Vec<f64>,
    noise_variance: f64,
    inverse: Vec<f64>,
    recent_bias: Option<RecentBias>,
}

impl Prior {
    /// A prior from its mean `w0` (length `dim`), precision `Lambda` (row-major `dim x dim`) and
    /// noise `sigma^2`.
    ///
    /// # Errors
    /// `DimMismatch`, `NonFinite`, `OutOfRange` or `NotPositiveDefinite`.
    pub fn new(mean: Vec<f64>, precision: Vec<f64>, noise_variance: f64) -> Result<Self, ModelError> {
        let dim = mean.len();
        if dim == 0 {
            return Err(ModelError::DimMismatch { what: "prior mean", expected: 1, received: 0 });
        }
        if precision.len() != dim * dim {
            return Err(ModelError::DimMismatch {
                what: "prior precision",
                expected: dim * dim,
                received: precision.len(),
            });
        }
        if !mean.iter().all(|entry| entry.is_finite()) {
            return Err(ModelError::NonFinite { what: "prior mean" });
        }
        if !precision.iter().all(|entry| entry.is_finite()) {
            return Err(ModelError::NonFinite { what: "prior precision" });
        }
        if !noise_variance.is_finite() || noise_variance <= 0.0 {
            return Err(ModelError::OutOfRange { what: "noise variance", range: "above 0", value: noise_variance });
        }
        let not_definite = ModelError::NotPositiveDefinite { what: "prior precision" };
        let scale = norm_inf(&precision, dim);
        let symmetric = (0..dim)
            .all(|i| (0..i).all(|j| (precision[i * dim + j] - precision[j * dim + i]).abs() <= ASYMMETRY_MAX * scale));
        if !symmetric {
            return Err(not_definite);
        }
        let inverse = cholesky(&precision, dim).ok_or_else(|| not_definite.clone())?.inverse();
        if !inverse.iter().all(|entry| entry.is_finite()) {
            return Err(not_definite);
        }
        Ok(Self { mean, precision, noise_variance, inverse: inverse.as_slice().to_vec(), recent_bias: None })
    }

    /// With a recent bias of users by this rule, see [`crate::recent_bias`]; under losses other than the squared one that has no effect.
    #[must_use]
    pub fn with_recent_bias(self, recent_bias: Option<RecentBias>) -> Self {
        Self { recent_bias, ..self }
    }

    /// The prior of an untrained model: zero mean and `precision` on the diagonal.
    ///
    /// # Errors
    /// As [`Prior::new`].
    pub fn isotropic(dim: usize, precision: f64, noise_variance: f64) -> Result<Self, ModelError> {
        let mut matrix = vec![0.0; dim * dim];
        for i in 0..dim {
            matrix[i * dim + i] = precision;
        }
        Self::new(vec![0.0; dim], matrix, noise_variance)
    }

    /// The length of features and weights.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// `w0`, length `dim`.
    #[must_use]
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// `Lambda`, row-major `dim x dim`, in units of the noise.
    #[must_use]
    pub fn precision(&self) -> &[f64] {
        &self.precision
    }

    /// `Lambda^-1`, row-major `dim x dim`.
    #[must_use]
    pub fn inverse(&self) -> &[f64] {
        &self.inverse
    }

    /// `sigma^2`, the variance of a label around its expected value.
    #[must_use]
    pub fn noise_variance(&self) -> f64 {
        self.noise_variance
    }

    /// The rule of the recent bias; `None` if users have none.
    #[must_use]
    pub fn recent_bias(&self) -> Option<RecentBias> {
        self.recent_bias
    }

    /// `Lambda y` for choice vectors `y`, row-major with rows of length `dim` as `choices` (see [`crate::Example::choice`]).
    #[must_use]
    pub fn pulls(&self, choices: &[f32]) -> Vec<f32> {
        let dim = self.dim();
        let mut pull = vec![0.0; dim];
        let mut pulls = Vec::with_capacity(choices.len());
        for choice in choices.chunks_exact(dim) {
            pull.fill(0.0);
            for (row, entry) in self.precision.chunks_exact(dim).zip(choice) {
                for (sum, precision) in pull.iter_mut().zip(row) {
                    *sum += precision * f64::from(*entry);
                }
            }
            pulls.extend(pull.iter().map(|entry| <f32 as Real>::from_f64(*entry)));
        }
        pulls
    }

    /// The 2-norm condition number of `Lambda`.
    #[must_use]
    pub fn condition(&self) -> f64 {
        let dim = self.dim();
        let eigen = symmetric_eigen(nalgebra::DMatrix::from_row_slice(dim, dim, &self.precision));
        eigen.map_or(f64::INFINITY, |eigen| eigen.eigenvalues.max() / eigen.eigenvalues.min())
    }
}
