//! Exact search by computing scores: the reference, and the fastest way if few rows are allowed.

use celeris_kernel as kernel;
use rayon::prelude::*;

use crate::search::best::Best;
use crate::search::table::{Matrix, Table};
use crate::{CandidateSet, Hit, Row};

/// Scores computed before they are compared: few enough that the next rows are fetched from memory
/// meanwhile.
const BLOCK: usize = 128;

/// Number of rows from which a scan is parallel; smaller scans take less than a few milliseconds.
const SHARED_ROWS: usize = 1 << 17;

/// Rows whose features are prefetched before the first of them is scored.
const WAITING: usize = 16;

/// The best of all slots whose rows are allowed, by a scan of the whole matrix.
pub(crate) fn scan(matrix: Matrix<'_>, rows: &[Row], weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
    let threads = if rows.len() < SHARED_ROWS { 1 } else { rayon::current_num_threads() };
    let share = rows.len().div_ceil(threads).next_multiple_of(BLOCK).max(BLOCK);
    let scan_share = |(index, rows): (usize, &[Row])| {
        let mut best = Best::new(k);
        for (block, rows) in rows.chunks(BLOCK).enumerate() {
            scan_block(matrix, index * share + block * BLOCK, rows, weights, allowed, &mut best);
        }
        best
    };
    let mut best = Best::new(k);
    if threads == 1 {
        best = scan_share((0, rows));
    } else {
        let found: Vec<Best> = rows.par_chunks(share).enumerate().map(scan_share).collect();
        found.into_iter().for_each(|part| best.merge(part));
    }
    best.into_hits()
}

fn scan_block(
    matrix: Matrix<'_>,
    first: usize,
    rows: &[Row],
    weights: &[f32],
    allowed: &CandidateSet,
    best: &mut Best,
) {
    let mut scores = [0.0; BLOCK];
    let scores = &mut scores[..rows.len()];
    matrix.score_range(weights, first, scores);
    let mut floor = best.floor();
    for (score, row) in scores.iter().zip(rows) {
        // A NaN must be kept if fewer than `k` rows are found.
        if (*score >= floor || score.is_nan()) && allowed.contains(*row) {
            best.offer(*row, *score);
            floor = best.floor();
        }
    }
}

/// The best of the allowed rows, by scoring each of them.
pub(crate) fn list(table: &Table, matrix: Matrix<'_>, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
    let mut best = Best::new(k);
    let mut waiting = Vec::with_capacity(WAITING);
    let mut settle = |waiting: &mut Vec<(Row, usize)>| {
        for (row, slot) in waiting.drain(..) {
            best.offer(row, matrix.score(weights, slot));
        }
    };
    for row in allowed.rows() {
        let Some(slot) = table.slot(row) else { continue };
        kernel::prefetch(matrix.features(slot as usize));
        waiting.push((row, slot as usize));
        if waiting.len() == WAITING {
            settle(&mut waiting);
        }
    }
    settle(&mut waiting);
    best.into_hits()
}
