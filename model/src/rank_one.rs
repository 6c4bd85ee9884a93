//! One Sherman-Morrison step over a state of either precision.

use crate::linear::{Real, dot, symmetric_times};

/// Weights and inverse Gram matrix in one precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State<T> {
    /// Length `dim`.
    pub(crate) weights: Vec<T>,
    /// Row-major `dim x dim`, symmetric positive definite.
    pub(crate) gram_inverse: Vec<T>,
}

impl<T: Real> State<T> {
    pub(crate) fn round(weights: &[f64], gram_inverse: &[f64]) -> Self {
        Self {
            weights: weights.iter().map(|entry| T::from_f64(*entry)).collect(),
            gram_inverse: gram_inverse.iter().map(|entry| T::from_f64(*entry)).collect(),
        }
    }

    /// Absorbs one example: with `v = A^-1 x` and `g = weight / (1 + weight x·v)`,
    /// `w += g (target - x·w) v` and `A^-1 -= g v v^T` (Sherman and Morrison 1950; Velox eq. 2.2).
    pub(crate) fn absorb(&mut self, features: &[f32], target: f64, weight: f32) {
        let dim = self.weights.len();
        let mut v = vec![T::ZERO; dim];
        symmetric_times(&self.gram_inverse, features, &mut v);
        let weight = T::from_f32(weight);
        let gain = weight / (T::ONE + weight * dot(&v, features));
        let error = T::from_f64(target - dot(&self.weights, features).to_f64());
        let step = gain * error;
        for (w, direction) in self.weights.iter_mut().zip(&v) {
            *w += step * *direction;
        }
        for (row, v_i) in self.gram_inverse.chunks_exact_mut(dim).zip(&v) {
            // `(gain * v_i) * v_j` is not `(gain * v_j) * v_i` in the last bit; the product of the two entries first
            // keeps the matrix exactly symmetric.
            for (entry, v_j) in row.iter_mut().zip(&v) {
                *entry -= (*v_i * *v_j) * gain;
            }
        }
    }

    /// `x^T A^-1 x`, never below zero.
    pub(crate) fn variance(&self, features: &[f32], scratch: &mut [T]) -> f64 {
        symmetric_times(&self.gram_inverse, features, scratch);
        dot(scratch, features).to_f64().max(0.0)
    }
}
