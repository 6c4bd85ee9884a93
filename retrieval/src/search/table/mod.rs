//! The search structure of one version's items.

mod exact;
mod matrix;
mod planner;
mod quantized_scan;
#[cfg(test)]
mod tests;

use quantized_scan::Codes;

use crate::{CandidateSet, Hit, Row};

pub(crate) use exact::scan;
pub use matrix::Matrix;

/// The catalog rows of a version's matrix, and the structures that make its search fast.
///
/// The features are not copied: every call takes the [`Matrix`] that the table was built from.
#[derive(Debug)]
pub struct Table {
    /// The catalog's row of each slot of the matrix.
    rows: Vec<Row>,
    /// The slot of each row, [`NO_SLOT`] if the row is not in the matrix.
    slots: Vec<u32>,
    codes: Codes,
}

/// The slot of a row that is not in the matrix.
const NO_SLOT: u32 = u32::MAX;

impl Table {
    /// The table of a matrix whose item in slot `i` has row `rows[i]` of the catalog.
    ///
    /// The caller guarantees that no row occurs twice.
    ///
    /// # Panics
    /// If `rows` does not have one row for each slot.
    #[must_use]
    pub fn build(matrix: Matrix<'_>, rows: Vec<Row>) -> Self {
        assert_eq!(matrix.len(), rows.len(), "a row for each slot");
        let mut slots = vec![NO_SLOT; rows.iter().max().map_or(0, |last| *last as usize + 1)];
        for (slot, row) in (0..).zip(&rows) {
            slots[*row as usize] = slot;
        }
        let codes = Codes::build(matrix, &rows);
        Self { rows, slots, codes }
    }

    /// [`Table::search`] by computing every score: the reference for all other methods.
    #[must_use]
    pub fn search_exact(&self, matrix: Matrix<'_>, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        scan(matrix, &self.rows, weights, k, allowed)
    }

    /// The slot of `row` in the matrix.
    #[must_use]
    pub fn slot(&self, row: Row) -> Option<u32> {
        self.slots.get(row as usize).copied().filter(|slot| *slot != NO_SLOT)
    }

    /// The rows of the slots, in the order of the matrix.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Size in memory without the matrix, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.rows) + size_of_val(&*self.slots) + self.codes.bytes()
    }
}
