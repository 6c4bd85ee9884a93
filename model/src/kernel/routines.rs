//! The routines, once for all instruction sets: each is inlined into one function per instruction set.
//!
//! Safety, for every routine: the processor has the instruction set of `S`. Shapes are asserted by the callers in
//! `mod.rs`: matrices are row-major `dim x dim`, vectors of length `dim`.

use super::simd::Simd;

/// Registers of one column block of [`multiply`]: enough independent sums to hide the latency of an addition.
const BLOCK: usize = 8;

/// `out = matrix * vector` for a symmetric matrix, as a sum of its rows: columns are taken a block at a time, whose sums
/// stay in registers while the rows pass by. Returns `vector·out` and `weights·vector`.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(matrix: &[f32], weights: &[f32], vector: &[f32], out: &mut [f32]) -> [f32; 2] {
    let dim = vector.len();
    // SAFETY: every block ends at or before `dim`.
    unsafe {
        let mut column = 0;
        while column + BLOCK * S::LANES <= dim {
            multiply_block::<S, BLOCK>(matrix, vector, out, column);
            column += BLOCK * S::LANES;
        }
        if column + 4 * S::LANES <= dim {
            multiply_block::<S, 4>(matrix, vector, out, column);
            column += 4 * S::LANES;
        }
        let rest = dim - column;
        match rest / S::LANES {
            0 => multiply_last::<S, 0>(matrix, vector, out, column),
            1 => multiply_last::<S, 1>(matrix, vector, out, column),
            2 => multiply_last::<S, 2>(matrix, vector, out, column),
            _ => multiply_last::<S, 3>(matrix, vector, out, column),
        }
        [dot::<S>(vector, out), dot::<S>(weights, vector)]
    }
}

/// `N` registers of columns from `column` on.
#[inline(always)]
unsafe fn multiply_block<S: Simd, const N: usize>(matrix: &[f32], vector: &[f32], out: &mut [f32], column: usize) {
    let dim = vector.len();
    // SAFETY: `column + N * LANES <= dim`, so that all of it lies within one row.
    unsafe {
        let mut sums = [S::splat(0.0); N];
        let mut row = matrix.as_ptr().add(column);
        for scale in vector {
            let scale = S::splat(*scale);
            for (block, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(scale, S::load(row.add(block * S::LANES)), *sum);
            }
            row = row.wrapping_add(dim);
        }
        for (block, sum) in sums.into_iter().enumerate() {
            S::store(out.as_mut_ptr().add(column + block * S::LANES), sum);
        }
    }
}

/// The last columns: `N` registers in full, and a last one in part.
#[inline(always)]
unsafe fn multiply_last<S: Simd, const N: usize>(matrix: &[f32], vector: &[f32], out: &mut [f32], column: usize) {
    let dim = vector.len();
    let rest = dim - column - N * S::LANES;
    if rest == 0 {
        // SAFETY: the block ends at `dim`.
        return unsafe { multiply_block::<S, N>(matrix, vector, out, column) };
    }
    // SAFETY: as in `multiply_block`, with `rest < LANES` values after the full registers.
    unsafe {
        let mut sums = [S::splat(0.0); N];
        let mut last = S::splat(0.0);
        let mut row = matrix.as_ptr().add(column);
        for scale in vector {
            let scale = S::splat(*scale);
            for (block, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(scale, S::load(row.add(block * S::LANES)), *sum);
            }
            last = S::mul_add(scale, S::load_first(row.add(N * S::LANES), rest), last);
            row = row.wrapping_add(dim);
        }
        let out = out.as_mut_ptr().add(column);
        for (block, sum) in sums.into_iter().enumerate() {
            S::store(out.add(block * S::LANES), sum);
        }
        S::store_first(out.add(N * S::LANES), rest, last);
    }
}

