//! Rows as 8-bit codes, in blocks.

use celeris_kernel::codes::{BLOCK_ROWS, GROUP, place};
use rayon::prelude::*;

use super::bound::Query;
use crate::Row;
use crate::search::table::Matrix;

/// Added to a code, so that it is stored as unsigned.
pub(super) const BIAS: u8 = 128;

/// The largest magnitude of a code.
const CODE_MAX: f64 = 127.0;

/// Exceeds all rounding errors of double precision in a length or a sum of squares over any
/// dimension.
const ROUNDED_UP: f64 = 1.0 + 1e-9;

/// All rows of a matrix, quantized.
///
/// A row is its features and its offset, which is treated as a feature with weight 1. The mean of
/// each column is subtracted; columns that are then zero throughout, such as the constant, are left
/// out. A block of rows of similar length shares one step: `residual = step * code` up to an error
/// whose length is stored with the block.
#[derive(Debug)]
pub(crate) struct Codes {
    /// The mean of each of the `dim + 1` columns, which has been subtracted.
    pub(super) centre: Vec<f32>,
    /// The coded columns; `dim` is the offset.
    pub(super) columns: Vec<usize>,
    /// Codes per row: the columns, padded with zeros to whole groups.
    pub(super) width: usize,
    /// Blocks of [`BLOCK_ROWS`] rows, each in the order of [`place`].
    pub(super) codes: Vec<u8>,
    pub(super) blocks: Vec<Block>,
    /// The catalog's row at each position; the last block may be partly filled.
    pub(super) order: Vec<Row>,
    /// The maximum length of a row, features and offset together, without subtracting the mean.
    pub(super) length_max: f64,
}

/// Bounds for the rows of a block. Lengths are Euclidean, and rounded up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    /// The value of a code of 1.
    pub(super) step: f64,
    /// The greatest length of the quantization error of a row.
    pub(super) loss: f64,
    /// The greatest length of a dequantized row.
    pub(super) coded: f64,
    /// The greatest length of a residual in this and all later blocks.
    pub(super) residual: f64,
    /// The greatest length of a row in this and all later blocks, without subtracting the mean.
    pub(super) length: f64,
}

impl Codes {
    /// Quantizes a matrix whose item in slot `i` has row `rows[i]` of the catalog.
    pub(crate) fn build(matrix: Matrix<'_>, rows: &[Row]) -> Self {
        let (centre, columns) = columns(matrix);
        let residual_of = |slot: usize, out: &mut Vec<f64>| {
            let (features, offset) = (matrix.features(slot), matrix.offset(slot));
            let value = |column: usize| features.get(column).copied().unwrap_or(offset);
            out.clear();
            out.extend(columns.iter().map(|column| f64::from(value(*column)) - f64::from(centre[*column])));
        };
        let mut by_length: Vec<(f32, u32)> = (0..matrix.len())
            .into_par_iter()
            .map_init(Vec::new, |residual, slot| {
                residual_of(slot, residual);
                // Rounding here only affects the order.
                (single(length(residual)), u32::try_from(slot).expect("rows are counted in 32 bits"))
            })
            .collect();
        by_length.par_sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let slots: Vec<u32> = by_length.into_iter().map(|(_, slot)| slot).collect();
        let width = columns.len().next_multiple_of(GROUP).max(GROUP);
        let mut codes = vec![BIAS; slots.len().div_ceil(BLOCK_ROWS) * BLOCK_ROWS * width];
        let mut blocks: Vec<Block> = codes
            .par_chunks_mut(BLOCK_ROWS * width)
            .zip(slots.par_chunks(BLOCK_ROWS))
            .map_init(
                || vec![Vec::new(); BLOCK_ROWS],
                |residuals, (codes, slots)| {
                    for (residual, slot) in residuals.iter_mut().zip(slots) {
                        residual_of(*slot as usize, residual);
                    }
                    let mut block = encode(&residuals[..slots.len()], codes);
                    let lengths = slots.iter().map(|slot| row_length(matrix, *slot as usize));
                    block.length = lengths.fold(0.0, f64::max) * ROUNDED_UP;
                    block
                },
            )
            .collect();
        for later in (1..blocks.len()).rev() {
            blocks[later - 1].residual = blocks[later - 1].residual.max(blocks[later].residual);
            blocks[later - 1].length = blocks[later - 1].length.max(blocks[later].length);
        }
        let length_max = blocks.first().map_or(0.0, |block| block.length);
        let order = slots.iter().map(|slot| rows[*slot as usize]).collect();
        Self { centre, columns, width, codes, blocks, order, length_max }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The end of the blocks, from `first` on, in which a row may have a score of at least `floor`.
    pub(crate) fn end_of_reach(&self, query: &Query, first: usize, floor: f32) -> usize {
        first + self.blocks[first..].partition_point(|block| query.reach(block) >= f64::from(floor))
    }

    /// Size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.codes) + size_of_val(&*self.blocks) + size_of_val(&*self.order)
    }
}

/// The mean of each of the `dim + 1` columns, and the columns that are not constant.
fn columns(matrix: Matrix<'_>) -> (Vec<f32>, Vec<usize>) {
    let dim = matrix.dim();
    let value = |slot: usize, column: usize| {
        if column == dim { matrix.offset(slot) } else { matrix.features(slot)[column] }
    };
    let (mut sums, mut varies) = (vec![0.0_f64; dim + 1], vec![false; dim + 1]);
    for slot in 0..matrix.len() {
        for column in 0..=dim {
            sums[column] += f64::from(value(slot, column));
            varies[column] |= value(slot, column) != value(0, column);
        }
    }
    let mean = |column: usize| {
        if varies[column] { single(sums[column] / matrix.len() as f64) } else { value(0, column) }
    };
    let centre = if matrix.is_empty() { vec![0.0; dim + 1] } else { (0..=dim).map(mean).collect() };
    (centre, (0..=dim).filter(|column| varies[*column]).collect())
}

/// Writes the codes of a block's rows and returns the bounds of their errors.
fn encode(residuals: &[Vec<f64>], codes: &mut [u8]) -> Block {
    let largest = residuals.iter().flatten().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let step = if largest > 0.0 { largest / CODE_MAX } else { 1.0 };
    let mut block = Block { step, ..Block::default() };
    for (row, residual) in residuals.iter().enumerate() {
        let (mut lost, mut coded) = (0.0, 0.0);
        for (column, value) in residual.iter().enumerate() {
            let code = (value / step).round().clamp(-CODE_MAX, CODE_MAX);
            codes[place(row, column)] = biased(code);
            lost += (value - step * code).powi(2);
            coded += (step * code).powi(2);
        }
        block.loss = block.loss.max(lost.sqrt() * ROUNDED_UP);
        block.coded = block.coded.max(coded.sqrt() * ROUNDED_UP);
        block.residual = block.residual.max(length(residual) * ROUNDED_UP);
    }
    block
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number from 1 to 255")]
fn biased(code: f64) -> u8 {
    (code + f64::from(BIAS)) as u8
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is intended")]
fn single(value: f64) -> f32 {
    value as f32
}

fn length(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn row_length(matrix: Matrix<'_>, slot: usize) -> f64 {
    let squares = matrix.features(slot).iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
    (squares + f64::from(matrix.offset(slot)).powi(2)).sqrt()
}
