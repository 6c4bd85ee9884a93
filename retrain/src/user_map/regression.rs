//! A ridge regression of many targets on the same sparse rows, solved again and again for other targets.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};
use rayon::prelude::*;

/// The non-zero columns of a row, ascending and distinct.
pub(super) type Columns = Vec<(u32, f32)>;

/// Rows per partial sum; fixed, so that sums do not depend on the number of threads.
const CHUNK_ROWS: usize = 512;

/// The rows of a regression, with the factorisation of `sum (x - x_mean) (x - x_mean)^T + ridge I`.
pub(super) struct Design<'a> {
    rows: Vec<&'a Columns>,
    mean: DVector<f64>,
    factor: Cholesky<f64, Dyn>,
}

/// A solved regression: `y = intercept + coefficients x`.
#[derive(Debug, Clone)]
pub(super) struct Solution {
    /// Length `targets`.
    pub(super) intercept: DVector<f64>,
    /// `targets x width`.
    pub(super) coefficients: DMatrix<f64>,
}

impl<'a> Design<'a> {
    /// The design of these rows; `None` without rows or if numbers are not finite. O(width^3).
    pub(super) fn of(rows: Vec<&'a Columns>, width: usize, ridge: f64) -> Option<Self> {
        let count = rows.len() as f64;
        if rows.is_empty() {
            return None;
        }
        let sums = |rows: &[&Columns]| {
            let (mut x, mut xx) = (DVector::zeros(width), DMatrix::zeros(width, width));
            for (column, value) in rows.iter().flat_map(|row| row.iter()) {
                x[*column as usize] += f64::from(*value);
            }
            for row in rows {
                for (at, (column, value)) in row.iter().enumerate() {
                    // Columns are ascending, so these entries are above the diagonal.
                    let mut sums = xx.column_mut(*column as usize);
                    for (other, with) in &row[..=at] {
                        sums[*other as usize] += f64::from(*value) * f64::from(*with);
                    }
                }
            }
            (x, xx)
        };
        let (x, xx): (DVector<f64>, DMatrix<f64>) = sums(&rows);
        let mean = x / count;
        // The factorisation reads the lower triangle.
        let mut gram = xx.transpose();
        gram.ger(-count, &mean, &mean, 1.0);
        for entry in 0..width {
            gram[(entry, entry)] += ridge;
        }
        Some(Self { rows, mean, factor: Cholesky::new(gram)? })
    }

    /// The solution for these targets, one for each row, of the length `dim`.
    pub(super) fn solve(&self, targets: &[Vec<f64>], dim: usize) -> Solution {
        debug_assert_eq!(targets.len(), self.rows.len());
        let width = self.mean.len();
        let partial = |(rows, targets): (&[&Columns], &[Vec<f64>])| {
            let (mut y, mut xy) = (DVector::zeros(dim), DMatrix::zeros(dim, width));
            for (row, target) in rows.iter().zip(targets) {
                add_scaled(y.as_mut_slice(), 1.0, target);
                for (column, value) in row.iter() {
                    let start = *column as usize * dim;
                    add_scaled(&mut xy.as_mut_slice()[start..start + dim], f64::from(*value), target);
                }
            }
            (y, xy)
        };
        let chunks = self.rows.par_chunks(CHUNK_ROWS).zip(targets.par_chunks(CHUNK_ROWS));
        let partials: Vec<(DVector<f64>, DMatrix<f64>)> = chunks.map(partial).collect();
        let none = (DVector::zeros(dim), DMatrix::zeros(dim, width));
        let (y, mut xy) = partials.into_iter().fold(none, |(y, xy), part| (y + part.0, xy + part.1));
        let y_mean = y / self.rows.len() as f64;
        xy.ger(-(self.rows.len() as f64), &y_mean, &self.mean, 1.0);
        let coefficients = self.factor.solve(&xy.transpose()).transpose();
        Solution { intercept: y_mean - &coefficients * &self.mean, coefficients }
    }
}

impl Solution {
    /// The solution of a regression that explains nothing.
    pub(super) fn zero(dim: usize, width: usize) -> Self {
        Self { intercept: DVector::zeros(dim), coefficients: DMatrix::zeros(dim, width) }
    }

    /// The targets of a row.
    pub(super) fn targets(&self, row: &Columns) -> Vec<f64> {
        let (dim, mut targets) = (self.intercept.len(), self.intercept.as_slice().to_vec());
        for (column, value) in row {
            let start = *column as usize * dim;
            add_scaled(&mut targets, f64::from(*value), &self.coefficients.as_slice()[start..start + dim]);
        }
        targets
    }

    /// The solution whose targets are `matrix` times those of this one.
    pub(super) fn times(&self, matrix: &DMatrix<f64>) -> Self {
        Self { intercept: matrix * &self.intercept, coefficients: matrix * &self.coefficients }
    }
}

fn add_scaled(sums: &mut [f64], scale: f64, terms: &[f64]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum += scale * term;
    }
}
