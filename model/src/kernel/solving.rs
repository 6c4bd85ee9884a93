//! The routines of the solve, in `f64`, once for all instruction sets: plain loops over whole lines, which the compiler
//! puts into whatever registers the instruction set has.
//!
//! Measured at d = 32 to 128 on an AMD EPYC: faer 0.24 takes 1.6 to 2.2 times as long as [`invert`], nalgebra 0.35 6 to 9.
//! Of [`add_outers`], faer takes 0.65 to 1.2 of the time, but its bits depend on how many rows come at a time, and those of
//! a state resumed from a snapshot would differ from those of a replay.
//!
//! Safety, for every routine: the processor has the instruction set of `S`. Shapes are asserted by the callers in `mod.rs`.

use super::simd::Simd;
use super::{ROW_MULTIPLE, padded};

/// Columns that are taken at a time: a cache line, and the widest register.
const LINE: usize = 8;

/// Pivots that [`invert`] takes at a time, and rows of one of its tiles: an entry is read and written once for all of
/// them.
const PIVOTS: usize = 4;

/// Rows of one tile of [`add_outers`]: enough independent sums to hide the latency of an addition, few enough for
/// registers.
const TILE_ROWS: usize = 4;
/// Columns of such a tile.
const TILE_COLUMNS: usize = ROW_MULTIPLE;

/// `sum + a * b`, rounded once where the instruction set can.
#[inline(always)]
fn fused<S: Simd>(a: f64, b: f64, sum: f64) -> f64 {
    // Where the instruction is missing, `mul_add` is a call of a slow function.
    if S::FUSES { a.mul_add(b, sum) } else { sum + a * b }
}

