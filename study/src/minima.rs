//! Functions whose minima are known, and a study of a function, for comparisons of samplers.

use crate::error::StudyError;
use crate::messages::{Asked, Worker};
use crate::space::Params;
use crate::study::Study;
use crate::trial::Outcome;

/// Runs a study of a function to its end, with one worker and a second for each trial. The present settings
/// have no value: they are worse than any.
///
/// # Errors
/// `NotFinite` if a value is not a finite number.
pub fn minimise(mut study: Study, function: impl Fn(&Params) -> f64) -> Result<Study, StudyError> {
    let mut now = study.began();
    loop {
        now += 1000;
        // One worker never waits.
        let Asked::Trial(assignment) = study.ask(Worker::Local, now)? else { return Ok(study) };
        let value = if assignment.trial == 0 { f64::MAX } else { function(&assignment.params) };
        study.tell((assignment.trial, assignment.attempt), Ok(Outcome::of(value)), now)?;
    }
}

/// Sum of squares; its minimum is 0 at zeros.
#[must_use]
pub fn sphere(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

/// Rosenbrock's curved valley; its minimum is 0 at ones.
#[must_use]
pub fn rosenbrock(x: &[f64]) -> f64 {
    x.windows(2).map(|x| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2)).sum()
}

/// The minimum of [`hartmann`] from 0 to 1.
pub const HARTMANN_MIN: f64 = -3.322_368_01;

/// Hartmann's sum of four hills, of 6 coordinates.
#[must_use]
pub fn hartmann(x: &[f64]) -> f64 {
    const ALPHA: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const A: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const P: [[f64; 6]; 4] = [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ];
    let inner = |row: usize| -> f64 { (0..6).map(|axis| A[row][axis] * (x[axis] - P[row][axis]).powi(2)).sum() };
    -(0..4).map(|row| ALPHA[row] * (-inner(row)).exp()).sum::<f64>()
}
