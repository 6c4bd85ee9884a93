//! Steps towards the maximum of the marginal likelihood of users' ratings, with the users' weights `N(m, T^-1)` integrated
//! out.
//!
//! Let a user's ratings have the information `H` about the weights, and the maximum `y`. Then `y ~ N(m, V)` with
//! `V = T^-1 + H^-1`. The posterior of the weights has the same content: with mean `w` and covariance `C` it is
//! `V^-1 (y - m) = T (w - m) = g` and `V^-1 = T - T C T = P`, where `H` may be singular.
//!
//! - Means: `m += (sum P)^-1 sum g`, which is generalised least squares.
//! - Variances `t` of independent weights, which are on the diagonal of `T^-1`: damped Fisher scoring, towards `t + F^-1 s`
//!   with `s_j = sum (g_j^2 - P_jj) / 2` and `F_jk = sum P_jk^2 / 2` (Jennrich and Sampson, Technometrics 18, 1976).
//!
//! Expectation maximisation has the same fixed point and goes there in steps that shrink with the variances: where users
//! hardly differ, which is the usual case for what is true of everybody, both figures would stay near where they began.

use celeris_model::ModelError;
use celeris_model::linear::symmetric_eigen;
use nalgebra::{DMatrix, DVector};

/// The largest factor by which a variance changes in a step: the likelihood is known around the present one.
const CHANGE_MAX: f64 = 10.0;

/// Added to the diagonal of the information about the variances, relative to it: columns that say nothing keep theirs.
const DAMPING: f64 = 1e-6;

/// The smallest information about a direction, relative to that about single weights, that is more than rounding.
const INFORMATION_MIN: f64 = 1e-6;

/// Sums over users.
pub(super) struct Marginal {
    /// `sum g`
    gradient: DVector<f64>,
    /// `sum P`
    information: DMatrix<f64>,
    /// `s`
    of_variances: DVector<f64>,
    /// `F`
    information_of_variances: DMatrix<f64>,
}

impl Marginal {
    /// Sums for `means` weights, of which the first `variances` have variances to fit.
    pub(super) fn new(means: usize, variances: usize) -> Self {
        Self {
            gradient: DVector::zeros(means),
            information: DMatrix::zeros(means, means),
            of_variances: DVector::zeros(variances),
            information_of_variances: DMatrix::zeros(variances, variances),
        }
    }

    /// Adds a user by `g` and `P` of the weights whose means are fitted; the first of them are those with variances.
    pub(super) fn add(&mut self, gradient: &DVector<f64>, information: &DMatrix<f64>) {
        for j in 0..self.of_variances.len() {
            self.of_variances[j] += (gradient[j].powi(2) - information[(j, j)]) / 2.0;
            for k in 0..self.of_variances.len() {
                self.information_of_variances[(j, k)] += information[(j, k)].powi(2) / 2.0;
            }
        }
        self.gradient += gradient;
        self.information += information;
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            gradient: self.gradient + other.gradient,
            information: self.information + other.information,
            of_variances: self.of_variances + other.of_variances,
            information_of_variances: self.information_of_variances + other.information_of_variances,
        }
    }

    /// The means after a step, with a prior of this precision around `centers`.
    pub(super) fn next_means(&self, means: &[f64], centers: &[f64], ridge: f64) -> Result<Vec<f64>, ModelError> {
        let now = DVector::from_column_slice(means);
        let away = &now - DVector::from_column_slice(centers);
        let information = &self.information + DMatrix::identity(means.len(), means.len()) * ridge;
        let step = solved(&information, &(&self.gradient - away * ridge))?;
        Ok((now + step).iter().copied().collect())
    }

    /// The variances after a step, at least `least`.
    pub(super) fn next_variances(&self, variances: &[f64], least: f64) -> Result<Vec<f64>, ModelError> {
        let mut information = self.information_of_variances.clone();
        let most = information.diagonal().max().max(f64::MIN_POSITIVE);
        (0..variances.len()).for_each(|j| information[(j, j)] += DAMPING * most);
        let step = solved(&information, &self.of_variances)?;
        // Half of the way, on a logarithmic scale: whole steps alternate around the maximum where a user's labels say little.
        let next = |(now, step): (&f64, &f64)| {
            let most = (now + step).clamp(now / CHANGE_MAX, now * CHANGE_MAX);
            (now * most).sqrt().max(least)
        };
        Ok(variances.iter().zip(&step).map(next).collect())
    }
}

