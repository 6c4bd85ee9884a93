//! The users' half of a sweep, and the population that it reveals.

use celeris_model::linear::cholesky;
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

use super::ridge::Normal;
use super::{Als, CHUNK_ROWS, START_EVIDENCE, write_row};
use crate::ratings::Entry;

/// What the estimates of `w0` and `S` need of some users.
struct UserSums {
    users: f64,
    weights: DVector<f64>,
    /// `sum (w w^T + posterior covariance)`.
    squares: DMatrix<f64>,
}

/// The population's part of every user's regression.
struct Population {
    precision: DMatrix<f64>,
    moment: DVector<f64>,
}

impl Als {
    pub(super) fn solve_users(&mut self) {
        let dim = self.shape.dim();
        let population = self.population();
        let mut weights = std::mem::take(&mut self.weights);
        let mut variances = std::mem::take(&mut self.weight_variances);
        let this = &*self;
        let sums: Vec<UserSums> = weights
            .par_chunks_mut(CHUNK_ROWS * dim)
            .zip(variances.par_chunks_mut(CHUNK_ROWS * dim))
            .enumerate()
            .map(|(chunk, (weights, variances))| {
                let mut sums = UserSums::zero(dim);
                let rows = weights.chunks_exact_mut(dim).zip(variances.chunks_exact_mut(dim));
                for (row, (weights, variances)) in rows.enumerate() {
                    let entries = this.by_user.row(chunk * CHUNK_ROWS + row);
                    if !entries.is_empty() {
                        let (solution, covariance) = this.user_posterior(entries, &population);
                        write_row(weights, solution.iter().copied());
                        write_row(variances, covariance.diagonal().iter().copied());
                        sums.add_user(&solution, &covariance);
                    }
                }
                sums
            })
            .collect();
        (self.weights, self.weight_variances) = (weights, variances);
        self.estimate_population(&sums);
    }

    fn population(&self) -> Population {
        let covariance = cholesky(self.weight_covariance.as_slice(), self.shape.dim())
            .expect("a covariance that holds a share of its positive start is positive definite");
        let precision = covariance.inverse() * self.noise_variance;
        let moment = &precision * &self.weight_mean;
        Population { precision, moment }
    }

    /// One user's weights and their posterior covariance.
    fn user_posterior(&self, entries: &[Entry], population: &Population) -> (DVector<f64>, DMatrix<f64>) {
        let mut normal = Normal::start(population.precision.clone(), population.moment.clone(), entries.len());
        for entry in entries {
            let weight = f64::from(entry.weight);
            let target = f64::from(entry.label) - self.mean - f64::from(self.biases[entry.other as usize]);
            normal.add(self.item_row(entry.other).iter().copied(), target, weight);
            for (j, variance) in self.factor_variances_of(entry.other).iter().enumerate() {
                normal.add_ridge(j, self.regularization * weight * f64::from(*variance));
            }
        }
        let (solution, factor) = normal.solve();
        (solution, factor.inverse() * self.noise_variance)
    }

    /// `w0` and `S` as the means over users, `S` shrunk towards its start as by an inverse Wishart prior.
    fn estimate_population(&mut self, chunks: &[UserSums]) {
        let mut total = UserSums::zero(self.shape.dim());
        for chunk in chunks {
            total.users += chunk.users;
            total.weights += &chunk.weights;
            total.squares += &chunk.squares;
        }
        let mean = total.weights / total.users;
        let scatter = total.squares - &mean * mean.transpose() * total.users;
        let start = self.start_covariance() * START_EVIDENCE;
        self.weight_covariance = (scatter + start) / (total.users + START_EVIDENCE);
        self.weight_mean = mean;
    }
}

impl UserSums {
    fn zero(dim: usize) -> Self {
        Self { users: 0.0, weights: DVector::zeros(dim), squares: DMatrix::zeros(dim, dim) }
    }

    fn add_user(&mut self, weights: &DVector<f64>, covariance: &DMatrix<f64>) {
        self.users += 1.0;
        self.weights += weights;
        self.squares.ger(1.0, weights, weights, 1.0);
        self.squares += covariance;
    }
}
