//! Which way to search: all find the same, and differ in what they cost.

use super::exact::{list, scan};
use super::first_pass::{Pass, Query};
use super::{Matrix, Table};
use crate::best::Best;
use crate::{Allowed, Hit};
use celeris_model::kernel::codes::BLOCK_ROWS;

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) weights: &'a [f32],
    pub(super) k: usize,
    pub(super) allowed: &'a Allowed,
}

/// Allowed rows that are looked at one by one without thinking further: tens of microseconds.
const FEW: usize = 1024;

/// Rows of a first pass that cost what a look at the features of one row anywhere does.
const PASSED_PER_LISTED: usize = 16;

/// Blocks, the longest rows, after which the floor tells how far a pass has to go.
const PROBE_BLOCKS: usize = 64;

/// Blocks from which on a pass is shared among threads: below, it takes less than a millisecond.
const SHARED_BLOCKS: usize = 4096;

/// Finds the best by the way that costs least.
pub(super) fn search(table: &Table, matrix: Matrix<'_>, sought: Sought<'_>) -> Vec<Hit> {
    let Sought { weights, k, allowed } = sought;
    if allowed.count() <= FEW.max(k) {
        return list(table, matrix, weights, k, allowed);
    }
    let Some(query) = Query::new(&table.codes, weights) else {
        return scan(matrix, &table.rows, weights, k, allowed);
    };
    let pass = Pass { table, codes: &table.codes, matrix, weights, query: &query, allowed };
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
