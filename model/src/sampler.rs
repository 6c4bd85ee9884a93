//! Sampling from a user's posterior.

use crate::error::ModelError;
use crate::linear::cholesky_of_squares;

/// Draws weights from a user's posterior, `w + sigma L z` with `A^-1 = L L^T` and standard normal
/// `z`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    /// Length `dim`.
    mean: Vec<f64>,
    /// Column-major `dim x dim`, the lower triangle of `sigma L`.
    factor: Vec<f64>,
    /// Length `dim`, overwritten by every draw.
    weights: Vec<f64>,
}

impl Sampler {
    pub(crate) fn new(mean: Vec<f64>, gram_inverse: &[f64], noise_variance: f64) -> Result<Self, ModelError> {
        let sigma = noise_variance.sqrt();
        let factor = cholesky_of_squares(gram_inverse, mean.len())
            .ok_or(ModelError::NotPositiveDefinite { what: "the user's inverse Gram matrix" })?;
        let factor = factor.l_dirty().iter().map(|entry| sigma * entry).collect();
        Ok(Self { weights: mean.clone(), mean, factor })
    }

    /// Draws weights, length `dim`, in O(dim^2) and without allocation; calls `standard_normal`
    /// `dim` times.
    pub fn draw(&mut self, mut standard_normal: impl FnMut() -> f64) -> &[f64] {
        let dim = self.mean.len();
        self.weights.copy_from_slice(&self.mean);
        for (index, column) in self.factor.chunks_exact(dim).enumerate() {
            let normal = standard_normal();
            for (weight, entry) in self.weights[index..].iter_mut().zip(&column[index..]) {
                *weight += entry * normal;
            }
        }
        &self.weights
    }
}
