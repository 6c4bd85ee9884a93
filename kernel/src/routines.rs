//! The routines, generic over the instruction set: each is inlined into one function per
//! instruction set.
//!
//! Safety, for every routine: the processor has the instruction set of `S`. Shapes are asserted by
//! the callers in `mod.rs`: matrices are row-major `dim x dim`, vectors of length `dim`.

use super::simd::Simd;

/// The most registers per column block, in addition to one that overlaps the last of them: enough
/// independent sums to hide the latency of an addition.
const BLOCK: usize = 8;

/// Calls `$routine::<S, N, PART>(…, column)` for blocks of `N` registers of columns, from left to
/// right over `dim` columns, with `dim >= S::LANES`. If `PART` is true, the block has one more
/// register for the last `S::LANES` columns, which overlaps its other registers: instructions that
/// write only part of a register are slow on several processors.
macro_rules! for_column_blocks {
    ($dim:expr, $routine:ident($($argument:expr),*)) => {
        let (full, part) = ($dim / S::LANES, $dim % S::LANES > 0);
        let mut done = 0;
        while full - done > BLOCK {
            $routine::<S, BLOCK, false>($($argument,)* done * S::LANES);
            done += BLOCK;
        }
        let column = done * S::LANES;
        match (full - done, part) {
            (1, false) => $routine::<S, 1, false>($($argument,)* column),
            (1, true) => $routine::<S, 1, true>($($argument,)* column),
            (2, false) => $routine::<S, 2, false>($($argument,)* column),
            (2, true) => $routine::<S, 2, true>($($argument,)* column),
            (3, false) => $routine::<S, 3, false>($($argument,)* column),
            (3, true) => $routine::<S, 3, true>($($argument,)* column),
            (4, false) => $routine::<S, 4, false>($($argument,)* column),
            (4, true) => $routine::<S, 4, true>($($argument,)* column),
            (5, false) => $routine::<S, 5, false>($($argument,)* column),
            (5, true) => $routine::<S, 5, true>($($argument,)* column),
            (6, false) => $routine::<S, 6, false>($($argument,)* column),
            (6, true) => $routine::<S, 6, true>($($argument,)* column),
            (7, false) => $routine::<S, 7, false>($($argument,)* column),
            (7, true) => $routine::<S, 7, true>($($argument,)* column),
            (_, false) => $routine::<S, BLOCK, false>($($argument,)* column),
            (_, true) => $routine::<S, BLOCK, true>($($argument,)* column),
        }
    };
}

/// `out = matrix * vector` for a symmetric matrix, as a sum of its rows: columns are processed in
/// blocks whose sums stay in registers for all rows. Returns `vector·out` and `weights·vector`.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd>(matrix: &[f32], weights: &[f32], vector: &[f32], out: &mut [f32]) -> [f32; 2] {
    let dim = vector.len();
    // SAFETY: blocks lie within `dim` columns; the narrow path reads and writes `dim` values.
    unsafe {
        let response = dot::<S>(weights, vector);
        let mut spread = S::splat(0.0);
        if dim < S::LANES {
            let mut sum = S::splat(0.0);
            for (row, scale) in matrix.chunks_exact(dim).zip(vector) {
                sum = S::mul_add(S::splat(*scale), S::load_first(row.as_ptr(), dim), sum);
            }
            S::store_first(out.as_mut_ptr(), dim, sum);
            spread = S::mul_add(sum, S::load_first(vector.as_ptr(), dim), spread);
        } else {
            for_column_blocks!(dim, multiply_block(matrix, vector, out, &mut spread));
        }
        [S::sum(spread), response]
    }
}

#[inline(always)]
unsafe fn multiply_block<S: Simd, const N: usize, const PART: bool>(
    matrix: &[f32],
    vector: &[f32],
    out: &mut [f32],
    spread: &mut S::Vector,
    column: usize,
) {
    let dim = vector.len();
    let last = dim - S::LANES;
    // SAFETY: `column + N * LANES <= dim` and `LANES <= dim`, so that every register lies within
    // one row.
    unsafe {
        let mut sums = [S::splat(0.0); N];
        let mut part = S::splat(0.0);
        let mut row = matrix.as_ptr();
        for scale in vector {
            let scale = S::splat(*scale);
            for (block, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(scale, S::load(row.add(column + block * S::LANES)), *sum);
            }
            if PART {
                part = S::mul_add(scale, S::load(row.add(last)), part);
            }
            row = row.wrapping_add(dim);
        }
        finish_block::<S, N>(sums, PART.then_some(part), vector, out, spread, column);
    }
}

/// Writes the sums of a block, and adds their products with the vector to `spread`. The sums are
/// taken from registers: a load from `out` that spans several recent stores cannot be forwarded and
/// would wait for all writes of the matrix.
#[inline(always)]
unsafe fn finish_block<S: Simd, const N: usize>(
    sums: [S::Vector; N],
    part: Option<S::Vector>,
    vector: &[f32],
    out: &mut [f32],
    spread: &mut S::Vector,
    column: usize,
) {
    let dim = vector.len();
    // SAFETY: as in the block.
    unsafe {
        for (block, sum) in sums.into_iter().enumerate() {
            let at = column + block * S::LANES;
            *spread = S::mul_add(sum, S::load(vector.as_ptr().add(at)), *spread);
            S::store(out.as_mut_ptr().add(at), sum);
        }
        if let Some(part) = part {
            // Its first columns overlap the previous register and have been counted.
            let (last, counted) = (dim - S::LANES, S::LANES - dim % S::LANES);
            *spread = S::mul_add(part, S::load_after(vector.as_ptr().add(last), counted), *spread);
            S::store(out.as_mut_ptr().add(last), part);
        }
    }
}

