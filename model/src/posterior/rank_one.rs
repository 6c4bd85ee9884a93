//! One Sherman-Morrison step over a state of either precision.
//!
//! Matrices are stored in full, although they are symmetric. A packed triangle halves the bytes,
//! but its rows do not fill whole registers and each entry is part of two sums: measured with plain
//! loops at dimension 50, a step took 1.4 times as long in cache and as long out of cache; it was
//! faster only from a few hundred dimensions on (0.73 in cache at 512).

use std::cell::Cell;
use std::thread::LocalKey;

use super::choices::Pull;
use super::learning::WeightedTarget;
use crate::linear::{Real, dot};
use celeris_kernel as kernel;

/// Weights and inverse Gram matrix in one precision: `A^-1 = earlier - reduction reduction^T`.
///
/// The rank-one reduction of a step is applied by the next step, which has to read the whole matrix
/// anyway: a step then reads and writes the matrix once instead of reading it twice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State<T> {
    /// Length `dim`, shifted by the user's choices, profile and recent bias if there are any.
    pub(crate) weights: Vec<T>,
    /// The weights without these shifts; empty if there are none (see [`super::choices`] and [`super::recent_bias`]).
    pub(crate) unshifted: Vec<T>,
    /// `A^-1` before the last step: row-major `dim x dim`, symmetric positive definite.
    pub(crate) earlier: Vec<T>,
    /// The rank-one reduction of the last step, not yet applied: length `dim`.
    pub(crate) reduction: Vec<T>,
}

/// The loops of a step in one precision.
pub(crate) trait Steps: Real + 'static {
    /// `matrix -= reduction reduction^T`, then `out = matrix * features`; returns `features·out`
    /// and `weights·features`.
    fn reduce_and_multiply(
        matrix: &mut [Self],
        reduction: &[Self],
        weights: &[Self],
        features: &[f32],
        out: &mut [Self],
    ) -> [Self; 2];
    /// `out = matrix * vector` for a symmetric matrix; returns `reduction·vector`.
    fn multiply(matrix: &[Self], reduction: &[Self], vector: &[Self], out: &mut [Self]) -> Self;
    /// The thread's scratch buffer.
    fn scratch() -> &'static LocalKey<Cell<Vec<Self>>>;

    /// Runs `work` on a buffer of `dim` entries with arbitrary contents.
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
    fn reduce_and_multiply(
        matrix: &mut [f32],
        reduction: &[f32],
        weights: &[f32],
        features: &[f32],
        out: &mut [f32],
    ) -> [f32; 2] {
        kernel::reduce_and_multiply(matrix, reduction, weights, features, out)
    }

    fn multiply(matrix: &[f32], reduction: &[f32], vector: &[f32], out: &mut [f32]) -> f32 {
        let [_, reduced] = kernel::multiply(matrix, reduction, vector, out);
        reduced
    }

    fn scratch() -> &'static LocalKey<Cell<Vec<f32>>> {
        thread_local! {
            static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
        }
        &SCRATCH
    }
}

impl Steps for f64 {
    fn reduce_and_multiply(
        matrix: &mut [f64],
        reduction: &[f64],
        weights: &[f64],
        features: &[f32],
        out: &mut [f64],
    ) -> [f64; 2] {
        out.fill(0.0);
        let rows = matrix.chunks_exact_mut(features.len());
        for ((row, scale), factor) in rows.zip(reduction).zip(features) {
            for ((entry, other), sum) in row.iter_mut().zip(reduction).zip(out.iter_mut()) {
                *entry -= *scale * *other;
                *sum += f64::from(*factor) * *entry;
            }
        }
        [dot(out, features), dot(weights, features)]
    }

