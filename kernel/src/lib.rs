//! The inner loops of learning and scoring, for the widest vector instructions of the processor:
//! steps and scores in `f32`, the solve in `f64`.
//!
//! One instruction set is chosen on first use and kept: equal inputs give equal bits for the life
//! of the process and on every processor with the same choice. Between instruction sets, results
//! differ by rounding only: for a sum of `dim` products by less than `dim * 2^-23` times the sum of
//! their magnitudes.
//!
//! The only crate of the workspace with `unsafe` code: for instructions that not every processor
//! has, and for unchecked loads in loops that they fill. `celeris-bench update` measures its
//! benefit.

pub mod codes;
mod routines;
mod simd;
mod solving;
#[cfg(test)]
mod tests;
mod training;

use std::hint::black_box;
use std::sync::OnceLock;

/// Increased when equal inputs give different bits than before, so that stored sums are not
/// extended by another revision.
pub const REVISION: u8 = 2;

/// Number of rows that [`dots`] and [`quadratics`] process at once: enough independent sums to keep
/// a vector unit busy.
pub const ROWS: usize = 8;

/// An instruction set with its routines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl InstructionSet {
    /// Those that this processor supports, best last.
    fn available() -> Vec<Self> {
        let mut available = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                available.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") && available.contains(&Self::Avx2) {
                available.push(Self::Avx512);
            }
        }
        available
    }

    /// The instruction set of this process.
    fn chosen() -> Self {
        static CHOSEN: OnceLock<InstructionSet> = OnceLock::new();
        *CHOSEN.get_or_init(|| Self::available().last().copied().unwrap_or(Self::Portable))
    }
}

impl InstructionSet {
    /// The instruction set for steps over matrices of this dimension.
    ///
    /// If rows are not a multiple of 64-byte registers, nearly every register access crosses a
    /// cache line and costs two accesses; with 32-byte registers only half do. Measured at
    /// dimension 50 on a Xeon: 138 ns with AVX2, 150 ns with AVX-512.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "one set serves all dimensions there"))]
    fn for_rows(self, dim: usize) -> Self {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if !dim.is_multiple_of(16) => Self::Avx2,
            other => other,
        }
    }
}

