//! The routines of training, generic over the instruction set, on rows padded with zeros to whole
//! registers.
//!
//! Measured at d = 32 to 128 on an AMD EPYC: gemm 0.19 and faer 0.24 take 1.4 to 3.4 times as long,
//! nalgebra 0.35 2.6 to 5 times.
//!
//! Safety, for every routine: the processor has the instruction set of `S`, and `stride` is a
//! multiple of [`ROW_MULTIPLE`](super::ROW_MULTIPLE), which is a multiple of every `S::LANES`.
//! Shapes are asserted by the callers in `mod.rs`.

use super::simd::Simd;

/// Rows per tile of [`gram`]. With one register of columns that is enough independent sums to hide
/// the latency of an addition, and each value of the other factor is read once for all of them.
const TILE: usize = 8;

/// `sums = rows^T rows`: writes the tiles on and above the diagonal; leaves the others unchanged.
#[inline(always)]
pub(crate) unsafe fn gram<S: Simd>(rows: &[f32], sums: &mut [f32], stride: usize) {
    let count = rows.len() / stride;
    let mut column = 0;
    while column < stride {
        let mut first = 0;
        while first < column + S::LANES {
            // SAFETY: `column + LANES <= stride`, and `first + TILE <= stride` because both are
            // multiples of `TILE` that begin below it.
            unsafe {
                let mut tile = [S::splat(0.0); TILE];
                let mut row = rows.as_ptr();
                for _ in 0..count {
                    let right = S::load(row.add(column));
                    for (index, sum) in tile.iter_mut().enumerate() {
                        *sum = S::mul_add(S::splat(*row.add(first + index)), right, *sum);
                    }
                    row = row.wrapping_add(stride);
                }
                for (index, sum) in tile.into_iter().enumerate() {
                    S::store(sums.as_mut_ptr().add((first + index) * stride + column), sum);
                }
            }
            first += TILE;
        }
        column += S::LANES;
    }
}

/// `out += sum over the rows of (constant + slope * row·vector) row`.
#[inline(always)]
pub(crate) unsafe fn add_weighted<S: Simd>(
    rows: &[f32],
    vector: &[f32],
    constants: &[f32],
    slopes: &[f32],
    out: &mut [f32],
) {
    let count = slopes.len();
    let mut row = 0;
    // SAFETY: there are `count` rows, constants and slopes.
    unsafe {
        while row + TILE <= count {
            add_rows::<S, TILE>(rows, vector, constants, slopes, out, row);
            row += TILE;
        }
        while row < count {
            add_rows::<S, 1>(rows, vector, constants, slopes, out, row);
            row += 1;
        }
    }
}

#[inline(always)]
unsafe fn add_rows<S: Simd, const N: usize>(
    rows: &[f32],
    vector: &[f32],
    constants: &[f32],
    slopes: &[f32],
    out: &mut [f32],
    first: usize,
) {
    let stride = vector.len();
    // SAFETY: rows `first` to `first + N` exist, and every register lies within one row.
    unsafe {
        let start = rows.as_ptr().add(first * stride);
        let mut sums = [S::splat(0.0); N];
        let mut column = 0;
        while column < stride {
            let part = S::load(vector.as_ptr().add(column));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(part, S::load(start.add(row * stride + column)), *sum);
            }
            column += S::LANES;
        }
        let mut weights = [S::splat(0.0); N];
        for (row, weight) in weights.iter_mut().enumerate() {
            let (constant, slope) = (*constants.as_ptr().add(first + row), *slopes.as_ptr().add(first + row));
            *weight = S::splat(constant + slope * S::sum(sums[row]));
        }
        let mut column = 0;
        while column < stride {
            let at = out.as_mut_ptr().add(column);
            let mut sum = S::load(at);
            for (row, weight) in weights.iter().enumerate() {
                sum = S::mul_add(*weight, S::load(start.add(row * stride + column)), sum);
            }
            S::store(at, sum);
            column += S::LANES;
        }
    }
}
