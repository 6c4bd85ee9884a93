//! One Sherman-Morrison step over a state of either precision.

use std::cell::Cell;

use crate::kernel;
use crate::linear::{Real, dot, symmetric_times};

/// Weights and inverse Gram matrix in one precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State<T> {
    /// Length `dim`.
    pub(crate) weights: Vec<T>,
    /// Row-major `dim x dim`, symmetric positive definite.
    pub(crate) gram_inverse: Vec<T>,
}

/// What one example says of the response `w·x`, to second order in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Evidence {
    /// The slope of its log-likelihood at the response: for squared loss `weight * (target - response)`.
    pub(crate) slope: f64,
    /// The curvature of its negative log-likelihood there, not below zero: for squared loss its weight.
    pub(crate) curvature: f64,
}

/// The loops of a step in one precision.
pub(crate) trait Steps: Real {
    /// `out = matrix * features`; returns `features·out` and `weights·features`.
    fn multiply(matrix: &[Self], weights: &[Self], features: &[f32], out: &mut [Self]) -> [Self; 2];
    /// `weights += step * direction` and `matrix -= gain * direction direction^T`; overwrites the direction.
    fn advance(matrix: &mut [Self], weights: &mut [Self], direction: &mut [Self], step: Self, gain: Self);
    /// Runs `work` on a buffer of `dim` entries of any value.
    fn with_scratch<R>(dim: usize, work: impl FnOnce(&mut [Self]) -> R) -> R;
}

impl Steps for f32 {
    fn multiply(matrix: &[f32], weights: &[f32], features: &[f32], out: &mut [f32]) -> [f32; 2] {
        kernel::multiply(matrix, weights, features, out)
    }

    fn advance(matrix: &mut [f32], weights: &mut [f32], direction: &mut [f32], step: f32, gain: f32) {
        kernel::advance(matrix, weights, direction, step, gain);
    }

    fn with_scratch<R>(dim: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
        thread_local! {
            static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
        }
        let mut scratch = SCRATCH.take();
        if scratch.len() < dim {
            scratch.resize(dim, 0.0);
        }
        let result = work(&mut scratch[..dim]);
        SCRATCH.set(scratch);
        result
    }
}

impl Steps for f64 {
    fn multiply(matrix: &[f64], weights: &[f64], features: &[f32], out: &mut [f64]) -> [f64; 2] {
        symmetric_times(matrix, features, out);
        [dot(out, features), dot(weights, features)]
    }

    fn advance(matrix: &mut [f64], weights: &mut [f64], direction: &mut [f64], step: f64, gain: f64) {
        let root = gain.sqrt();
        for (w, entry) in weights.iter_mut().zip(direction.iter_mut()) {
            *w += step * *entry;
            *entry *= root;
        }
        // An entry is one product of two scaled values, which keeps the matrix exactly symmetric.
        for (row, scale) in matrix.chunks_exact_mut(direction.len()).zip(direction.iter()) {
            for (entry, other) in row.iter_mut().zip(direction.iter()) {
                *entry -= *scale * *other;
            }
        }
    }

    fn with_scratch<R>(dim: usize, work: impl FnOnce(&mut [f64]) -> R) -> R {
        thread_local! {
            static SCRATCH: Cell<Vec<f64>> = const { Cell::new(Vec::new()) };
        }
        let mut scratch = SCRATCH.take();
        if scratch.len() < dim {
            scratch.resize(dim, 0.0);
        }
        let result = work(&mut scratch[..dim]);
        SCRATCH.set(scratch);
        result
    }
}

impl<T: Steps> State<T> {
    pub(crate) fn round(weights: &[f64], gram_inverse: &[f64]) -> Self {
        Self {
            weights: weights.iter().map(|entry| T::from_f64(*entry)).collect(),
            gram_inverse: gram_inverse.iter().map(|entry| T::from_f64(*entry)).collect(),
        }
    }

    /// Absorbs one example, of which `evidence` tells at the response `w·x`: with `v = A^-1 x` and
    /// `c = 1 / (1 + curvature x·v)`, `w += slope c v` and `A^-1 -= curvature c v v^T` (Sherman and Morrison 1950; Velox
    /// eq. 2.2).
    pub(crate) fn absorb(&mut self, features: &[f32], evidence: impl FnOnce(f64) -> Evidence) {
        T::with_scratch(self.weights.len(), |v| {
            let [spread, response] = T::multiply(&self.gram_inverse, &self.weights, features, v);
            let Evidence { slope, curvature } = evidence(response.to_f64());
            // Rounding may not turn the spread, which is a variance, below zero.
            let shrink = 1.0 / (1.0 + curvature * spread.to_f64().max(0.0));
            let (step, gain) = (T::from_f64(slope * shrink), T::from_f64(curvature * shrink));
            T::advance(&mut self.gram_inverse, &mut self.weights, v, step, gain);
        });
    }
}