    fn multiply(matrix: &[f64], reduction: &[f64], vector: &[f64], out: &mut [f64]) -> f64 {
        out.fill(0.0);
        for (row, factor) in matrix.chunks_exact(vector.len()).zip(vector) {
            for (entry, sum) in row.iter().zip(out.iter_mut()) {
                *sum += factor * entry;
            }
        }
        reduction.iter().zip(vector).map(|(entry, factor)| entry * factor).sum()
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
            unshifted: Vec::new(),
            earlier: gram_inverse.iter().map(|entry| T::from_f64(*entry)).collect(),
            reduction: vec![T::ZERO; weights.len()],
        }
    }

    /// `A^-1`, row-major `dim x dim`, exactly symmetric.
    pub(crate) fn gram_inverse(&self) -> Vec<f64> {
        let reduction: Vec<f64> = self.reduction.iter().map(|entry| entry.to_f64()).collect();
        let rows = self.earlier.chunks_exact(reduction.len()).zip(&reduction);
        rows.flat_map(|(row, scale)| {
            row.iter().zip(&reduction).map(move |(entry, other)| entry.to_f64() - scale * other)
        })
        .collect()
    }

    /// Absorbs one example: with `v = A^-1 x` and the slope and curvature of its log-likelihood at
    /// the most probable response after it, `w += slope v` and `A^-1 -= curvature / (1 + curvature
    /// x·v) v v^T` (Sherman and Morrison 1950; Velox eq. 2.2).
    ///
    /// Under squared loss that slope is `weight (target - x·w) / (1 + weight x·v)`, the usual gain.
    /// Under logistic loss the step ends at the exact mode of the Gaussian before it times the
    /// example's likelihood.
    pub(crate) fn absorb(&mut self, features: &[f32], target: &WeightedTarget) {
        let Self { weights, unshifted, earlier, reduction } = self;
        let weights = if unshifted.is_empty() { weights } else { unshifted };
        T::with_scratch(weights.len(), |v| {
            let [spread, response] = T::reduce_and_multiply(earlier, reduction, weights, features, v);
            // Rounding must not make the spread, a variance, negative.
            let spread = spread.to_f64().max(0.0);
            let local = target.mode(response.to_f64(), spread);
            let curvature = target.weight * local.curvature;
            let root = (curvature / (1.0 + curvature * spread)).sqrt();
            advance(weights, reduction, v, T::from_f64(target.weight * local.slope), T::from_f64(root));
        });
    }

    /// Takes the shift of the weights back.
    pub(crate) fn unshift(&mut self) {
        if !self.unshifted.is_empty() {
            self.weights = std::mem::take(&mut self.unshifted);
        }
    }

    /// Shifts the weights by `A^-1 pull`, then the last one by the recent `bias` under the weights so far.
    pub(crate) fn shift(&mut self, pull: Pull, bias: impl FnOnce(&[T]) -> f64) {
        if self.unshifted.is_empty() {
            self.unshifted.clone_from(&self.weights);
        }
        if pull.is_none() {
            self.weights.clone_from(&self.unshifted);
        } else {
            self.shift_by(pull);
        }
        let bias = bias(&self.weights);
        if let Some(last) = self.weights.last_mut() {
            *last += T::from_f64(bias);
        }
    }

    fn shift_by(&mut self, pull: Pull) {
        let Self { weights, unshifted, earlier, reduction } = self;
        T::with_scratch(weights.len(), |vector| {
            pull.write(vector);
            let reduced = T::multiply(earlier, reduction, vector, weights);
            for ((weight, own), entry) in weights.iter_mut().zip(unshifted).zip(reduction) {
                *weight = *own + (*weight - reduced * *entry);
            }
        });
    }
}

/// `weights += step * direction` and `reduction = root * direction`.
fn advance<T: Real>(weights: &mut [T], reduction: &mut [T], direction: &[T], step: T, root: T) {
    for ((weight, reduced), entry) in weights.iter_mut().zip(reduction).zip(direction) {
        *weight += step * *entry;
        *reduced = root * *entry;
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn a_step_updates_weights_and_keeps_its_reduction() {
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        for dim in (1..=68).chain([100, 127, 128, 129, 200, 255, 512]) {
            let direction: Vec<f32> = (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect();
            let (mut weights, mut reduction) = (vec![1.0; dim], vec![f32::NAN; dim]);
            advance(&mut weights, &mut reduction, &direction, 0.5, 0.3);
            for i in 0..dim {
                assert!((weights[i] - (1.0 + 0.5 * direction[i])).abs() <= 2.0 * f32::EPSILON, "{dim}");
                assert!((reduction[i] - 0.3 * direction[i]).abs() <= f32::EPSILON, "{dim}");
            }
        }
    }
}
