//! Dense linear algebra for user states, over row-major slices.

use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use nalgebra::{Cholesky, DMatrix, Dyn, SymmetricEigen};

use celeris_kernel as kernel;

/// The precision of a user's state.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
{
    const ZERO: Self;
    const ONE: Self;
    /// The nearest value of this precision.
    fn from_f64(value: f64) -> Self;
    /// The nearest value of this precision.
    fn from_f32(value: f32) -> Self;
    fn to_f64(self) -> f64;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is intended")]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    fn from_f32(value: f32) -> Self {
        value
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    fn from_f64(value: f64) -> Self {
        value
    }
    fn from_f32(value: f32) -> Self {
        Self::from(value)
    }
    fn to_f64(self) -> f64 {
        self
    }
}

/// Independent partial sums of [`dot`]: enough to fill the widest vector unit, few enough to stay
/// in registers.
const LANES: usize = 16;

/// Inner product of a state vector with `f32` features.
///
/// The order of additions depends on the length alone, so equal inputs give equal bits.
#[must_use]
pub fn dot<T: Real>(left: &[T], right: &[f32]) -> T {
    debug_assert_eq!(left.len(), right.len());
    let mut lanes = [T::ZERO; LANES];
    let mut left_chunks = left.chunks_exact(LANES);
    let mut right_chunks = right.chunks_exact(LANES);
    for (a, b) in (&mut left_chunks).zip(&mut right_chunks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * T::from_f32(b[lane]);
        }
    }
    let mut sum = T::ZERO;
    for (a, b) in left_chunks.remainder().iter().zip(right_chunks.remainder()) {
        sum += *a * T::from_f32(*b);
    }
    for lane in lanes {
        sum += lane;
    }
    sum
}

/// `row^T matrix row` for a symmetric row-major `dim x dim` matrix.
#[must_use]
pub fn quadratic<T: Real>(matrix: &[T], row: &[f32]) -> T {
    debug_assert_eq!(matrix.len(), row.len() * row.len());
    let mut sum = T::ZERO;
    for (entries, scale) in matrix.chunks_exact(row.len()).zip(row) {
        sum += dot(entries, row) * T::from_f32(*scale);
    }
    sum
}

/// The Cholesky factor of a row-major symmetric matrix, or `None` if it is not positive definite.
#[must_use]
pub fn cholesky(matrix: &[f64], dim: usize) -> Option<Cholesky<f64, Dyn>> {
    debug_assert_eq!(matrix.len(), dim * dim);
    Cholesky::new(DMatrix::from_row_slice(dim, dim, matrix))
}

/// Shares by which a diagonal is raised, tried in order, if rounding has made a matrix indefinite.
/// The first is far enough above the rounding of sums that the result is good to four digits.
pub const RAISES: [f64; 3] = [1e-10, 1e-7, 1e-4];

/// Maximum of the product of a diagonal entry and the corresponding entry of the inverse. Beyond
/// it, all but four of the sixteen digits of the entry are determined by other coordinates.
pub const DETERMINED_MAX: f64 = 1e12;

/// [`cholesky`] of the sum of a positive definite matrix and squares, or of the inverse of such a
/// sum. If rounding has made it indefinite, every entry of the diagonal is multiplied by 1 + share,
/// for the smallest share in [`RAISES`] that works: a relative change, so that the result does not
/// depend on the scale of a coordinate. `None` if no share works or an entry is not finite.
#[must_use]
pub fn cholesky_of_squares(matrix: &[f64], dim: usize) -> Option<Cholesky<f64, Dyn>> {
    let raised = |share: f64| {
        let mut matrix = matrix.to_vec();
        raise(&mut matrix, dim, share);
        cholesky(&matrix, dim)
    };
    if !matrix.iter().all(|entry| entry.is_finite()) {
        return None;
    }
    cholesky(matrix, dim).or_else(|| RAISES.into_iter().find_map(raised))
}

/// The exactly symmetric inverse of a matrix as for [`cholesky_of_squares`]; `matrix` builds the
/// matrix and may be called several times.
#[must_use]
pub fn inverse_of_squares(dim: usize, matrix: impl Fn() -> Vec<f64>) -> Option<Vec<f64>> {
    let mut inverse = matrix();
    let diagonal: Vec<f64> = inverse.iter().step_by(dim + 1).copied().collect();
    if kernel::invert(&mut inverse, dim) && is_determined(&diagonal, &inverse, DETERMINED_MAX) {
        return Some(inverse);
    }
    RAISES.into_iter().find_map(|share| {
        let mut inverse = matrix();
        raise(&mut inverse, dim, share);
        let definite = kernel::invert(&mut inverse, dim) && inverse.iter().all(|entry| entry.is_finite());
        definite.then_some(inverse)
    })
}

/// Whether every coordinate has kept significant digits through the inversion: no entry on the
/// diagonal of `inverse` times the entry of `diagonal` of the original matrix exceeds `max`. False
/// for NaN.
#[must_use]
pub fn is_determined(diagonal: &[f64], inverse: &[f64], max: f64) -> bool {
    inverse.iter().step_by(diagonal.len() + 1).zip(diagonal).all(|(inverse, entry)| inverse * entry <= max)
}

/// Multiplies the diagonal of a matrix by `1 + share`.
pub fn raise(matrix: &mut [f64], dim: usize, share: f64) {
    matrix.iter_mut().step_by(dim + 1).for_each(|entry| *entry *= 1.0 + share);
}

/// Maximum iterations of the eigenvalue algorithm; it needs a few per dimension, far fewer than
/// this at the largest dimensions.
const EIGEN_STEPS_MAX: usize = 100_000;

/// The eigenvalues and eigenvectors of a symmetric matrix; `None` if an entry is not finite, in
/// which case the iteration would not converge.
#[must_use]
pub fn symmetric_eigen(matrix: DMatrix<f64>) -> Option<SymmetricEigen<f64, Dyn>> {
    let largest = matrix.amax();
    if !matrix.iter().all(|entry| entry.is_finite()) {
        return None;
    }
    // Scaled so that squares of entries neither overflow nor underflow.
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let mut eigen = SymmetricEigen::try_new(matrix / scale, f64::EPSILON, EIGEN_STEPS_MAX)?;
    eigen.eigenvalues *= scale;
    Some(eigen)
}

/// The largest absolute row sum of a symmetric row-major matrix: an upper bound of the magnitude of
/// its eigenvalues.
#[must_use]
pub fn norm_inf(matrix: &[f64], dim: usize) -> f64 {
    // Column sums, equal to row sums by symmetry; they vectorise without reordering additions.
    let mut sums = vec![0.0; dim];
    for row in matrix.chunks_exact(dim) {
        for (sum, entry) in sums.iter_mut().zip(row) {
            *sum += entry.abs();
        }
    }
    sums.into_iter().fold(0.0, f64::max)
}