/// `matrix -= reduction reduction^T`, and [`multiply`] with the result, in one pass over the rows.
///
/// The value subtracted from an entry is one product of two numbers, the same for its mirror image
/// across the diagonal, so the matrix stays exactly symmetric.
#[inline(always)]
pub(crate) unsafe fn reduce_and_multiply<S: Simd>(
    matrix: &mut [f32],
    reduction: &[f32],
    weights: &[f32],
    vector: &[f32],
    out: &mut [f32],
) -> [f32; 2] {
    let dim = vector.len();
    // SAFETY: blocks lie within `dim` columns; the narrow path reads and writes `dim` values.
    unsafe {
        let response = dot::<S>(weights, vector);
        let mut spread = S::splat(0.0);
        if dim < S::LANES {
            let all = S::load_first(reduction.as_ptr(), dim);
            let mut sum = S::splat(0.0);
            for ((row, scale), factor) in matrix.chunks_exact_mut(dim).zip(reduction).zip(vector) {
                let entries = S::mul_sub(S::splat(*scale), all, S::load_first(row.as_ptr(), dim));
                S::store_first(row.as_mut_ptr(), dim, entries);
                sum = S::mul_add(S::splat(*factor), entries, sum);
            }
            S::store_first(out.as_mut_ptr(), dim, sum);
            spread = S::mul_add(sum, S::load_first(vector.as_ptr(), dim), spread);
        } else {
            for_column_blocks!(dim, reduce_and_multiply_block(matrix, reduction, vector, out, &mut spread));
        }
        [S::sum(spread), response]
    }
}

#[inline(always)]
unsafe fn reduce_and_multiply_block<S: Simd, const N: usize, const PART: bool>(
    matrix: &mut [f32],
    reduction: &[f32],
    vector: &[f32],
    out: &mut [f32],
    spread: &mut S::Vector,
    column: usize,
) {
    let dim = vector.len();
    let last = dim - S::LANES;
    // SAFETY: `column + N * LANES <= dim` and `LANES <= dim`, so that every register lies within
    // one row.
    unsafe {
        let others: [S::Vector; N] =
            std::array::from_fn(|block| S::load(reduction.as_ptr().add(column + block * S::LANES)));
        let other_part = S::load(reduction.as_ptr().add(last));
        let mut sums = [S::splat(0.0); N];
        let mut part = S::splat(0.0);
        let mut row = matrix.as_mut_ptr();
        for (scale, factor) in reduction.iter().zip(vector) {
            let (scale, factor) = (S::splat(*scale), S::splat(*factor));
            // Read before the columns it overlaps are written; both then write equal values there.
            let tail = if PART { S::mul_sub(scale, other_part, S::load(row.add(last))) } else { other_part };
            for (block, (other, sum)) in others.iter().zip(&mut sums).enumerate() {
                let at = row.add(column + block * S::LANES);
                let entries = S::mul_sub(scale, *other, S::load(at));
                S::store(at, entries);
                *sum = S::mul_add(factor, entries, *sum);
            }
            if PART {
                S::store(row.add(last), tail);
                part = S::mul_add(factor, tail, part);
            }
            row = row.wrapping_add(dim);
        }
        finish_block::<S, N>(sums, PART.then_some(part), vector, out, spread, column);
    }
}

/// `left·right`
#[inline(always)]
pub(crate) unsafe fn dot<S: Simd>(left: &[f32], right: &[f32]) -> f32 {
    // SAFETY: the caller guarantees the instruction set.
    unsafe { dots::<S, 1>(left, &[right])[0] }
}

/// `weights·row` of `N` rows. The order of additions in each row's sum does not depend on `N`.
#[inline(always)]
pub(crate) unsafe fn dots<S: Simd, const N: usize>(weights: &[f32], rows: &[&[f32]; N]) -> [f32; N] {
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

/// `out = offset + weights·row` for every row of a table, one row at a time: memory is then read
/// strictly forward, which suits the hardware prefetcher. Over a million rows, eight rows at a time
/// take a third longer, because accesses alternate between distant lines; software prefetching
/// takes as long, because it uses the buffers for outstanding lines.
#[inline(always)]
pub(crate) unsafe fn score_rows<S: Simd>(weights: &[f32], offsets: &[f32], features: &[f32], out: &mut [f32]) {
    let rows = features.chunks_exact(weights.len());
    for ((score, offset), row) in out.iter_mut().zip(offsets).zip(rows) {
        // SAFETY: the caller guarantees the instruction set; all rows are as long as the weights.
        *score = *offset + unsafe { dot::<S>(weights, row) };
    }
}

/// `row^T matrix row` of `N` rows for a symmetric matrix. Reads only the blocks on and above the
/// diagonal; the others are mirror images. The order of additions in each row's sum does not depend
/// on `N`.
#[inline(always)]
pub(crate) unsafe fn quadratics<S: Simd, const N: usize>(matrix: &[f32], rows: &[&[f32]; N], dim: usize) -> [f32; N] {
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
pub(crate) unsafe fn pass<S: Simd>(entries: &mut [f32], value: f32) {
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
