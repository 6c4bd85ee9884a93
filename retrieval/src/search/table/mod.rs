//! The search structure of one version's items.

mod exact;
mod matrix;
mod planner;
mod quantized_scan;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use celeris_kernel::codes::BLOCK_ROWS;
use planner::SearchRequest;
use quantized_scan::Codes;

use crate::search::graph::GraphIndex;
use crate::{CandidateSet, Hit, Row};

pub(crate) use exact::scan;
pub use matrix::Matrix;
pub(crate) use quantized_scan::{Pass, Query};

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
    /// Set once it is built.
    graph: OnceLock<GraphIndex>,
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
        Self { rows, slots, codes, graph: OnceLock::new() }
    }

    /// The `k` best of the allowed items by `offset + weights·f`, best first, equal scores by row; fewer if there are
    /// not as many.
    ///
    /// The caller guarantees that `matrix` is the one that the table was built from, and that `weights` has its
    /// dimension.
    #[must_use]
    pub fn search(&self, matrix: Matrix<'_>, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        planner::search(self, matrix, SearchRequest { weights, k, allowed })
    }

    /// [`Table::search`] by the cheapest exact method.
    pub(crate) fn search_without_graph(
        &self,
        matrix: Matrix<'_>,
        weights: &[f32],
        k: usize,
        allowed: &CandidateSet,
    ) -> Vec<Hit> {
        planner::search_exactly(self, matrix, SearchRequest { weights, k, allowed })
    }

    /// Uses this graph for searches from now on, where it is faster. Only the first graph attached is kept.
    ///
    /// The caller guarantees that it was built from this table.
    pub fn attach(&self, graph: GraphIndex) {
        // A second graph would be equivalent.
        let _ = self.graph.set(graph);
    }

    /// The graph, if attached.
    #[must_use]
    pub fn graph(&self) -> Option<&GraphIndex> {
        self.graph.get()
    }

    /// Whether such a search would use the graph, so that it may miss some of the best items. Used to sample searches
    /// for live recall.
    #[must_use]
    pub fn is_approximate(&self, k: usize, allowed: &CandidateSet) -> bool {
        planner::plan(self, k, allowed).is_some()
    }

    pub(crate) fn query(&self, weights: &[f32]) -> Option<Query> {
        Query::new(&self.codes, weights)
    }

    pub(crate) fn pass<'a>(
        &'a self,
        matrix: Matrix<'a>,
        weights: &'a [f32],
        query: &'a Query,
        allowed: &'a CandidateSet,
    ) -> Pass<'a> {
        Pass { table: self, codes: &self.codes, matrix, weights, query, allowed }
    }

    /// The slots of the `count` longest rows, longest first.
    pub(crate) fn slots_by_length(&self, count: usize) -> impl Iterator<Item = usize> {
        self.codes.longest(count).iter().map(|row| self.slots[*row as usize] as usize)
    }

    /// The number of longest rows that can reach the worst of `k` hits; all rows if there are fewer hits.
    pub(crate) fn rows_in_reach(&self, query: &Query, hits: &[Hit], k: usize) -> usize {
        let floor = hits.get(k.wrapping_sub(1)).map_or(f32::NEG_INFINITY, |worst| worst.score);
        (self.codes.end_of_reach(query, 0, floor) * BLOCK_ROWS).min(self.rows.len())
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
