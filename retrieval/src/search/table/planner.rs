//! Chooses the search method by cost. All methods return the same hits.

use celeris_kernel::codes::BLOCK_ROWS;

use super::exact::{list, scan};
use super::quantized_scan::{Pass, Query};
use super::{Matrix, Table};
use crate::search::best::Best;
use crate::{CandidateSet, Hit};

/// Number of candidate rows up to which they are scored one by one without further planning: tens
/// of microseconds.
const FEW: usize = 1024;

/// Number of rows of a quantized scan that cost as much as scoring one row at a random address.
const PASSED_PER_LISTED: usize = 32;

/// Blocks scanned first, those of the longest rows; their floor then bounds the rest of the scan.
const PROBE_BLOCKS: usize = 64;

/// Number of blocks from which a scan is parallel; smaller scans take less than a millisecond.
const SHARED_BLOCKS: usize = 4096;

impl Table {
    /// The `k` best of the allowed items by `offset + weights·f`, best first, equal scores by row;
    /// fewer if there are not as many.
    ///
    /// The caller guarantees that `matrix` is the one that the table was built from, and that
    /// `weights` has its dimension.
    #[must_use]
    pub fn search(&self, matrix: Matrix<'_>, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        if allowed.count() <= FEW.max(k) {
            return list(self, matrix, weights, k, allowed);
        }
        let Some(query) = Query::new(&self.codes, weights) else {
            return scan(matrix, &self.rows, weights, k, allowed);
        };
        let pass = Pass { table: self, codes: &self.codes, matrix, weights, query: &query, allowed };
        let mut best = Best::new(k);
        let probed = PROBE_BLOCKS.min(self.codes.blocks());
        pass.run(0..probed, &mut best);
        let rest = probed..pass.end_of_reach(probed, &best);
        if allowed.count() * PASSED_PER_LISTED < rest.len() * BLOCK_ROWS {
            return list(self, matrix, weights, k, allowed);
        }
        if rest.len() < SHARED_BLOCKS {
            pass.run(rest, &mut best);
        } else {
            pass.run_by_all_threads(rest, &mut best);
        }
        best.into_hits()
    }
}