/// `weights += step * direction` and `matrix -= gain * direction direction^T`; leaves `direction` scaled.
///
/// The direction is scaled by `sqrt(gain)` first, so that an entry is one product of two of its values: the matrix stays
/// exactly symmetric.
#[inline(always)]
pub(super) unsafe fn advance<S: Simd>(
    matrix: &mut [f32],
    weights: &mut [f32],
    direction: &mut [f32],
    step: f32,
    gain: f32,
) {
    let dim = direction.len();
    let full = dim - dim % S::LANES;
    let rest = dim - full;
    let root = gain.sqrt();
    for (weight, entry) in weights.iter_mut().zip(direction.iter_mut()) {
        *weight += step * *entry;
        *entry *= root;
    }
    // SAFETY: rows hold `full` values and `rest < LANES` more.
    unsafe {
        let scaled = direction.as_ptr();
        let last = S::load_first(scaled.add(full), rest);
        for (row, scale) in matrix.chunks_exact_mut(dim).zip(direction.iter()) {
            let scale = S::splat(*scale);
            let row = row.as_mut_ptr();
            let mut column = 0;
            while column < full {
                let entry = S::mul_sub(scale, S::load(scaled.add(column)), S::load(row.add(column)));
                S::store(row.add(column), entry);
                column += S::LANES;
            }
            if rest > 0 {
                let entry = S::mul_sub(scale, last, S::load_first(row.add(full), rest));
                S::store_first(row.add(full), rest, entry);
            }
        }
    }
}

/// `left·right`
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(left: &[f32], right: &[f32]) -> f32 {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { dots::<S, 1>(left, &[right])[0] }
}

/// `weights·row` of `N` rows. Each row's sum is taken in the same order whatever `N` is.
#[inline(always)]
pub(super) unsafe fn dots<S: Simd, const N: usize>(weights: &[f32], rows: &[&[f32]; N]) -> [f32; N] {
    let dim = weights.len();
    let full = dim - dim % S::LANES;
    // SAFETY: all rows have `dim` values.
    unsafe {
        let mut sums = [S::splat(0.0); N];
        let mut column = 0;
        while column < full {
            let weight = S::load(weights.as_ptr().add(column));
            for (sum, row) in sums.iter_mut().zip(rows) {
                *sum = S::mul_add(weight, S::load(row.as_ptr().add(column)), *sum);
            }
            column += S::LANES;
        }
        if full < dim {
            let weight = S::load_first(weights.as_ptr().add(full), dim - full);
            for (sum, row) in sums.iter_mut().zip(rows) {
                *sum = S::mul_add(weight, S::load_first(row.as_ptr().add(full), dim - full), *sum);
            }
        }
        sums.map(|sum| S::sum(sum))
    }
}

/// `row^T matrix row` of `N` rows for a symmetric matrix, of which only what lies on and above the diagonal blocks is
/// read: the rest would be the same again. Each row's sum is taken in the same order whatever `N` is.
#[inline(always)]
pub(super) unsafe fn quadratics<S: Simd, const N: usize>(matrix: &[f32], rows: &[&[f32]; N], dim: usize) -> [f32; N] {
    // SAFETY: all rows have `dim` values, and the columns of a block are clipped to `dim`.
    unsafe {
        let mut totals = [S::splat(0.0); N];
        let mut column = 0;
        while column < dim {
            let width = S::LANES.min(dim - column);
            let load = |from: *const f32| {
                if width == S::LANES { S::load(from) } else { S::load_first(from, width) }
            };
            let mut sums = [S::splat(0.0); N];
            let mut entries = matrix.as_ptr().add(column);
            for index in 0..column {
                let entry = load(entries);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = S::mul_add(S::splat(*row.as_ptr().add(index)), entry, *sum);
                }
                entries = entries.wrapping_add(dim);
            }
            for sum in &mut sums {
                *sum = S::add(*sum, *sum);
            }
            for index in column..column + width {
                let entry = load(entries);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = S::mul_add(S::splat(*row.as_ptr().add(index)), entry, *sum);
                }
                entries = entries.wrapping_add(dim);
            }
            for ((total, sum), row) in totals.iter_mut().zip(sums).zip(rows) {
                *total = S::mul_add(sum, load(row.as_ptr().add(column)), *total);
            }
            column += S::LANES;
        }
        totals.map(|total| S::sum(total))
    }
}

/// Adds `value` to every entry: one read and one write each.
#[inline(always)]
pub(super) unsafe fn pass<S: Simd>(entries: &mut [f32], value: f32) {
    let full = entries.len() - entries.len() % S::LANES;
    // SAFETY: `full` is a multiple of `LANES` within the slice.
    unsafe {
        let added = S::splat(value);
        let mut index = 0;
        while index < full {
            let at = entries.as_mut_ptr().add(index);
            S::store(at, S::add(S::load(at), added));
            index += S::LANES;
        }
    }
    for entry in &mut entries[full..] {
        *entry += value;
    }
}
