//! The users' half of an iteration, and the estimate of the population.

use celeris_model::ModelError;
use celeris_model::linear::cholesky_of_squares;
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

use super::ridge::{Normal, Solved, VarianceSums};
use super::{Als, CHUNK_ROWS, START_EVIDENCE, write_row};
use crate::ratings::Entry;

/// Sums for the estimates of `w0` and `S`.
struct UserSums {
    users: f64,
    weights: DVector<f64>,
    /// `sum (w w^T + posterior covariance)`.
    squares: DMatrix<f64>,
}

/// The prior of every user's regression: a row-major precision, and its product with the mean.
struct Population {
    precision: Vec<f64>,
    moment: Vec<f64>,
}

impl Als {
    /// Solves all users.
    ///
    /// # Errors
    /// [`ModelError`] on overflow.
    pub(super) fn solve_users(&mut self) -> Result<(), ModelError> {
        let dim = self.shape.dim();
        let population = self.population()?;
        let mut weights = std::mem::take(&mut self.weights);
        let mut variances = std::mem::take(&mut self.weight_variances);
        let this = &*self;
        let sums: Result<Vec<UserSums>, ModelError> = weights
            .par_chunks_mut(CHUNK_ROWS * dim)
            .zip(variances.par_chunks_mut(CHUNK_ROWS * dim))
            .enumerate()
            .map(|(chunk, (weights, variances))| {
                let mut sums = UserSums::zero(dim);
                let (mut normal, mut posterior_variance) = (Normal::new(dim), VarianceSums::new(this.shape.latent));
                let mut moment = vec![0.0; dim];
                let rows = weights.chunks_exact_mut(dim).zip(variances.chunks_exact_mut(dim));
                for (row, (weights, variances)) in rows.enumerate() {
                    let entries = this.by_user.row(chunk * CHUNK_ROWS + row);
                    if !entries.is_empty() {
                        let shift =
                            this.choices.as_ref().map_or(&[][..], |choices| choices.shift_of(chunk * CHUNK_ROWS + row));
                        population.shift(&mut moment, shift);
                        let Solved { solution, inverse, .. } = normal.solve_row(|normal| {
                            normal.begin(&population.precision, &moment);
                            this.add_ratings_of_user(entries, normal, &mut posterior_variance);
                        })?;
                        let variance = |entry: &f64| entry * this.noise_variance;
                        write_row(weights, solution.iter().copied());
                        write_row(variances, inverse.iter().step_by(dim + 1).map(variance));
                        sums.add_user(&less(solution, shift), inverse, this.noise_variance);
                    }
                }
                Ok(sums)
            })
            .collect();
        (self.weights, self.weight_variances) = (weights, variances);
        self.estimate_population(&sums?);
        Ok(())
    }

    fn population(&self) -> Result<Population, ModelError> {
        // The covariance includes a share of its positive definite start, which exceeds rounding
        // errors unless sums have overflowed.
        let covariance = cholesky_of_squares(self.weight_covariance.as_slice(), self.shape.dim())
            .ok_or(ModelError::NotPositiveDefinite { what: "the covariance of user weights" })?;
        let precision = covariance.inverse() * self.noise_variance;
        let precision = (&precision + precision.transpose()) * 0.5;
        let moment = &precision * &self.weight_mean;
        Ok(Population { precision: precision.as_slice().to_vec(), moment: moment.as_slice().to_vec() })
    }

    /// Adds one user's ratings to the regression of the user's weights.
    fn add_ratings_of_user(&self, entries: &[Entry], normal: &mut Normal, posterior_variance: &mut VarianceSums) {
        posterior_variance.begin();
        let tables = [(&*self.features, self.shape.dim()), (&*self.factor_variances, self.shape.latent)];
        for entry in Self::fetching(entries, tables) {
            let target = f64::from(entry.label) - self.mean - f64::from(self.biases[entry.other as usize]);
            normal.add((self.item_row(entry.other), &[]), target, entry.weight.sqrt());
            posterior_variance.add(self.factor_variances_of(entry.other), entry.weight);
        }
        normal.add_ridge(posterior_variance.finish().iter().map(|sum| self.regularization * sum));
    }

    /// Estimates `w0` and `S` as means over users, with `S` shrunk towards its start as by an
    /// inverse Wishart prior.
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

impl Population {
    /// Sets `moment` to that of a prior whose mean is shifted; an empty shift is none.
    fn shift(&self, moment: &mut [f64], shift: &[f32]) {
        moment.copy_from_slice(&self.moment);
        for (row, entry) in self.precision.chunks_exact(moment.len()).zip(shift) {
            for (sum, precision) in moment.iter_mut().zip(row) {
                *sum += precision * f64::from(*entry);
            }
        }
    }
}

/// The weights without the shift of their prior mean.
fn less(weights: &[f64], shift: &[f32]) -> Vec<f64> {
    let shift = shift.iter().map(|entry| f64::from(*entry)).chain(std::iter::repeat(0.0));
    weights.iter().zip(shift).map(|(weight, shift)| weight - shift).collect()
}

impl UserSums {
    fn zero(dim: usize) -> Self {
        Self { users: 0.0, weights: DVector::zeros(dim), squares: DMatrix::zeros(dim, dim) }
    }

    /// Adds a user's weights, less the shift of their prior mean, and their posterior covariance, given as a row-major inverse and the
    /// noise variance that scales it.
    fn add_user(&mut self, weights: &[f64], inverse: &[f64], noise_variance: f64) {
        self.users += 1.0;
        // Both are symmetric, so rows equal columns.
        let columns = self.squares.as_mut_slice().chunks_exact_mut(weights.len());
        let inverse = inverse.chunks_exact(weights.len());
        for (((sum, column), inverse), weight) in self.weights.iter_mut().zip(columns).zip(inverse).zip(weights) {
            *sum += weight;
            for ((square, other), entry) in column.iter_mut().zip(weights).zip(inverse) {
                *square += weight * other + noise_variance * entry;
            }
        }
    }
}
