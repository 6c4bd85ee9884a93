//! The canonical form of a user's state: at which counts the state is solved afresh, and how.
//!
//! A state at `n` observations is the batched solve over the first `checkpoint(n)` of them, then one rank-one step for
//! each later one. Live, rebuilt and replayed states go through the same points, so they are equal bit for bit, and
//! rounding never accumulates over more than half of a history or [`CHECKPOINT_EVERY`] steps.

use crate::error::ModelError;
use crate::linear::{cholesky, norm_inf};
use crate::prior::Prior;
use crate::user_model::{Example, History};

/// From this count on, states are re-solved every so many observations; below it at every power of two.
pub const CHECKPOINT_EVERY: u64 = 4096;

/// Whether the state is solved afresh when it reaches `observations`.
#[must_use]
pub fn is_checkpoint(observations: u64) -> bool {
    observations.is_power_of_two() && observations <= CHECKPOINT_EVERY
        || observations > 0 && observations.is_multiple_of(CHECKPOINT_EVERY)
}

/// The last checkpoint at or before `observations`; 0 is the prior itself.
#[must_use]
pub fn last_checkpoint(observations: u64) -> u64 {
    if observations >= CHECKPOINT_EVERY {
        observations - observations % CHECKPOINT_EVERY
    } else {
        // The largest power of two that is not above a positive count.
        observations.checked_ilog2().map_or(0, |exponent| 1 << exponent)
    }
}

/// The sufficient statistics of a history, in `f64` and in sequence order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GramSums {
    /// Row-major lower triangle (the rest stays zero) of `sum weight * x x^T`.
    gram: Vec<f64>,
    /// `sum weight * x (y - offset - x·w0)`.
    moment: Vec<f64>,
    /// How many observations are in the sums.
    observations: u64,
}

/// A batched solution in double precision, and what is needed to bound its condition from now on.
pub(crate) struct Solution {
    pub(crate) weights: Vec<f64>,
    /// Row-major, exactly symmetric.
    pub(crate) gram_inverse: Vec<f64>,
    /// Upper bound of the largest eigenvalue of `A`.
    pub(crate) gram_norm: f64,
    /// Upper bound of the largest eigenvalue of `A^-1`.
    pub(crate) inverse_norm: f64,
}

impl GramSums {
    pub(crate) fn observations(&self) -> u64 {
        self.observations
    }

    pub(crate) fn empty(dim: usize) -> Self {
        Self { gram: vec![0.0; dim * dim], moment: vec![0.0; dim], observations: 0 }
    }

    /// Adds the examples from the first one missing up to, not including, `end`.
    pub(crate) fn extend(&mut self, prior: &Prior, history: &(impl History + ?Sized), end: u64) {
        for index in self.observations..end {
            self.add(prior, history.example(index));
        }
        self.observations = end;
    }

    fn add(&mut self, prior: &Prior, example: Example) {
        let dim = prior.dim();
        debug_assert_eq!(example.features.len(), dim);
        let weight = f64::from(example.weight);
        let expected: f64 = prior.mean().iter().zip(example.features).map(|(w, x)| w * f64::from(*x)).sum();
        let residual = f64::from(example.label) - f64::from(example.offset) - expected;
        for (i, x_i) in example.features.iter().enumerate() {
            let scaled = weight * f64::from(*x_i);
            self.moment[i] += scaled * residual;
            for (sum, x_j) in self.gram[i * dim..=i * dim + i].iter_mut().zip(example.features) {
                *sum += scaled * f64::from(*x_j);
            }
        }
    }

    /// `A = Lambda + gram`, `w = w0 + A^-1 moment`.
    ///
    /// # Errors
    /// `NotPositiveDefinite` where the sums have overflowed; finite labels and features within their bounds cannot.
    pub(crate) fn solve(&self, prior: &Prior) -> Result<Solution, ModelError> {
        let dim = prior.dim();
        let mut a = prior.precision().to_vec();
        for i in 0..dim {
            for j in 0..=i {
                a[i * dim + j] += self.gram[i * dim + j];
                a[j * dim + i] = a[i * dim + j];
            }
        }
        let factor = cholesky(&a, dim).ok_or(ModelError::NotPositiveDefinite { what: "the user's Gram matrix" })?;
        let correction = factor.solve(&nalgebra::DVector::from_column_slice(&self.moment));
        let weights = prior.mean().iter().zip(correction.iter()).map(|(w0, delta)| w0 + delta).collect();
        let mut gram_inverse = factor.inverse().as_slice().to_vec();
        for i in 0..dim {
            for j in 0..i {
                gram_inverse[i * dim + j] = gram_inverse[j * dim + i];
            }
        }
        let gram_norm = norm_inf(&a, dim);
        let inverse_norm = norm_inf(&gram_inverse, dim);
        Ok(Solution { weights, gram_inverse, gram_norm, inverse_norm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_powers_of_two_then_every_4096() {
        let points: Vec<u64> = (0..=12_300).filter(|n| is_checkpoint(*n)).collect();
        assert_eq!(points, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 12_288]);
        for n in 0..=12_300 {
            assert_eq!(last_checkpoint(n), points.iter().copied().filter(|p| *p <= n).max().unwrap_or(0), "at {n}");
        }
    }
}
