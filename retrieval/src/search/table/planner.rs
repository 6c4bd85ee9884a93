//! Chooses the search method by cost. All methods but the graph return the same hits.

use celeris_kernel::codes::BLOCK_ROWS;

use super::exact::{list, scan};
use super::{Matrix, Table};
use crate::search::best::Best;
use crate::search::graph::Plan;
use crate::{CandidateSet, Hit};

/// A search request.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchRequest<'a> {
    pub(super) weights: &'a [f32],
    pub(super) k: usize,
    pub(super) allowed: &'a CandidateSet,
}

/// Number of candidate rows up to which they are scored one by one without further planning: tens of microseconds.
const FEW: usize = 1024;

/// Number of rows of a quantized scan that cost as much as scoring one row at a random address.
const PASSED_PER_LISTED: usize = 32;

/// Blocks scanned first, those of the longest rows; their floor then bounds the rest of the scan.
const PROBE_BLOCKS: usize = 64;

/// Number of blocks from which a scan is parallel; smaller scans take less than a millisecond.
const SHARED_BLOCKS: usize = 4096;

/// The graph is used only if at least 1 in this many rows is allowed; with fewer, its search mostly visits rows that
/// may not be returned.
const GRAPH_KEEPS: usize = 2;

/// Searches by the cheapest method.
pub(super) fn search(table: &Table, matrix: Matrix<'_>, request: SearchRequest<'_>) -> Vec<Hit> {
    by_graph(table, matrix, request).unwrap_or_else(|| search_exactly(table, matrix, request))
}

/// The graph's plan for such a search; `None` if it should not use the graph.
pub(super) fn plan(table: &Table, k: usize, allowed: &CandidateSet) -> Option<Plan> {
    let plan = table.graph()?.plan(k)?;
    (k > 0 && allowed.count() * GRAPH_KEEPS >= table.rows.len()).then_some(plan)
}

fn by_graph(table: &Table, matrix: Matrix<'_>, request: SearchRequest<'_>) -> Option<Vec<Hit>> {
    let plan = plan(table, request.k, request.allowed)?;
    let query = table.query(request.weights)?;
    let pass = table.pass(matrix, request.weights, &query, request.allowed);
    table.graph()?.search(&pass, request.k, plan.expansion)
}

/// Searches by the cheapest exact method.
pub(super) fn search_exactly(table: &Table, matrix: Matrix<'_>, request: SearchRequest<'_>) -> Vec<Hit> {
    let SearchRequest { weights, k, allowed } = request;
    if allowed.count() <= FEW.max(k) {
        return list(table, matrix, weights, k, allowed);
    }
    let Some(query) = table.query(weights) else {
        return scan(matrix, &table.rows, weights, k, allowed);
    };
    let pass = table.pass(matrix, weights, &query, allowed);
    let mut best = Best::new(k);
    let probed = PROBE_BLOCKS.min(table.codes.blocks());
    pass.run(0..probed, &mut best);
    let rest = probed..pass.end_of_reach(probed, &best);
    if allowed.count() * PASSED_PER_LISTED < rest.len() * BLOCK_ROWS {
        return list(table, matrix, weights, k, allowed);
    }
    if rest.len() < SHARED_BLOCKS {
        pass.run(rest, &mut best);
    } else {
        pass.run_by_all_threads(rest, &mut best);
    }
    best.into_hits()
}
