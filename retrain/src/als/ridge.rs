//! Ridge regression of one row: `(P + R^T R) z = q + R^T t`, where each rating is one row of `R`.

use celeris_kernel as kernel;
use celeris_model::ModelError;
use celeris_model::linear::{DETERMINED_MAX, RAISES, cholesky_of_squares, is_determined, raise};
use nalgebra::{DMatrix, DVector, DVectorView};

/// Ratings gathered before they are multiplied in `f32` and added in `f64`: enough for a fast
/// product, few enough for the cache and for the accuracy of sums in `f32`.
const BLOCK_RATINGS: usize = 128;

/// Up to this many unknowns, ratings are summed directly: a block would be mostly padding.
const FEW: usize = 3;

/// The regressors of a rating, from the rating's partner: in two slices, so that a constant can
/// follow the row of a table.
pub(crate) type Regressors<'a> = (&'a [f32], &'a [f32]);

/// Weighted sums of the partners' posterior variances by coordinate.
pub(crate) struct VarianceSums {
    /// Sums of at most [`BLOCK_RATINGS`] ratings: few enough for `f32`, which is vectorised.
    block: Vec<f32>,
    filled: usize,
    sums: Vec<f64>,
}

impl VarianceSums {
    pub(crate) fn new(dim: usize) -> Self {
        Self { block: vec![0.0; dim], filled: 0, sums: vec![0.0; dim] }
    }

    pub(crate) fn begin(&mut self) {
        self.sums.fill(0.0);
    }

    pub(crate) fn add(&mut self, variances: &[f32], weight: f32) {
        for (sum, variance) in self.block.iter_mut().zip(variances) {
            *sum += weight * variance;
        }
        self.filled += 1;
        if self.filled == BLOCK_RATINGS {
            self.add_block();
        }
    }

    fn add_block(&mut self) {
        for (sum, block) in self.sums.iter_mut().zip(&mut self.block) {
            *sum += f64::from(std::mem::take(block));
        }
        self.filled = 0;
    }

    /// The sums since [`VarianceSums::begin`].
    pub(crate) fn finish(&mut self) -> &[f64] {
        self.add_block();
        &self.sums
    }
}

/// Solution of one row.
pub(crate) struct Solved<'a> {
    /// `z`, with one entry per unknown.
    pub(crate) solution: &'a [f64],
    /// `R^T t + q`.
    pub(crate) moment: &'a [f64],
    /// The diagonal of `P + R^T R`.
    pub(crate) diagonal: &'a [f64],
    /// The inverse of `P + R^T R`, row-major.
    pub(crate) inverse: &'a [f64],
}

/// Matrix and right-hand side of one row after another; the buffers are reused.
pub(crate) struct Normal {
    dim: usize,
    /// Padded length of a rating's regressors followed by its target.
    stride: usize,
    /// Row-major `BLOCK_RATINGS x stride`.
    block: Vec<f32>,
    filled: usize,
    /// Row-major `stride x stride`.
    products: Vec<f32>,
    /// Row-major `dim x dim`; only the upper triangle including the diagonal is maintained.
    matrix: Vec<f64>,
    moment: Vec<f64>,
    diagonal: Vec<f64>,
    solution: Vec<f64>,
    /// Whether ratings are summed directly in `f64`.
    exact: bool,
}

/// Bound on an inverse relative to its diagonal, see [`is_determined`], after products in `f32`: at
/// the bound, one of seven digits is accurate.
const DETERMINED_BY_SINGLE_MAX: f64 = 1e6;

impl Normal {
    /// Buffers for rows of `dim` unknowns.
    pub(crate) fn new(dim: usize) -> Self {
        let stride = kernel::padded(dim + 1);
        Self {
            dim,
            stride,
            block: vec![0.0; BLOCK_RATINGS * stride],
            filled: 0,
            products: vec![0.0; stride * stride],
            matrix: vec![0.0; dim * dim],
            moment: vec![0.0; dim],
            diagonal: vec![0.0; dim],
            solution: vec![0.0; dim],
            exact: false,
        }
    }