/// `left·right`
#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(left: &[f64], right: &[f32]) -> f64 {
    let mut lanes = [0.0; LINE];
    let ((lefts, left), (rights, right)) = (left.as_chunks::<LINE>(), right.as_chunks::<LINE>());
    for (left, right) in lefts.iter().zip(rights) {
        for lane in 0..LINE {
            lanes[lane] = fused::<S>(left[lane], f64::from(right[lane]), lanes[lane]);
        }
    }
    let mut rest = 0.0;
    for (left, right) in left.iter().zip(right) {
        rest = fused::<S>(*left, f64::from(*right), rest);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    rest + ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// A line of one row, where the processor reads it at once.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([f64; LINE]);

/// Line after line of [`PIVOTS`] rows.
type Panel = Vec<[Line; PIVOTS]>;

/// Replaces a symmetric positive definite `dim x dim` matrix by its inverse, exactly symmetric again; `false` where a
/// pivot shows that it is none. The caller vouches for its shape.
///
/// Gauss-Jordan elimination as `dim` rank-one steps (the sweep operator of Beaton 1964): for a positive definite matrix it
/// needs no pivoting and is as accurate as Cholesky's factor (Higham, "Accuracy and Stability of Numerical Algorithms",
/// 2002, section 14.4). The steps of [`PIVOTS`] rows are taken on these rows first, and then on all others together.
#[inline(always)]
pub(super) unsafe fn invert<S: Simd>(matrix: &mut [f64], dim: usize) -> bool {
    let lines = dim.div_ceil(LINE);
    // Row-major; of each row the lines up to the one that its diagonal entry is in are kept true. Behind the end there are
    // ones on the diagonal, whose steps change nothing.
    let mut work = vec![Line([0.0; LINE]); lines * LINE * lines];
    for (row, work) in work.chunks_exact_mut(lines).enumerate() {
        if row < dim {
            let entries = matrix[row * dim..][..dim.min((row / LINE + 1) * LINE)].chunks(LINE);
            for (line, entries) in work.iter_mut().zip(entries) {
                line.0[..entries.len()].copy_from_slice(entries);
            }
        } else {
            work[row / LINE].0[row % LINE] = 1.0;
        }
    }
    let mut panel = vec![[Line([0.0; LINE]); PIVOTS]; lines];
    let mut scaled = panel.clone();
    for first in (0..dim).step_by(PIVOTS) {
        read_panel(&work, &mut panel, first);
        if !sweep_panel::<S>(&mut panel, &mut scaled, first) {
            return false;
        }
        for (tile, rows) in work.chunks_exact_mut(PIVOTS * lines).enumerate() {
            subtract::<S>(rows, &scaled, tile * PIVOTS);
        }
        write_panel(&mut work, &panel, first);
    }
    for (tile, rows) in matrix.chunks_mut(PIVOTS * dim).enumerate() {
        read_panel(&work, &mut panel, tile * PIVOTS);
        for (row, entries) in rows.chunks_exact_mut(dim).enumerate() {
            for (entries, swept) in entries.chunks_mut(LINE).zip(&panel) {
                for (entry, swept) in entries.iter_mut().zip(swept[row].0) {
                    *entry = -swept;
                }
            }
        }
    }
    true
}

/// The rows from `first` on, whole: what is not kept of them is read where the rows are columns.
#[inline(always)]
fn read_panel(work: &[Line], panel: &mut Panel, first: usize) {
    let (lines, diagonal, start) = (panel.len(), first / LINE, first % LINE);
    for (line, panel) in panel.iter_mut().enumerate() {
        if line <= diagonal {
            for (row, entries) in panel.iter_mut().enumerate() {
                *entries = work[(first + row) * lines + line];
            }
        } else {
            for (lane, work) in work[line * LINE * lines..].chunks_exact(lines).take(LINE).enumerate() {
                for (row, entries) in panel.iter_mut().enumerate() {
                    entries.0[lane] = work[diagonal].0[start + row];
                }
            }
        }
    }
}

/// Takes the steps of the rows of `panel`, which are those from `first` on, on these rows. Step by step, `scaled` is the
/// row over the root of its pivot, as it was then: what the step subtracts is the product of two of its entries.
#[inline(always)]
fn sweep_panel<S: Simd>(panel: &mut Panel, scaled: &mut Panel, first: usize) -> bool {
    let (diagonal, start) = (first / LINE, first % LINE);
    for step in 0..PIVOTS {
        let pivot = panel[diagonal][step].0[start + step];
        if !(pivot.is_finite() && pivot > 0.0) {
            return false;
        }
        let root = pivot.sqrt().recip();
        let scales: [f64; PIVOTS] = std::array::from_fn(|row| panel[diagonal][step].0[start + row] * root);
        for (rows, scaled) in panel.iter_mut().zip(scaled.iter_mut()) {
            let swept = rows[step].0.map(|entry| entry * root);
            scaled[step] = Line(swept);
            for (row, scale) in rows.iter_mut().zip(scales) {
                for (entry, swept) in row.0.iter_mut().zip(&swept) {
                    *entry = fused::<S>(-scale, *swept, *entry);
                }
            }
            rows[step] = Line(swept.map(|entry| entry * root));
        }
        for row in 0..PIVOTS {
            panel[diagonal][row].0[start + step] = panel[diagonal][step].0[start + row];
        }
        panel[diagonal][step].0[start + step] = -root * root;
    }
    true
}

/// Takes the steps of `scaled` on [`PIVOTS`] rows, those from `first` on, in the lines that are kept of them.
#[inline(always)]
fn subtract<S: Simd>(rows: &mut [Line], scaled: &Panel, first: usize) {
    let (lines, diagonal, start) = (scaled.len(), first / LINE, first % LINE);
    let scales: [[f64; PIVOTS]; PIVOTS] =
        std::array::from_fn(|row| std::array::from_fn(|step| -scaled[diagonal][step].0[start + row]));
    for (line, scaled) in scaled[..=diagonal].iter().enumerate() {
        let scaled = *scaled;
        for (row, scales) in scales.iter().enumerate() {
            let mut entries = rows[row * lines + line];
            for (scale, scaled) in scales.iter().zip(&scaled) {
                for (entry, scaled) in entries.0.iter_mut().zip(&scaled.0) {
                    *entry = fused::<S>(*scale, *scaled, *entry);
                }
            }
            rows[row * lines + line] = entries;
        }
    }
}

/// Puts the rows from `first` on back, and the columns that equal them.
#[inline(always)]
fn write_panel(work: &mut [Line], panel: &Panel, first: usize) {
    let (lines, diagonal, start) = (panel.len(), first / LINE, first % LINE);
    for (line, panel) in panel.iter().enumerate() {
        if line <= diagonal {
            for (row, entries) in panel.iter().enumerate() {
                work[(first + row) * lines + line] = *entries;
            }
        }
        if line >= diagonal {
            for (lane, work) in work[line * LINE * lines..].chunks_exact_mut(lines).take(LINE).enumerate() {
                for (row, entries) in panel.iter().enumerate() {
                    work[diagonal].0[start + row] = entries.0[lane];
                }
            }
        }
    }
}

/// Adds `scale * row row^T` of each row to a lower triangle that is stored row by row, in the order of the rows. `rows` is
/// row-major, each padded to whole tiles.
#[inline(always)]
pub(super) unsafe fn add_outers<S: Simd>(triangle: &mut [f64], rows: &[f64], scales: &[f64], dim: usize) {
    let stride = padded(dim);
    for first in (0..dim).step_by(TILE_ROWS) {
        let last = dim.min(first + TILE_ROWS);
        for column in (0..last).step_by(TILE_COLUMNS) {
            let mut sums = [[0.0; TILE_COLUMNS]; TILE_ROWS];
            for (row, sums) in (first..last).zip(&mut sums) {
                let held = held(triangle, row, column);
                sums[..held.len()].copy_from_slice(held);
            }
            for (row, scale) in rows.chunks_exact(stride).zip(scales) {
                let (left, right) = (row[first..].first_chunk(), row[column..].first_chunk());
                let (left, right) = left.zip(right).expect("rows are padded to whole tiles");
                add_tile::<S>(&mut sums, left, right, *scale);
            }
            for (row, sums) in (first..last).zip(&sums) {
                let held = held(triangle, row, column);
                held.copy_from_slice(&sums[..held.len()]);
            }
        }
    }
}

#[inline(always)]
fn add_tile<S: Simd>(
    sums: &mut [[f64; TILE_COLUMNS]; TILE_ROWS],
    left: &[f64; TILE_ROWS],
    right: &[f64; TILE_COLUMNS],
    scale: f64,
) {
    for row in 0..TILE_ROWS {
        let scaled = scale * left[row];
        for column in 0..TILE_COLUMNS {
            sums[row][column] = fused::<S>(scaled, right[column], sums[row][column]);
        }
    }
}

/// What a triangle holds of one row of a tile.
#[inline(always)]
fn held(triangle: &mut [f64], row: usize, column: usize) -> &mut [f64] {
    &mut triangle[row * (row + 1) / 2..][column..=row.min(column + TILE_COLUMNS - 1)]
}