/// The step of Newton's method. In directions without information, such as those of columns that sum to a constant, it is
/// zero: what is along them is rounding.
fn solved(information: &DMatrix<f64>, gradient: &DVector<f64>) -> Result<DVector<f64>, ModelError> {
    // Rounding may have made the triangles differ.
    let symmetric = (information + information.transpose()) * 0.5;
    let scales = symmetric.diagonal().map(|entry| if entry > 0.0 { entry.sqrt().recip() } else { 0.0 });
    let scaled = DMatrix::from_fn(scales.len(), scales.len(), |j, k| scales[j] * symmetric[(j, k)] * scales[k]);
    let eigen = symmetric_eigen(scaled);
    let eigen =
        eigen.ok_or(ModelError::NotPositiveDefinite { what: "the information about the weights of columns" })?;
    let along = eigen.eigenvectors.tr_mul(&gradient.component_mul(&scales));
    let is_known = |value: f64| value > INFORMATION_MIN;
    let step = along.zip_map(&eigen.eigenvalues, |along, value| if is_known(value) { along / value } else { 0.0 });
    Ok((eigen.eigenvectors * step).component_mul(&scales))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// Means and variances fitted to users of whom each has this information about two correlated weights.
    fn fitted(truth: [(f64, f64); 2], users: usize, steps: usize) -> (Vec<f64>, Vec<f64>) {
        let information = DMatrix::from_row_slice(2, 2, &[4.0, 1.0, 1.0, 3.0]);
        let noise = information.clone().try_inverse().unwrap().cholesky().unwrap().l();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut normal = || rng.sample::<f64, _>(StandardNormal);
        let of_users: Vec<DVector<f64>> = (0..users)
            .map(|_| {
                let weights = DVector::from_fn(2, |j, _| truth[j].0 + truth[j].1.sqrt() * normal());
                weights + &noise * DVector::from_fn(2, |_, _| normal())
            })
            .collect();
        let (mut means, mut variances) = (vec![0.0; 2], vec![0.1; 2]);
        for _ in 0..steps {
            let mut marginal = Marginal::new(2, 2);
            let prior = DMatrix::from_diagonal(&DVector::from_fn(2, |j, _| 1.0 / variances[j]));
            let covariance = (&prior + &information).try_inverse().unwrap();
            for maximum in &of_users {
                let away = maximum - DVector::from_column_slice(&means);
                let deviations = &covariance * &information * away;
                marginal.add(&(&prior * deviations), &(&prior - &prior * &covariance * &prior));
            }
            means = marginal.next_means(&means, &[0.0; 2], 1e-6).unwrap();
            variances = marginal.next_variances(&variances, 1e-5).unwrap();
        }
        (means, variances)
    }

    #[test]
    fn means_and_variances_are_found_in_a_few_steps() {
        let (means, variances) = fitted([(1.5, 0.5), (-0.5, 0.0)], 4000, 8);
        // Standard errors of the means are 0.014 and 0.01, of the variances 0.02 and 0.01.
        assert!((means[0] - 1.5).abs() < 0.05 && (means[1] + 0.5).abs() < 0.05, "{means:?}");
        assert!((variances[0] - 0.5).abs() < 0.08 && variances[1] < 0.03, "{variances:?}");
    }

    #[test]
    fn columns_that_are_opposites_share_their_effect() {
        let mut marginal = Marginal::new(2, 2);
        // With an eigenvalue that rounding has made negative.
        let information = DMatrix::from_row_slice(2, 2, &[5.0, -5.0, -5.0, 5.0 - 1e-9]);
        marginal.add(&DVector::from_column_slice(&[10.0, -10.0]), &information);
        let means = marginal.next_means(&[0.0, 0.0], &[0.0, 0.0], 0.0).unwrap();
        assert!((means[0] - 1.0).abs() < 1e-6 && (means[1] + 1.0).abs() < 1e-6, "{means:?}");
        assert!(marginal.next_variances(&[0.1, 0.1], 1e-5).unwrap().iter().all(|variance| variance.is_finite()));
    }

    #[test]
    fn a_column_without_information_keeps_its_variance() {
        let mut marginal = Marginal::new(2, 2);
        let information = DMatrix::from_row_slice(2, 2, &[5.0, 0.0, 0.0, 0.0]);
        for sign in [1.0, -1.0] {
            marginal.add(&DVector::from_column_slice(&[sign * 2.0, 0.0]), &information);
        }
        let variances = marginal.next_variances(&[0.1, 0.1], 1e-5).unwrap();
        assert!((variances[1] - 0.1).abs() < 1e-9, "{variances:?}");
        assert_eq!(marginal.next_means(&[0.0, 0.3], &[0.0, 0.3], 1e-3).unwrap(), [0.0, 0.3]);
    }
}
