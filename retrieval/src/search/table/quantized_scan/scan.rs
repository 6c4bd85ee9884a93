//! The scan over the codes.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use celeris_kernel as kernel;
use celeris_kernel::codes::{BLOCK_ROWS, rows_reaching};
use rayon::prelude::*;

use super::bound::Query;
use super::codes::Codes;
use crate::search::best::Best;
use crate::search::table::{Matrix, Table};
use crate::{CandidateSet, Row};

/// Rows whose features are prefetched before the first of them is scored: their cache misses
/// overlap.
const WAITING: usize = 16;

/// Blocks per task of a thread: some tens of microseconds.
const SHARE_BLOCKS: usize = 128;

/// A quantized scan: its table and its query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) table: &'a Table,
    pub(crate) codes: &'a Codes,
    pub(crate) matrix: Matrix<'a>,
    pub(crate) weights: &'a [f32],
    pub(crate) query: &'a Query,
    pub(crate) allowed: &'a CandidateSet,
}

/// Whether a scan may find more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    MayFindMore,
    Ended,
}

impl Pass<'_> {
    /// Scans the blocks in order and adds their hits to `best`.
    pub(crate) fn run(&self, blocks: Range<usize>, best: &mut Best) {
        self.run_above(blocks, best, &Floor::of(best));
    }

    /// [`Pass::run`] on all threads of the current pool. The result does not depend on their
    /// number.
    pub(crate) fn run_by_all_threads(&self, blocks: Range<usize>, best: &mut Best) {
        let floor = Floor::of(best);
        let next = AtomicUsize::new(blocks.start);
        let found: Vec<Best> = (0..rayon::current_num_threads())
            .into_par_iter()
            .map(|_| {
                let mut best = best.emptied();
                loop {
                    let first = next.fetch_add(SHARE_BLOCKS, Ordering::Relaxed);
                    let share = first..blocks.end.min(first.saturating_add(SHARE_BLOCKS));
                    if share.is_empty() || self.run_above(share, &mut best, &floor) == Reach::Ended {
                        return best;
                    }
                }
            })
            .collect();
        for part in found {
            best.merge(part);
        }
    }

    /// The end of the blocks, from `first` on, in which a row may still reach the floor.
    pub(crate) fn end_of_reach(&self, first: usize, best: &Best) -> usize {
        self.codes.end_of_reach(self.query, first, best.floor())
    }

    fn run_above(&self, blocks: Range<usize>, best: &mut Best, shared: &Floor) -> Reach {
        let mut waiting = Vec::with_capacity(WAITING + BLOCK_ROWS);
        for index in blocks {
            let floor = shared.raise(best.floor());
            let block = &self.codes.blocks[index];
            if self.query.reach(block) < f64::from(floor) {
                self.settle(&mut waiting, best);
                return Reach::Ended;
            }
            let bytes = BLOCK_ROWS * self.codes.width;
            let codes = &self.codes.codes[index * bytes..][..bytes];
            let mut reaching = rows_reaching(codes, &self.query.entries, self.query.least(block, f64::from(floor)));
            let rows = &self.codes.order[index * BLOCK_ROWS..];
            while reaching != 0 {
                let place = reaching.trailing_zeros() as usize;
                reaching &= reaching - 1;
                // Positions beyond the last row are empty.
                if let Some(row) = rows.get(place).filter(|row| self.allowed.contains(**row)) {
                    self.await_features(*row, &mut waiting);
                }
            }
            if waiting.len() >= WAITING || floor == f32::NEG_INFINITY {
                self.settle(&mut waiting, best);
            }
        }
        self.settle(&mut waiting, best);
        Reach::MayFindMore
    }

    fn await_features(&self, row: Row, waiting: &mut Vec<(Row, usize)>) {
        let slot = self.table.slots[row as usize] as usize;
        kernel::prefetch(self.matrix.features(slot));
        waiting.push((row, slot));
    }

    fn settle(&self, waiting: &mut Vec<(Row, usize)>, best: &mut Best) {
        for (row, slot) in waiting.drain(..) {
            best.offer(row, self.matrix.score(self.weights, slot));
        }
    }
}

/// The greatest of the floors found by several threads: at least `k` rows reach it.
struct Floor(AtomicU32);

impl Floor {
    fn of(best: &Best) -> Self {
        Self(AtomicU32::new(ascending(best.floor())))
    }

    /// Raises the floor to `floor` if that is higher, and returns it.
    fn raise(&self, floor: f32) -> f32 {
        let mine = ascending(floor);
        // A load suffices nearly always, and threads that only read do not contend for the cache
        // line.
        let shared = self.0.load(Ordering::Relaxed);
        if mine > shared {
            return descended(self.0.fetch_max(mine, Ordering::Relaxed).max(mine));
        }
        descended(shared)
    }
}

/// Maps floats to integers in the same order.
fn ascending(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 31 }
}

fn descended(ascending: u32) -> f32 {
    f32::from_bits(if ascending >> 31 == 1 { ascending & !(1 << 31) } else { !ascending })
}

#[cfg(test)]
mod tests {
    use super::{ascending, descended};

    #[test]
    fn floors_are_compared_as_numbers() {
        let values = [f32::NEG_INFINITY, -2.5, -1e-30, 0.0, 1e-30, 2.5, f32::INFINITY];
        assert!(values.windows(2).all(|pair| ascending(pair[0]) < ascending(pair[1])));
        assert!(values.iter().all(|value| descended(ascending(*value)).to_bits() == value.to_bits()));
    }
}
