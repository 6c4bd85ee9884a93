//! Fits the prior of user weights.

use celeris_model::Prior;
use celeris_model::linear::symmetric_eigen;
pub use celeris_model::prior::CONDITION_MAX;
use nalgebra::DMatrix;

use crate::error::RetrainError;
use crate::learn::Learnt;

/// Target slightly below [`CONDITION_MAX`], to allow for rounding.
pub(crate) const CONDITION_TARGET: f64 = 0.99 * CONDITION_MAX;

/// `w0` and `Lambda = scale * sigma^2 S^-1` from the estimated population: `S` is the covariance of
/// the users' posterior means plus their posterior covariances (the M step of empirical Bayes), so
/// it is neither narrowed by the shrinkage of users with few ratings nor widened by their noise.
///
/// Serving treats features as exact, the trainer does not; `scale`, tuned on held-out ratings,
/// compensates for that. `noise_variance` is that of held-out labels.
///
/// # Errors
/// [`RetrainError::Prior`] if labels were so large that the covariance overflowed.
pub(crate) fn fit_prior(learnt: &Learnt, scale: f64, noise_variance: f64) -> Result<Prior, RetrainError> {
    of_precision(learnt, &(population_precision(learnt)? * (scale * learnt.noise_variance)), noise_variance)
}

/// `w0` and `Lambda = scale * S^-1` for a loss with its own noise model: the precision is absolute,
/// `sigma^2` is 1.
///
/// # Errors
/// Same as [`fit_prior`].
pub(crate) fn fit_absolute_prior(learnt: &Learnt, scale: f64) -> Result<Prior, RetrainError> {
    of_precision(learnt, &(population_precision(learnt)? * scale), 1.0)
}

fn population_precision(learnt: &Learnt) -> Result<DMatrix<f64>, RetrainError> {
    let not_definite = celeris_model::ModelError::NotPositiveDefinite { what: "the covariance of user weights" };
    Ok(bounded_inverse(learnt.weight_covariance.clone()).ok_or(not_definite)?)
}

fn of_precision(learnt: &Learnt, precision: &DMatrix<f64>, noise_variance: f64) -> Result<Prior, RetrainError> {
    Ok(Prior::new(learnt.weight_mean.as_slice().to_vec(), precision.as_slice().to_vec(), noise_variance)?)
}

/// The inverse with its largest eigenvalues lowered until the condition is within bounds:
/// directions in which users do not differ get a weaker prior than fitted, whose cost is visible to
/// the tuning of the scale. `None` if the covariance is zero or not finite.
///
/// The bound is applied before inverting: for a covariance that is singular up to rounding, no
/// eigenvalue of the inverse is accurate.
fn bounded_inverse(covariance: DMatrix<f64>) -> Option<DMatrix<f64>> {
    let mut eigen = symmetric_eigen(covariance)?;
    let floor = eigen.eigenvalues.max() / CONDITION_TARGET;
    if !(floor.is_normal() && floor > 0.0) {
        return None;
    }
    eigen.eigenvalues.apply(|value| *value = value.max(floor).recip());
    let inverse = eigen.recompose();
    // The product is rounded differently in the two triangles.
    Some((&inverse + inverse.transpose()) * 0.5)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use celeris_model::linear::cholesky;
    use nalgebra::DVector;

    use super::*;

    #[test]
    fn condition_is_bounded_by_lowering_the_top_only() {
        let covariance = DMatrix::from_diagonal(&nalgebra::dvector![0.5, 0.02, 1e-9]);
        let eigenvalues = bounded_inverse(covariance).unwrap().symmetric_eigenvalues();
        assert!((eigenvalues.min() - 2.0).abs() < 1e-6, "{eigenvalues}");
        assert!(eigenvalues.max() / eigenvalues.min() <= CONDITION_MAX, "{eigenvalues}");
        assert!(eigenvalues.iter().any(|value| (value - 50.0).abs() < 1e-6), "{eigenvalues}");
    }

    /// Such a covariance results from a few users who differ in one direction only: its inverse
    /// would have negative eigenvalues.
    #[test]
    fn a_singular_covariance_has_a_prior() {
        let direction = DVector::from_fn(50, |row, _| ((row * 7 + 3) % 11) as f64 - 5.0);
        let covariance = &direction * direction.transpose();
        let inverse = bounded_inverse(covariance).unwrap();
        assert!(cholesky(inverse.as_slice(), 50).is_some());
        assert!(bounded_inverse(DMatrix::zeros(3, 3)).is_none());
        assert!(bounded_inverse(DMatrix::from_element(2, 2, f64::INFINITY)).is_none());
    }
}
