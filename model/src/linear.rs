//! The few dense operations that user states need, over row-major slices.

use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

use nalgebra::{Cholesky, DMatrix, Dyn};

/// The two precisions in which a user's state can be held.
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
    /// The additive identity.
    const ZERO: Self;
    /// The multiplicative identity.
    const ONE: Self;
    /// The nearest value of this precision.
    fn from_f64(value: f64) -> Self;
    /// The nearest value of this precision.
    fn from_f32(value: f32) -> Self;
    /// The same value in double precision.
    fn to_f64(self) -> f64;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is what is asked for")]
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

/// Independent partial sums of [`dot`]: enough to fill the widest vector unit of the day, few enough to stay in
/// registers.
const LANES: usize = 16;

/// Inner product of a state vector with `f32` features.
///
/// The order of additions is fixed by the length alone, so equal inputs give equal bits.
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

/// The Cholesky factor of a row-major symmetric matrix, or `None` where it is not positive definite.
#[must_use]
pub fn cholesky(matrix: &[f64], dim: usize) -> Option<Cholesky<f64, Dyn>> {
    debug_assert_eq!(matrix.len(), dim * dim);
    Cholesky::new(DMatrix::from_row_slice(dim, dim, matrix))
}

/// The largest absolute row sum of a symmetric row-major matrix: an upper bound of its largest eigenvalue's magnitude.
#[must_use]
pub fn norm_inf(matrix: &[f64], dim: usize) -> f64 {
    // Column sums, which are the same and vectorise without reordering them.
    let mut sums = vec![0.0; dim];
    for row in matrix.chunks_exact(dim) {
        for (sum, entry) in sums.iter_mut().zip(row) {
            *sum += entry.abs();
        }
    }
    sums.into_iter().fold(0.0, f64::max)
}
