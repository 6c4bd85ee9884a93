//! Conjugate gradients for one row of an implicit factorisation (Takács, Pilászy and Tikk 2011).
//!
//! The system of a row is `(G + sum e y y^T) x = m + sum p y`, with `G` and `m` shared by all rows
//! of a side and the sums over the row's own pairs, with excess `e` and pull `p`. A matrix-vector
//! product costs `dim^2` plus two passes over the row's pairs, and a few steps from the solution of
//! the previous iteration suffice, where a factorisation costs `dim^3` every time.

use celeris_kernel::{add_weighted, multiply, padded};
use nalgebra::{DMatrix, DVector};

/// Pairs whose factors are gathered at a time: as many as fit into a core's cache at the usual
/// dimensions.
const BLOCK: usize = 512;

/// Squared residual relative to the right-hand side at which `f32` cannot improve any more.
const RESIDUAL_MIN: f32 = 1e-13;

/// The part shared by the rows of one side, padded to whole registers.
pub(crate) struct Shared {
    dim: usize,
    /// Row-major `stride x stride`.
    matrix: Vec<f32>,
    /// Length `stride`.
    moment: Vec<f32>,
}

impl Shared {
    #[expect(clippy::cast_possible_truncation, reason = "steps are taken in f32; rounding to the nearest is meant")]
    pub(crate) fn new(matrix: &DMatrix<f64>, moment: &DVector<f64>) -> Self {
        let (dim, stride) = (moment.len(), padded(moment.len()));
        let mut shared = Self { dim, matrix: vec![0.0; stride * stride], moment: vec![0.0; stride] };
        for i in 0..dim {
            shared.moment[i] = moment[i] as f32;
            for j in 0..dim {
                shared.matrix[i * stride + j] = matrix[(i, j)] as f32;
            }
        }
        shared
    }
}

/// One pair of a row: offset of the partner's factors in their table, its confidence beyond 1, and
/// its pull on the right-hand side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) start: usize,
    pub(crate) excess: f32,
    pub(crate) pull: f32,
}

/// Solves one row after another; the buffers are reused.
pub(crate) struct Solver<'a> {
    shared: &'a Shared,
    /// The partners' factors, row by row.
    partners: &'a [f32],
    rows: Vec<f32>,
    pulls: Vec<f32>,
    slopes: Vec<f32>,
    zeros: Vec<f32>,
    x: Vec<f32>,
    residual: Vec<f32>,
    direction: Vec<f32>,
    product: Vec<f32>,
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    celeris_model::linear::dot(left, right)
}

impl<'a> Solver<'a> {
    pub(crate) fn new(shared: &'a Shared, partners: &'a [f32]) -> Self {
        let stride = shared.moment.len();
        let vector = || vec![0.0; stride];
        Self {
            shared,
            partners,
            rows: Vec::new(),
            pulls: Vec::new(),
            slopes: Vec::new(),
            zeros: vec![0.0; BLOCK],
            x: vector(),
            residual: vector(),
            direction: vector(),
            product: vector(),
        }
    }

    /// Improves `solution`, of length `dim`, by `steps` steps.
    pub(crate) fn improve(&mut self, pairs: &[Pair], solution: &mut [f32], steps: usize) {
        let dim = self.shared.dim;
        self.x[..dim].copy_from_slice(solution);
        if pairs.len() <= BLOCK {
            self.gather(pairs);
        }
        // The residual of the start: m - G x + sum (p - e y·x) y.
        multiply(&self.shared.matrix, &self.x, &self.x, &mut self.product);
        for ((residual, moment), product) in self.residual.iter_mut().zip(&self.shared.moment).zip(&self.product) {
            *residual = moment - product;
        }
        for block in pairs.chunks(BLOCK) {
            if pairs.len() > BLOCK {
                self.gather(block);
            }
            self.slopes.iter_mut().for_each(|slope| *slope = -*slope);
            add_weighted(&self.rows, &self.x, &self.pulls, &self.slopes, &mut self.residual);
            self.slopes.iter_mut().for_each(|slope| *slope = -*slope);
        }
        self.descend(pairs, steps);
        let found = &self.x[..dim];
        // If excesses are so large that `f32` overflows, keep the previous solution.
        if found.iter().all(|entry| entry.is_finite()) {
            solution.copy_from_slice(found);
        }
    }

    /// Takes steps from `x`, whose residual is already computed.
    fn descend(&mut self, pairs: &[Pair], steps: usize) {
        self.direction.copy_from_slice(&self.residual);
        let mut square = dot(&self.residual, &self.residual);
        let enough = square * RESIDUAL_MIN;
        for _ in 0..steps {
            if square <= enough {
                break;
            }
            let mut curvature = multiply(&self.shared.matrix, &self.x, &self.direction, &mut self.product)[0];
            for block in pairs.chunks(BLOCK) {
                if pairs.len() > BLOCK {
                    self.gather(block);
                }
                let zeros = &self.zeros[..block.len()];
                add_weighted(&self.rows, &self.direction, zeros, &self.slopes, &mut self.product);
            }
            if !pairs.is_empty() {
                curvature = dot(&self.direction, &self.product);
            }
            let step = square / curvature;
            if !step.is_finite() {
                break;
            }
            for (((x, residual), direction), product) in
                self.x.iter_mut().zip(&mut self.residual).zip(&self.direction).zip(&self.product)
            {
                *x += step * direction;
                *residual -= step * product;
            }
            let next = dot(&self.residual, &self.residual);
            let kept = next / square;
            for (direction, residual) in self.direction.iter_mut().zip(&self.residual) {
                *direction = residual + kept * *direction;
            }
            square = next;
        }
    }

    /// Solves `(G + sum e y y^T) solution = right` from zero, for iterative refinement.
    pub(crate) fn correction(&mut self, pairs: &[Pair], right: &[f32], steps: usize) -> &[f32] {
        let dim = self.shared.dim;
        self.x.fill(0.0);
        self.residual.fill(0.0);
        self.residual[..dim].copy_from_slice(right);
        if pairs.len() <= BLOCK {
            self.gather(pairs);
        }
        self.descend(pairs, steps);
        if !self.x.iter().all(|entry| entry.is_finite()) {
            self.x.fill(0.0);
        }
        &self.x[..dim]
    }

    /// Copies the factors of these pairs, at most [`BLOCK`], into one buffer.
    fn gather(&mut self, pairs: &[Pair]) {
        let (dim, stride) = (self.shared.dim, self.shared.moment.len());
        self.rows.resize(pairs.len() * stride, 0.0);
        self.pulls.clear();
        self.slopes.clear();
        for (pair, row) in pairs.iter().zip(self.rows.chunks_exact_mut(stride)) {
            row[..dim].copy_from_slice(&self.partners[pair.start..pair.start + dim]);
            self.pulls.push(pair.pull);
            self.slopes.push(pair.excess);
        }
    }
}