    /// Solves the row that `fill` begins and adds ratings to.
    ///
    /// If the weights are so large that the prior is lost to rounding in `f32`, the row is filled
    /// again and summed in `f64`; if it is still lost, the diagonal is raised as in
    /// [`celeris_model::linear::cholesky_of_squares`].
    ///
    /// # Errors
    /// `NotPositiveDefinite` on overflow.
    pub(crate) fn solve_row(&mut self, mut fill: impl FnMut(&mut Self)) -> Result<Solved<'_>, ModelError> {
        let in_double = [0.0].into_iter().chain(RAISES).map(|share| (true, share, DETERMINED_MAX));
        for (exact, share, determined_max) in std::iter::once((false, 0.0, DETERMINED_BY_SINGLE_MAX)).chain(in_double) {
            self.exact = exact;
            fill(self);
            if self.solve(share, determined_max) {
                let Self { solution, moment, diagonal, matrix: inverse, .. } = self;
                return Ok(Solved { solution, moment, diagonal, inverse });
            }
        }
        Err(ModelError::NotPositiveDefinite { what: "the regression of a user or an item" })
    }

    /// Starts a row from the precision `P`, row-major and symmetric, and the moment `q` of its
    /// prior.
    pub(crate) fn begin(&mut self, precision: &[f64], moment: &[f64]) {
        self.matrix.copy_from_slice(precision);
        self.moment.copy_from_slice(moment);
        self.filled = 0;
    }

    /// Starts a row with a zero matrix and moment.
    pub(crate) fn begin_from_nothing(&mut self) {
        self.matrix.fill(0.0);
        self.moment.fill(0.0);
        self.filled = 0;
    }

    /// Adds to the moment.
    pub(crate) fn add_moment(&mut self, moment: &[f64]) {
        for (sum, entry) in self.moment.iter_mut().zip(moment) {
            *sum += entry;
        }
    }

    /// Adds to the first entries of the diagonal.
    pub(crate) fn add_ridge(&mut self, ridge: impl IntoIterator<Item = f64>) {
        for (entry, ridge) in self.matrix.iter_mut().step_by(self.dim + 1).zip(ridge) {
            *entry += ridge;
        }
    }

    /// Adds one rating; `root` is the square root of its weight.
    #[expect(clippy::cast_possible_truncation, reason = "regressors and targets are f32 all along")]
    pub(crate) fn add(&mut self, (first, second): Regressors, target: f64, root: f32) {
        if self.exact || self.dim <= FEW {
            return self.add_exactly(first.iter().chain(second).copied(), target, f64::from(root));
        }
        let row = &mut self.block[self.filled * self.stride..][..self.dim + 1];
        let (row, last) = row.split_at_mut(self.dim);
        let (of_first, of_second) = row.split_at_mut(first.len());
        for (slots, values) in [(of_first, first), (of_second, second)] {
            for (slot, x) in slots.iter_mut().zip(values) {
                *slot = root * x;
            }
        }
        last[0] = root * target as f32;
        self.filled += 1;
        if self.filled == BLOCK_RATINGS {
            self.multiply_out();
        }
    }

    fn add_exactly(&mut self, regressors: impl Iterator<Item = f32>, target: f64, root: f64) {
        if self.dim <= FEW {
            let mut row = [0.0; FEW];
            for (slot, x) in row.iter_mut().zip(regressors) {
                *slot = root * f64::from(x);
            }
            return self.add_row(&row[..self.dim], root * target);
        }
        let row: Vec<f64> = regressors.map(|x| root * f64::from(x)).collect();
        self.add_row(&row, root * target);
    }

    fn add_row(&mut self, row: &[f64], target: f64) {
        for (i, (entries, moment)) in self.matrix.chunks_exact_mut(self.dim).zip(&mut self.moment).enumerate() {
            for (entry, x) in entries[i..].iter_mut().zip(&row[i..]) {
                *entry += row[i] * x;
            }
            *moment += row[i] * target;
        }
    }

    fn multiply_out(&mut self) {
        let (dim, stride) = (self.dim, self.stride);
        if self.filled == 0 {
            return;
        }
        kernel::gram(&self.block[..self.filled * stride], &mut self.products, stride);
        let rows = self.matrix.chunks_exact_mut(dim).zip(self.products.chunks_exact(stride));
        for (i, ((row, products), moment)) in rows.zip(&mut self.moment).enumerate() {
            for (entry, product) in row[i..].iter_mut().zip(&products[i..dim]) {
                *entry += f64::from(*product);
            }
            *moment += f64::from(products[dim]);
        }
        self.filled = 0;
    }

    /// Inverts the matrix in place, with its diagonal raised by a share, and writes the solution.
    /// Returns `false` if the matrix is not positive definite due to rounding.
    fn solve(&mut self, share: f64, determined_max: f64) -> bool {
        let dim = self.dim;
        self.multiply_out();
        raise(&mut self.matrix, dim, share);
        for i in 1..dim {
            for j in 0..i {
                self.matrix[i * dim + j] = self.matrix[j * dim + i];
            }
        }
        for (kept, entry) in self.diagonal.iter_mut().zip(self.matrix.iter().step_by(dim + 1)) {
            *kept = *entry;
        }
        if !(kernel::invert(&mut self.matrix, dim) && is_determined(&self.diagonal, &self.matrix, determined_max)) {
            return false;
        }
        for (sum, row) in self.solution.iter_mut().zip(self.matrix.chunks_exact(dim)) {
            *sum = row.iter().zip(&self.moment).map(|(entry, moment)| entry * moment).sum();
        }
        self.solution.iter().all(|entry| entry.is_finite())
    }
}

/// The same regression for fewer ratings than coordinates and a diagonal prior of mean zero: by
/// Woodbury's identity the system has one unknown per rating. `regressors` has one column per
/// rating, already multiplied by the root of its weight.
///
/// Returns the solution and the diagonal of the inverse.
///
/// # Errors
/// `NotPositiveDefinite` on overflow.
pub(super) fn solve_dual(
    regressors: &DMatrix<f64>,
    targets: &DVector<f64>,
    diagonal: &[f64],
) -> Result<(DVector<f64>, Vec<f64>), ModelError> {
    let mut scaled = regressors.transpose();
    for (mut column, d) in scaled.column_iter_mut().zip(diagonal) {
        column /= *d;
    }
    let mut kernel = &scaled * regressors;
    for k in 0..kernel.nrows() {
        kernel[(k, k)] += 1.0;
    }
    let factor = cholesky_of_squares(kernel.as_slice(), kernel.nrows())
        .ok_or(ModelError::NotPositiveDefinite { what: "the regression of an item" })?;
    let solution = scaled.tr_mul(&factor.solve(targets));
    factor.l_dirty().solve_lower_triangular_mut(&mut scaled);
    // Rounding must not make a variance negative.
    let variance = |(column, d): (DVectorView<f64>, &f64)| (1.0 / d - column.norm_squared()).max(0.0);
    let variances = scaled.column_iter().zip(diagonal).map(variance).collect();
    Ok((solution, variances))
}
