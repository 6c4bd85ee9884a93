//! Normal equations of a weighted ridge regression with an intercept, as sums from which folds can
//! be subtracted.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// One example: the non-zero columns, the targets, and the weight.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Ascending and distinct.
    pub(super) columns: Vec<(u32, f32)>,
    pub(super) targets: Vec<f32>,
    pub(super) weight: f64,
}

/// `sum w`, `sum w x`, `sum w y`, `sum w x x^T` and `sum w x y^T` of some rows.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    weight: f64,
    x: DVector<f64>,
    y: DVector<f64>,
    /// `width x width`; the upper triangle only.
    xx: DMatrix<f64>,
    /// `targets x width`.
    xy: DMatrix<f64>,
}

/// A solved regression: `y = y_mean + B^T (x - x_mean)`.
#[derive(Debug)]
pub(super) struct Solution {
    /// `targets`: `y_mean - B^T x_mean`.
    pub(super) intercept: DVector<f64>,
    /// `targets x width`: `B^T`.
    pub(super) coefficients: DMatrix<f64>,
}

impl Sums {
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>, width: usize, targets: usize) -> Self {
        let mut sums = Self {
            weight: 0.0,
            x: DVector::zeros(width),
            y: DVector::zeros(targets),
            xx: DMatrix::zeros(width, width),
            xy: DMatrix::zeros(targets, width),
        };
        for row in rows {
            sums.add(row);
        }
        sums
    }

    fn add(&mut self, row: &Row) {
        self.weight += row.weight;
        for (sum, target) in self.y.iter_mut().zip(&row.targets) {
            *sum += row.weight * f64::from(*target);
        }
        for (at, (column, value)) in row.columns.iter().enumerate() {
            let (column, value) = (*column as usize, row.weight * f64::from(*value));
            self.x[column] += value;
            // Columns are ascending, so these entries are above the diagonal and contiguous in one
            // column.
            let mut sums = self.xx.column_mut(column);
            for (other, with) in &row.columns[..=at] {
                sums[*other as usize] += value * f64::from(*with);
            }
            for (sum, with) in self.xy.column_mut(column).iter_mut().zip(&row.targets) {
                *sum += value * f64::from(*with);
            }
        }
    }

    /// `sum w`.
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    pub(super) fn mean(&self) -> DVector<f64> {
        &self.y / self.weight
    }

    pub(super) fn plus(mut self, other: &Self) -> Self {
        self.weight += other.weight;
        self.x += &other.x;
        self.y += &other.y;
        self.xx += &other.xx;
        self.xy += &other.xy;
        self
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        Self {
            weight: self.weight - other.weight,
            x: &self.x - &other.x,
            y: &self.y - &other.y,
            xx: &self.xx - &other.xx,
            xy: &self.xy - &other.xy,
        }
    }

    /// Solves the regression, in which `ridge` penalises the coefficients but not the intercept;
    /// `None` without rows or if numbers are not finite. O(width^3).
    pub(super) fn solve(&self, ridge: f64) -> Option<Solution> {
        if self.weight <= 0.0 {
            return None;
        }
        let (x_mean, y_mean) = (&self.x / self.weight, &self.y / self.weight);
        // The factorisation reads the lower triangle.
        let mut gram = self.xx.transpose();
        gram.ger(-self.weight, &x_mean, &x_mean, 1.0);
        for entry in 0..gram.nrows() {
            gram[(entry, entry)] += ridge;
        }
        let mut right = self.xy.transpose();
        right.ger(-self.weight, &x_mean, &y_mean, 1.0);
        let factor: Cholesky<f64, Dyn> = Cholesky::new(gram)?;
        factor.solve_mut(&mut right);
        let coefficients = right.transpose();
        let intercept = y_mean - &coefficients * x_mean;
        Some(Solution { intercept, coefficients })
    }
}

impl Solution {
    /// Targets of the row minus their predictions.
    pub(super) fn residual(&self, row: &Row) -> DVector<f64> {
        let mut residual = DVector::from_iterator(row.targets.len(), row.targets.iter().map(|y| f64::from(*y)));
        residual -= &self.intercept;
        for (column, value) in &row.columns {
            residual.axpy(-f64::from(*value), &self.coefficients.column(*column as usize), 1.0);
        }
        residual
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const WIDTH: usize = 7;
    const TARGETS: usize = 2;

    fn rows() -> Vec<Row> {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let row = |_| {
            let columns = (0..WIDTH as u32).filter(|_| rng.random_bool(0.5)).collect::<Vec<_>>();
            Row {
                columns: columns.into_iter().map(|column| (column, rng.random_range(-1.0..1.0))).collect(),
                targets: (0..TARGETS).map(|_| rng.random_range(-1.0..3.0)).collect(),
                weight: rng.random_range(0.1..1.0),
            }
        };
        (0..50).map(row).collect()
    }

    /// The gradient of `sum w |y - a - B^T x|^2 + ridge |B|^2` at the solution, which is 0 at the
    /// minimum.
    #[test]
    fn no_other_coefficients_have_a_smaller_penalised_error() {
        let (rows, ridge) = (rows(), 0.7);
        let solution = Sums::of(&rows, WIDTH, TARGETS).solve(ridge).unwrap();
        for target in 0..TARGETS {
            let residuals: Vec<f64> = rows.iter().map(|row| solution.residual(row)[target]).collect();
            let weighted: f64 = rows.iter().zip(&residuals).map(|(row, residual)| row.weight * residual).sum();
            assert!(weighted.abs() < 1e-6, "targets in f32 and sums of 50 terms: {weighted}");
            for column in 0..WIDTH {
                let value = |row: &Row| {
                    row.columns.iter().find(|(at, _)| *at as usize == column).map_or(0.0, |x| f64::from(x.1))
                };
                let slope: f64 = rows.iter().zip(&residuals).map(|(row, r)| row.weight * r * value(row)).sum();
                let slope = slope - ridge * solution.coefficients[(target, column)];
                assert!(slope.abs() < 1e-6, "{slope}");
            }
        }
    }

    #[test]
    fn subtracting_a_fold_equals_never_adding_it() {
        let rows = rows();
        let (fold, rest) = rows.split_at(10);
        let [all, fold, rest] = [&rows[..], fold, rest].map(|rows| Sums::of(rows, WIDTH, TARGETS));
        let (taken, never) = (all.minus(&fold).solve(0.1).unwrap(), rest.clone().solve(0.1).unwrap());
        assert!((taken.coefficients - &never.coefficients).amax() < 1e-9);
        let (added, whole) = (rest.plus(&fold).solve(0.1).unwrap(), all.solve(0.1).unwrap());
        assert!((added.coefficients - whole.coefficients).amax() < 1e-9);
    }
}
