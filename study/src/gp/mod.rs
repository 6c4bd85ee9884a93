//! A Gaussian process over the unit cube: Matérn 5/2 kernel with a length scale for each feature,
//! hyperparameters at the maximum of their posterior.
//!
//! Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5; Snoek,
//! Larochelle & Adams, "Practical Bayesian Optimization of Machine Learning Algorithms", 2012.

mod acquisition;
mod hyperparameters;

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

pub(crate) use self::acquisition::propose;
use self::hyperparameters::Hyperparameters;

/// A Gaussian process that is conditioned on observations. Its prior mean is 0.
#[derive(Debug, Clone)]
pub struct GaussianProcess {
    /// One row for each observation.
    rows: Vec<Vec<f64>>,
    hyperparameters: Hyperparameters,
    /// Variance of the function's values.
    signal_variance: f64,
    factor: Cholesky<f64, Dyn>,
    /// `K^-1 y`.
    weights: DVector<f64>,
}

impl GaussianProcess {
    /// Fits hyperparameters and conditions on `values` at `rows`, which have equal lengths and
    /// features from 0 to 1. Values should be standardised. `None` without observations, or if they
    /// are not finite.
    #[must_use]
    pub fn fit(rows: &[Vec<f64>], values: &[f64]) -> Option<Self> {
        debug_assert_eq!(rows.len(), values.len());
        let hyperparameters = Hyperparameters::fit(rows, values)?;
        Self::conditioned(rows.to_vec(), values, hyperparameters, None)
    }

    fn conditioned(
        rows: Vec<Vec<f64>>,
        values: &[f64],
        hyperparameters: Hyperparameters,
        signal_variance: Option<f64>,
    ) -> Option<Self> {
        let factor = Cholesky::new(hyperparameters.covariance(&rows))?;
        let values = DVector::from_column_slice(values);
        let weights = factor.solve(&values);
        let signal_variance =
            signal_variance.unwrap_or_else(|| (values.dot(&weights) / rows.len() as f64).max(f64::MIN_POSITIVE));
        Some(Self { rows, hyperparameters, signal_variance, factor, weights })
    }

    /// The same process with further rows, whose values are taken to be what it expects (the
    /// "kriging believer" of Ginsbourger, Le Riche & Carraro 2010): for points that are being
    /// evaluated by other workers.
    #[must_use]
    pub fn believing(&self, values: &[f64], rows: &[Vec<f64>]) -> Option<Self> {
        let expected = rows.iter().map(|row| self.predict(row).0);
        let values: Vec<f64> = values.iter().copied().chain(expected).collect();
        let all = self.rows.iter().chain(rows).cloned().collect();
        Self::conditioned(all, &values, self.hyperparameters.clone(), Some(self.signal_variance))
    }

    /// Mean and variance of the function's value at `row`.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> (f64, f64) {
        let covariances =
            DVector::from_iterator(self.rows.len(), self.rows.iter().map(|of| self.hyperparameters.kernel(of, row)));
        let mean = covariances.dot(&self.weights);
        let mut half = covariances;
        self.factor.l_dirty().solve_lower_triangular_unchecked_mut(&mut half);
        let variance = self.signal_variance * (1.0 - half.norm_squared());
        (mean, variance.max(self.signal_variance * 1e-12))
    }

    /// The mean alone, which is cheaper.
    #[must_use]
    pub fn mean(&self, row: &[f64]) -> f64 {
        self.rows
            .iter()
            .zip(self.weights.iter())
            .map(|(of, weight)| weight * self.hyperparameters.kernel(of, row))
            .sum()
    }
}

/// The matrix of a function of two rows, which is symmetric.
fn symmetric(rows: &[Vec<f64>], of: impl Fn(&[f64], &[f64]) -> f64) -> DMatrix<f64> {
    let mut matrix = DMatrix::zeros(rows.len(), rows.len());
    for (column, right) in rows.iter().enumerate() {
        for (row, left) in rows.iter().enumerate().skip(column) {
            let value = of(left, right);
            matrix[(row, column)] = value;
            matrix[(column, row)] = value;
        }
    }
    matrix
}