/// Compiles a routine once per instruction set and defines a method that dispatches to the right
/// one.
macro_rules! per_instruction_set {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $output:ty, $routine:ident $(, $rows:literal)?) => {
        per_instruction_set!($(#[$doc])* $name($($argument: $type),*) -> $output, routines $routine $(, $rows)?);
    };
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $output:ty,
        $module:ident $routine:ident $(, $rows:literal)?) => {
        $(#[$doc])*
        #[inline]
        fn $name(self, $($argument: $type),*) -> $output {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($argument: $type),*) -> $output {
                // SAFETY: this function enables the target features of the routine; shapes by the
                // contract of the method.
                unsafe { $module::$routine::<simd::Avx2 $(, $rows)?>($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            fn avx512($($argument: $type),*) -> $output {
                // SAFETY: as above.
                unsafe { $module::$routine::<simd::Avx512 $(, $rows)?>($($argument),*) }
            }
            // SAFETY: the portable routine needs no target features, and a value of another
            // instruction set exists only if the processor has it.
            unsafe {
                match self {
                    Self::Portable => $module::$routine::<simd::Portable $(, $rows)?>($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx2 => avx2($($argument),*),
                    #[cfg(target_arch = "x86_64")]
                    Self::Avx512 => avx512($($argument),*),
                }
            }
        }
    };
}

impl InstructionSet {
    per_instruction_set!(multiply(matrix: &[f32], weights: &[f32], vector: &[f32], out: &mut [f32]) -> [f32; 2],
        multiply);
    per_instruction_set!(reduce_and_multiply(matrix: &mut [f32], reduction: &[f32], weights: &[f32], vector: &[f32],
        out: &mut [f32]) -> [f32; 2], reduce_and_multiply);
    per_instruction_set!(dot(left: &[f32], right: &[f32]) -> f32, dot);
    per_instruction_set!(dots(weights: &[f32], rows: &[&[f32]; ROWS]) -> [f32; ROWS], dots, 8);
    per_instruction_set!(score_rows(weights: &[f32], offsets: &[f32], features: &[f32], out: &mut [f32]) -> (),
        score_rows);
    per_instruction_set!(quadratic(matrix: &[f32], rows: &[&[f32]; 1], dim: usize) -> [f32; 1], quadratics, 1);
    per_instruction_set!(quadratics(matrix: &[f32], rows: &[&[f32]; ROWS], dim: usize) -> [f32; ROWS], quadratics, 8);
    per_instruction_set!(dot_double(left: &[f64], right: &[f32]) -> f64, solving dot);
    per_instruction_set!(invert(matrix: &mut [f64], dim: usize) -> bool, solving invert);
    per_instruction_set!(add_outers(triangle: &mut [f64], rows: &[f64], scales: &[f64], dim: usize) -> (),
        solving add_outers);
    per_instruction_set!(pass(entries: &mut [f32], value: f32) -> (), pass);
    per_instruction_set!(gram(rows: &[f32], sums: &mut [f32], stride: usize) -> (), training gram);
    per_instruction_set!(add_weighted(rows: &[f32], vector: &[f32], constants: &[f32], slopes: &[f32], out: &mut [f32])
        -> (), training add_weighted);
}

/// The instruction set in use: `avx512`, `avx2` or `portable`.
#[must_use]
pub fn name() -> &'static str {
    match InstructionSet::chosen() {
        InstructionSet::Portable => "portable",
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => "avx2",
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => "avx512",
    }
}

/// Prefetches these entries into the cache. Has no other effect.
#[inline]
pub fn prefetch<T>(entries: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(entries)).step_by(CACHE_LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address lies within the slice, and a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(entries.as_ptr().cast::<i8>().add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entries;
}

#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

/// Reads and writes every entry with one addition in between, with the instruction set in use: a
/// lower bound of the cost of any update of a whole matrix, and the baseline of `celeris-bench
/// update`. The entries keep their values.
pub fn pass(entries: &mut [f32]) {
    // A zero that is opaque to the compiler, which would otherwise remove the loop.
    InstructionSet::chosen().pass(entries, black_box(0.0));
}

/// Padded rows for [`gram`], [`add_weighted`] and sums of outer products have a multiple of this
/// length: whole registers of every instruction set.
pub const ROW_MULTIPLE: usize = 16;

/// `dim` rounded up to a multiple of [`ROW_MULTIPLE`].
#[must_use]
pub fn padded(dim: usize) -> usize {
    dim.next_multiple_of(ROW_MULTIPLE)
}

/// `sums = rows^T rows` for row-major `rows x stride`, in `f32`: `sums` is row-major `stride x
/// stride`, and only its entries on and above the diagonal are valid.
///
/// # Panics
/// If `stride` is not a positive multiple of [`ROW_MULTIPLE`], or the shapes do not match.
pub fn gram(rows: &[f32], sums: &mut [f32], stride: usize) {
    assert!(stride > 0 && stride.is_multiple_of(ROW_MULTIPLE), "rows are padded to whole registers");
    assert!(rows.len().is_multiple_of(stride) && sums.len() == stride * stride, "whole rows, and a matrix of theirs");
    InstructionSet::chosen().gram(rows, sums, stride);
}

/// `out += sum over k of (constants[k] + slopes[k] * rows[k]·vector) rows[k]`, for row-major rows
/// as long as the vector: one product of a weighted `rows^T rows` with the vector, without forming
/// the matrix.
///
/// # Panics
/// As [`gram`].
pub fn add_weighted(rows: &[f32], vector: &[f32], constants: &[f32], slopes: &[f32], out: &mut [f32]) {
    let stride = vector.len();
    assert!(stride > 0 && stride.is_multiple_of(ROW_MULTIPLE), "rows are padded to whole registers");
    assert!(
        rows.len() == slopes.len() * stride && constants.len() == slopes.len(),
        "a constant and a slope for each row"
    );
    assert!(out.len() == stride, "vectors of equal length");
    InstructionSet::chosen().add_weighted(rows, vector, constants, slopes, out);
}

/// `out = matrix * vector` for a symmetric row-major `dim x dim` matrix; returns `vector·out` and
/// `weights·vector`.
///
/// # Panics
/// If the shapes do not match.
pub fn multiply(matrix: &[f32], weights: &[f32], vector: &[f32], out: &mut [f32]) -> [f32; 2] {
    let dim = vector.len();
    assert!(matrix.len() == dim * dim && weights.len() == dim && out.len() == dim, "shapes of one user's state");
    InstructionSet::chosen().for_rows(dim).multiply(matrix, weights, vector, out)
}

/// `matrix -= reduction reduction^T`, which keeps it exactly symmetric, followed by [`multiply`]
/// with the result, in one pass over the matrix.
pub fn reduce_and_multiply(
    matrix: &mut [f32],
    reduction: &[f32],
    weights: &[f32],
    vector: &[f32],
    out: &mut [f32],
) -> [f32; 2] {
    let dim = vector.len();
    let shapes = [reduction.len(), weights.len(), out.len()];
    assert!(matrix.len() == dim * dim && shapes == [dim; 3], "shapes of one user's state");
    InstructionSet::chosen().for_rows(dim).reduce_and_multiply(matrix, reduction, weights, vector, out)
}

/// `left·right`, with the same bits as a score by a user's state.
///
/// # Panics
/// If the lengths differ.
#[must_use]
pub fn dot(left: &[f32], right: &[f32]) -> f32 {
    assert!(left.len() == right.len(), "vectors of equal length");
    InstructionSet::chosen().dot(left, right)
}

/// `weights·row` of each row, with the same bits as [`dot`].
pub fn dots(weights: &[f32], rows: &[&[f32]; ROWS]) -> [f32; ROWS] {
    assert!(rows.iter().all(|row| row.len() == weights.len()), "vectors of equal length");
    InstructionSet::chosen().dots(weights, rows)
}

/// `offset + weights·row` of every row of a row-major table, with the same bits as [`dot`].
///
/// # Panics
/// If the shapes do not match.
pub fn score_rows(weights: &[f32], offsets: &[f32], features: &[f32], out: &mut [f32]) {
    assert!(out.len() == offsets.len(), "a score for each offset");
    assert!(features.len() == offsets.len() * weights.len(), "a row as long as the weights for each offset");
    InstructionSet::chosen().score_rows(weights, offsets, features, out);
}

/// `row^T matrix row` for a symmetric row-major matrix.
pub fn quadratic(matrix: &[f32], row: &[f32]) -> f32 {
    assert!(matrix.len() == row.len() * row.len(), "a square matrix");
    InstructionSet::chosen().quadratic(matrix, &[row], row.len())[0]
}

/// `row^T matrix row` of each row, with the same bits as [`quadratic`].
pub fn quadratics(matrix: &[f32], rows: &[&[f32]; ROWS]) -> [f32; ROWS] {
    let dim = rows[0].len();
    assert!(matrix.len() == dim * dim && rows.iter().all(|row| row.len() == dim), "a square matrix");
    InstructionSet::chosen().quadratics(matrix, rows, dim)
}

/// `left·right` in double precision.
pub fn dot_double(left: &[f64], right: &[f32]) -> f64 {
    assert!(left.len() == right.len(), "vectors of equal length");
    InstructionSet::chosen().dot_double(left, right)
}

/// Replaces a symmetric positive definite row-major `dim x dim` matrix by its exactly symmetric
/// inverse. Returns `false` if it is not positive definite; its contents are then unspecified.
///
/// # Panics
/// If the matrix has another size.
#[must_use]
pub fn invert(matrix: &mut [f64], dim: usize) -> bool {
    assert!(matrix.len() == dim * dim, "a square matrix");
    InstructionSet::chosen().invert(matrix, dim)
}

/// Adds `scale * row row^T` of each row, in the order of the rows, to a lower triangle stored row
/// by row. `rows` is row-major, each of `dim` entries and [`padded`].
pub fn add_outers(triangle: &mut [f64], rows: &[f64], scales: &[f64], dim: usize) {
    assert!(rows.len() == padded(dim) * scales.len(), "padded rows");
    assert!(triangle.len() == dim * (dim + 1) / 2, "a triangle with its diagonal");
    InstructionSet::chosen().add_outers(triangle, rows, scales, dim);
}
