//! One Sherman-Morrison step over a state of either precision.
//!
//! Matrices are held whole, although they are symmetric. A packed triangle halves the bytes, but its rows fill no whole
//! registers and each entry serves two sums: measured with plain loops at dimension 50, a step took 1.4 times as long in
//! cache and as long out of it; only from a few hundred dimensions on was it quicker (0.73 in cache at 512).

use std::cell::Cell;
use std::thread::LocalKey;

use crate::kernel;
use crate::learning::Lesson;
use crate::linear::{Real, dot, symmetric_times};

/// Weights and inverse Gram matrix in one precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State<T> {
    /// Length `dim`.
    pub(crate) weights: Vec<T>,
    /// Row-major `dim x dim`, symmetric positive definite.
    pub(crate) gram_inverse: Vec<T>,
}

/// The loops of a step in one precision.
pub(crate) trait Steps: Real + 'static {
    /// `out = matrix * features`; returns `features·out` and `weights·features`.
    fn multiply(matrix: &[Self], weights: &[Self], features: &[f32], out: &mut [Self]) -> [Self; 2];
    /// `weights += step * direction` and `matrix -= gain * direction direction^T`; overwrites the direction.
    fn advance(matrix: &mut [Self], weights: &mut [Self], direction: &mut [Self], step: Self, gain: Self);
    /// The thread's buffer.
    fn scratch() -> &'static LocalKey<Cell<Vec<Self>>>;

    /// Runs `work` on a buffer of `dim` entries of any value.
    fn with_scratch<R>(dim: usize, work: impl FnOnce(&mut [Self]) -> R) -> R {
        let mut scratch = Self::scratch().take();
        if scratch.len() < dim {
            scratch.resize(dim, Self::ZERO);
        }
        let result = work(&mut scratch[..dim]);
        Self::scratch().set(scratch);
        result
    }
}

impl Steps for f32 {
    fn multiply(matrix: &[f32], weights: &[f32], features: &[f32], out: &mut [f32]) -> [f32; 2] {
        kernel::multiply(matrix, weights, features, out)
    }

    fn advance(matrix: &mut [f32], weights: &mut [f32], direction: &mut [f32], step: f32, gain: f32) {
        kernel::advance(matrix, weights, direction, step, gain);
    }

    fn scratch() -> &'static LocalKey<Cell<Vec<f32>>> {
        thread_local! {
            static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
        }
        &SCRATCH
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

    fn scratch() -> &'static LocalKey<Cell<Vec<f64>>> {
        thread_local! {
            static SCRATCH: Cell<Vec<f64>> = const { Cell::new(Vec::new()) };
        }
        &SCRATCH
    }
}

impl<T: Steps> State<T> {
    pub(crate) fn round(weights: &[f64], gram_inverse: &[f64]) -> Self {
        Self {
            weights: weights.iter().map(|entry| T::from_f64(*entry)).collect(),
            gram_inverse: gram_inverse.iter().map(|entry| T::from_f64(*entry)).collect(),
        }
    }

    /// Absorbs one example: with `v = A^-1 x` and the slope and curvature of its log-likelihood at the most probable
    /// response after it, `w += slope v` and `A^-1 -= curvature / (1 + curvature x·v) v v^T` (Sherman and Morrison 1950;
    /// Velox eq. 2.2).
    ///
    /// Under squared loss that slope is `weight (target - x·w) / (1 + weight x·v)`, the familiar gain. Under logistic
    /// loss the step ends at the very mode of the Gaussian before it times the example's likelihood.
    pub(crate) fn absorb(&mut self, features: &[f32], lesson: &Lesson) {
        T::with_scratch(self.weights.len(), |v| {
            let [spread, response] = T::multiply(&self.gram_inverse, &self.weights, features, v);
            // Rounding may not turn the spread, which is a variance, below zero.
            let spread = spread.to_f64().max(0.0);
            let local = lesson.mode(response.to_f64(), spread);
            let curvature = lesson.weight * local.curvature;
            let step = T::from_f64(lesson.weight * local.slope);
            let gain = T::from_f64(curvature / (1.0 + curvature * spread));
            T::advance(&mut self.gram_inverse, &mut self.weights, v, step, gain);
        });
    }
}
