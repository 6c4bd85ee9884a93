//! Searches with the graph.

use celeris_kernel::codes::BLOCK_ROWS;

use usearch::Index;

use super::GraphIndex;
use crate::Hit;
use crate::search::best::Best;
use crate::search::table::{Matrix, Pass};

impl GraphIndex {
    /// The `k` best among the `expansion` candidates of the graph, merged with rows outside the graph that the bound
    /// cannot exclude; `None` if it finds fewer than `k`, or cannot be searched now.
    pub(crate) fn search(&self, pass: &Pass<'_>, k: usize, expansion: usize) -> Option<Vec<Hit>> {
        let mut best = among(self.index.as_ref()?, pass, k, expansion)?;
        let first = self.rows().div_ceil(BLOCK_ROWS);
        pass.run(first..pass.end_of_reach(first, &best), &mut best);
        Some(best.into_hits())
    }
}

/// The `k` best allowed rows among the `expansion` candidates of a graph, with their exact scores; `None` if there are
/// fewer, or the graph cannot be searched now.
pub(super) fn among(index: &Index, pass: &Pass<'_>, k: usize, expansion: usize) -> Option<Best> {
    let query = vector(pass.weights, 1.0);
    let rows = pass.table.rows();
    let is_allowed = |slot: u64| {
        let row = usize::try_from(slot).ok().and_then(|slot| rows.get(slot));
        row.is_some_and(|row| pass.allowed.contains(*row))
    };
    let wanted = expansion.max(k);
    let all = pass.allowed.count() >= rows.len();
    let found = if all { index.search(&query, wanted) } else { index.filtered_search(&query, wanted, is_allowed) };
    let mut best = Best::new(k);
    // The library returns an error if the maximum number of concurrent searches is reached.
    for slot in found.ok()?.keys.into_iter().filter(|slot| is_allowed(*slot)) {
        let slot = usize::try_from(slot).ok()?;
        best.offer(rows[slot], pass.matrix.score(pass.weights, slot));
    }
    (best.len() == k).then_some(best)
}

/// A row as stored in the graph: the features, with the constant at their end replaced by `last`, which is the offset
/// of an item or 1 in a query.
pub(super) fn vector(features: &[f32], last: f32) -> Vec<f32> {
    let mut vector = features.to_vec();
    if let Some(constant) = vector.last_mut() {
        *constant = last;
    }
    vector
}

/// The row in `slot` as stored in the graph.
pub(super) fn row_vector(matrix: Matrix<'_>, slot: usize) -> Vec<f32> {
    vector(matrix.features(slot), matrix.offset(slot))
}
