//! The mode of a posterior with a non-Gaussian likelihood, by iteratively reweighted least squares.

use nalgebra::DVector;

use crate::error::ModelError;
use crate::linear::cholesky_of_squares;
use crate::posterior::canonical::{Block, GramSums, NOT_DEFINITE};
use crate::posterior::prior::Prior;
use crate::posterior::user_model::History;

/// Near the mode, Newton's method doubles the correct digits with every step; far from it, a damped
/// step still makes progress. Without convergence after this many steps the last point is used: it
/// is still a function of the history alone.
const STEPS_MAX: usize = 64;

/// Maximum number of halvings of a step that lowers the log posterior.
const HALVINGS_MAX: usize = 30;

/// The largest last step, relative to the weights: the remaining error is its square, below the
/// rounding of `f64`.
const TOLERANCE: f64 = 1e-8;

/// Adds the block to `sums`, each example approximated around the mode of the posterior given the
/// prior, `sums` and the block. [`GramSums::solve`] of the result returns the same mode. Returns
/// the point of the approximation, `w - w0`.
///
/// Iteratively reweighted least squares, that is Newton's method: solve for the weights, take
/// curvature and slope of every example at them, repeat (Bishop, "Pattern Recognition and Machine
/// Learning", 2006, sections 4.3.3 and 4.5.1). The log posterior is concave; a step that would
/// lower it is halved.
pub(super) fn add_around_mode<H: History + ?Sized>(
    block: &Block<'_, H>,
    sums: &mut GramSums,
) -> Result<Vec<f64>, ModelError> {
    let prior = block.learning.prior();
    let gaussian = Gaussian { precision: sums.precision(prior), moment: &sums.moment };
    let mut here = Point::at(block, sums, &gaussian, sums.mode(prior)?);
    for _ in 0..STEPS_MAX {
        let target = here.sums.mode(prior)?;
        let step: f64 = here.delta.iter().zip(&target).map(|(from, to)| (to - from).powi(2)).sum();
        let length: f64 = target.iter().map(|entry| entry * entry).sum();
        if step.sqrt() <= TOLERANCE * (1.0 + length.sqrt()) {
            break;
        }
        let mut next = Point::at(block, sums, &gaussian, target);
        for _ in 0..HALVINGS_MAX {
            if next.log_posterior >= here.log_posterior {
                break;
            }
            let halfway = here.delta.iter().zip(&next.delta).map(|(from, to)| f64::midpoint(*from, *to)).collect();
            next = Point::at(block, sums, &gaussian, halfway);
        }
        here = next;
    }
    *sums = here.sums;
    Ok(here.delta)
}

/// The Gaussian given by the prior and the sums before the block.
struct Gaussian<'a> {
    /// Row-major.
    precision: Vec<f64>,
    moment: &'a [f64],
}

impl Gaussian<'_> {
    /// `moment·delta - delta^T precision delta / 2`
    fn log_density(&self, delta: &[f64]) -> f64 {
        let rows = self.precision.chunks_exact(delta.len());
        rows.zip(delta)
            .zip(self.moment)
            .map(|((row, entry), moment)| {
                let product: f64 = row.iter().zip(delta).map(|(a, b)| a * b).sum();
                entry * (moment - 0.5 * product)
            })
            .sum()
    }
}

/// An iterate, with the approximation around it.
struct Point {
    /// `w - w0`, length `dim`.
    delta: Vec<f64>,
    sums: GramSums,
    /// Up to an additive constant.
    log_posterior: f64,
}

impl Point {
    fn at<H: History + ?Sized>(block: &Block<'_, H>, before: &GramSums, gaussian: &Gaussian, delta: Vec<f64>) -> Self {
        let mut sums = before.clone();
        let log_posterior = gaussian.log_density(&delta) + block.add_around(&delta, &mut sums);
        Self { delta, sums, log_posterior }
    }
}

impl GramSums {
    /// `w - w0` at the mode.
    fn mode(&self, prior: &Prior) -> Result<Vec<f64>, ModelError> {
        let factor = cholesky_of_squares(&self.precision(prior), prior.dim()).ok_or(NOT_DEFINITE)?;
        Ok(factor.solve(&DVector::from_column_slice(&self.moment)).as_slice().to_vec())
    }
}
