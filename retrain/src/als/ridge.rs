//! The ridge regression of one row: `(P + R^T R) z = q + R^T t`, where each rating is one row of `R`.

use nalgebra::{Cholesky, DMatrix, DVector};

/// Ratings gathered before they are multiplied out: enough for the matrix product to pay, few enough for the cache.
const BLOCK_RATINGS: usize = 128;

/// The matrix and right-hand side of one row, taking in ratings block by block.
pub(crate) struct Normal {
    matrix: DMatrix<f64>,
    moment: DVector<f64>,
    /// One column per rating.
    block: DMatrix<f64>,
    targets: DVector<f64>,
    filled: usize,
}

impl Normal {
    /// Starts from the precision `P` and moment `q` of the row's prior; `ratings` is how many there will be.
    pub(crate) fn start(precision: DMatrix<f64>, moment: DVector<f64>, ratings: usize) -> Self {
        let block = ratings.min(BLOCK_RATINGS);
        Self {
            block: DMatrix::zeros(precision.nrows(), block),
            targets: DVector::zeros(block),
            matrix: precision,
            moment,
            filled: 0,
        }
    }

    /// Adds to the diagonal.
    pub(super) fn add_ridge(&mut self, coordinate: usize, ridge: f64) {
        self.matrix[(coordinate, coordinate)] += ridge;
    }

    /// Adds one rating of the given weight.
    pub(crate) fn add(&mut self, regressors: impl Iterator<Item = f32>, target: f64, weight: f64) {
        let root = weight.sqrt();
        for (slot, x) in self.block.column_mut(self.filled).iter_mut().zip(regressors) {
            *slot = root * f64::from(x);
        }
        self.targets[self.filled] = root * target;
        self.filled += 1;
        if self.filled == self.block.ncols() {
            self.multiply_out();
        }
    }

    fn multiply_out(&mut self) {
        let block = self.block.columns(0, self.filled);
        self.matrix.gemm(1.0, &block, &block.transpose(), 1.0);
        self.moment.gemv(1.0, &block, &self.targets.rows(0, self.filled), 1.0);
        self.filled = 0;
    }

    /// The solution, and the Cholesky factor of the matrix.
    pub(crate) fn solve(mut self) -> (DVector<f64>, Cholesky<f64, nalgebra::Dyn>) {
        self.multiply_out();
        let factor = Cholesky::new(self.matrix).expect("a positive definite matrix plus squares is positive definite");
        (factor.solve(&self.moment), factor)
    }
}

/// The diagonal of the inverse of the factored matrix.
pub(super) fn inverse_diagonal(factor: &Cholesky<f64, nalgebra::Dyn>) -> Vec<f64> {
    let dim = factor.l_dirty().nrows();
    let mut inverse = DMatrix::identity(dim, dim);
    factor.l_dirty().solve_lower_triangular_mut(&mut inverse);
    inverse.column_iter().map(|column| column.norm_squared()).collect()
}

/// The same regression for fewer ratings than coordinates and a diagonal prior of mean zero: by Woodbury's identity the
/// system has one unknown a rating. `regressors` has one column a rating, weights already multiplied in.
///
/// Returns the solution and the diagonal of the inverse.
pub(super) fn solve_dual(
    regressors: &DMatrix<f64>,
    targets: &DVector<f64>,
    diagonal: &[f64],
) -> (DVector<f64>, Vec<f64>) {
    let mut scaled = regressors.transpose();
    for (mut column, d) in scaled.column_iter_mut().zip(diagonal) {
        column /= *d;
    }
    let mut kernel = &scaled * regressors;
    for k in 0..kernel.nrows() {
        kernel[(k, k)] += 1.0;
    }
    let factor = Cholesky::new(kernel).expect("the identity plus squares is positive definite");
    let solution = scaled.tr_mul(&factor.solve(targets));
    factor.l_dirty().solve_lower_triangular_mut(&mut scaled);
    let variances = scaled.column_iter().zip(diagonal).map(|(column, d)| 1.0 / d - column.norm_squared()).collect();
    (solution, variances)
}
