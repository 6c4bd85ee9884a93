//! Which way to search. All but the graph find the same, and differ in what they cost.

use celeris_model::kernel::codes::BLOCK_ROWS;

use super::exact::{list, scan};
use super::{Matrix, Table};
use crate::best::Best;
use crate::graph::Plan;
use crate::{CandidateSet, Hit};

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) weights: &'a [f32],
    pub(super) k: usize,
    pub(super) allowed: &'a CandidateSet,
}

/// CandidateSet rows that are looked at one by one without thinking further: tens of microseconds.
const FEW: usize = 1024;

/// Rows of a first pass that cost what a look at the features of one row anywhere does.
const PASSED_PER_LISTED: usize = 32;

/// Blocks, the longest rows, after which the floor tells how far a pass has to go.
const PROBE_BLOCKS: usize = 64;

/// Blocks from which on a pass is shared among threads: below, it takes less than a millisecond.
const SHARED_BLOCKS: usize = 4096;

/// The share of the rows, 1 in so many, that a filter must keep for the graph to be asked: below, it wanders among rows that
/// may not be returned.
const GRAPH_KEEPS: usize = 2;

/// Finds the best by the way that costs least.
pub(super) fn search(table: &Table, matrix: Matrix<'_>, sought: Sought<'_>) -> Vec<Hit> {
    by_graph(table, matrix, sought).unwrap_or_else(|| search_exactly(table, matrix, sought))
}

/// The graph's plan for such a search, if it is one for the graph.
pub(super) fn plan(table: &Table, k: usize, allowed: &CandidateSet) -> Option<Plan> {
    let plan = table.graph()?.plan(k)?;
    (k > 0 && allowed.count() * GRAPH_KEEPS >= table.rows.len()).then_some(plan)
}

fn by_graph(table: &Table, matrix: Matrix<'_>, sought: Sought<'_>) -> Option<Vec<Hit>> {
    let plan = plan(table, sought.k, sought.allowed)?;
    let query = table.query(sought.weights)?;
    let pass = table.pass(matrix, sought.weights, &query, sought.allowed);
    table.graph()?.search(&pass, sought.k, plan.expansion)
}

/// Finds the best by the exact way that costs least.
pub(super) fn search_exactly(table: &Table, matrix: Matrix<'_>, sought: Sought<'_>) -> Vec<Hit> {
    let Sought { weights, k, allowed } = sought;
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
