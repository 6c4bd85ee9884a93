//! Every search method compared with sorting all scores.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::prelude::*;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma, StandardNormal};

use super::exact::{list, scan};
use super::quantized_scan::{Pass, Query};
use super::{Matrix, Table};
use crate::{Best, CandidateSet, Hit, Row};

/// A small table: offsets and features with the constant at the end, rows with gaps between them,
/// and the allowed rows.
#[derive(Debug, Clone)]
struct World {
    dim: usize,
    features: Vec<f32>,
    offsets: Vec<f32>,
    rows: Vec<Row>,
    allowed: CandidateSet,
    weights: Vec<f32>,
}

impl World {
    fn matrix(&self) -> Matrix<'_> {
        Matrix::new(self.dim, &self.features, &self.offsets)
    }

    /// Sorts the scores of all allowed items.
    fn oracle(&self, k: usize) -> Vec<Hit> {
        let matrix = self.matrix();
        let slots = (0..self.rows.len()).filter(|slot| self.allowed.contains(self.rows[*slot]));
        let mut hits: Vec<Hit> =
            slots.map(|slot| Hit { row: self.rows[slot], score: matrix.score(&self.weights, slot) }).collect();
        hits.sort_by(|a, b| (b.score + 0.0).total_cmp(&(a.score + 0.0)).then(a.row.cmp(&b.row)));
        hits.truncate(k);
        hits
    }

    /// The hits of the quantized scan alone, on one thread and on several.
    fn passed(&self, table: &Table, k: usize) -> Option<[Vec<Hit>; 2]> {
        let query = Query::new(&table.codes, &self.weights)?;
        let (matrix, weights, allowed) = (self.matrix(), &self.weights, &self.allowed);
        let pass = Pass { table, codes: &table.codes, matrix, weights, query: &query, allowed };
        let (mut one, mut all) = (Best::new(k), Best::new(k));
        pass.run(0..table.codes.blocks(), &mut one);
        pass.run_by_all_threads(0..table.codes.blocks(), &mut all);
        Some([one.into_hits(), all.into_hits()])
    }

    /// Checks that every search method returns the same hits.
    fn check(&self, k: usize) {
        let table = Table::build(self.matrix(), self.rows.clone());
        let (matrix, weights, allowed) = (self.matrix(), &self.weights, &self.allowed);
        let expected = self.oracle(k);
        assert_eq!(table.search(matrix, weights, k, allowed), expected, "as planned");
        assert_eq!(scan(matrix, &table.rows, weights, k, allowed), expected, "scan");
        assert_eq!(list(&table, matrix, weights, k, allowed), expected, "list");
        if let Some(found) = self.passed(&table, k) {
            assert_eq!(found, [expected.clone(), expected], "quantized scan");
        }
    }
}

/// Values that make ties, zeros and rows of very different lengths likely.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -3.0_f32..3.0,
        2 => prop_oneof![Just(0.0_f32), Just(-0.0), Just(1.0), Just(-1.0)],
        1 => prop_oneof![-1e4_f32..1e4, -1e-6_f32..1e-6],
    ]
}

fn world() -> impl Strategy<Value = World> {
    (1_usize..20, 0_usize..300).prop_flat_map(|(dim, count)| {
        let features = prop::collection::vec(value(), dim * count);
        let offsets = prop::collection::vec(value(), count);
        let weights = prop::collection::vec(value(), dim);
        // The gap before each row, and whether it is allowed.
        let rows = prop::collection::vec((0_u32..3, prop::bool::weighted(0.7)), count);
        // A column that is constant, in addition to the last one; and duplicate rows.
        let (equal, copies) = (0..dim, prop::collection::vec((0..count.max(1), 0..count.max(1)), 0..20));
        let all = (Just(dim), features, offsets, weights, rows, equal, copies);
        all.prop_map(move |(dim, mut features, mut offsets, weights, gaps, equal, copies)| {
            for row in features.chunks_exact_mut(dim) {
                row[equal] = 0.25;
                row[dim - 1] = 1.0;
            }
            for (from, to) in copies.into_iter().filter(|_| count > 0) {
                features.copy_within(from * dim..(from + 1) * dim, to * dim);
                offsets[to] = offsets[from];
            }
            let (mut allowed, mut rows, mut next) = (CandidateSet::none(), Vec::new(), 0);
            for (gap, is_allowed) in gaps {
                next += gap;
                rows.push(next);
                if is_allowed {
                    allowed.insert(next);
                }
                next += 1;
            }
            World { dim, features, offsets, rows, allowed, weights }
        })
    })
}

proptest! {
    #[test]
    fn every_search_method_equals_sorting_all_scores(world in world(), k in 0_usize..30) {
        world.check(k);
    }

    /// Also with weights so large or small that sums overflow or underflow.
    #[test]
    fn no_scale_of_weights_loses_a_row(world in world(), exponent in -40_i32..33, k in 0_usize..10) {
        let scale = 10_f32.powi(exponent);
        let weights = world.weights.iter().map(|weight| weight * scale).collect();
        let world = World { weights, ..world };
        // The order of NaN and infinite scores is unspecified.
        prop_assume!(world.oracle(usize::MAX).iter().all(|hit| hit.score.is_finite()));
        world.check(k);
    }
}

/// A table large enough for the planner to use all methods: features in random directions, with
/// lengths drawn from a gamma distribution or all equal.
fn large(count: usize, dim: usize, lengths: Option<Gamma<f32>>) -> World {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut features: Vec<f32> = (0..count * dim).map(|_| StandardNormal.sample(&mut rng)).collect();
    for row in features.chunks_exact_mut(dim) {
        let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        let wanted = lengths.map_or(1.0, |lengths| lengths.sample(&mut rng));
        row.iter_mut().for_each(|x| *x *= wanted / length);
        row[dim - 1] = 1.0;
    }
    let offsets = (0..count).map(|_| rng.random_range(-0.1..0.1)).collect();
    let weights = (0..dim).map(|_| StandardNormal.sample(&mut rng)).collect();
    let rows = (0..).take(count).collect();
    World { dim, features, offsets, rows, allowed: CandidateSet::all(count), weights }
}

#[test]
fn large_tables_are_searched_exactly_with_filters_of_any_share() {
    let gamma = Gamma::new(2.0, 1.0).unwrap();
    for lengths in [Some(gamma), None] {
        let mut world = large(30_000, 20, lengths);
        let table = Table::build(world.matrix(), world.rows.clone());
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        for share in [1.0, 0.5, 0.05, 0.005, 0.0005, 0.0] {
            world.allowed = CandidateSet::none();
            world.rows.iter().filter(|_| rng.random_bool(share)).for_each(|row| world.allowed.insert(*row));
            for k in [1, 10, 500] {
                let found = table.search(world.matrix(), &world.weights, k, &world.allowed);
                assert_eq!(found, world.oracle(k), "{k} of {share}");
                let passed = world.passed(&table, k).unwrap();
                assert_eq!(passed, [found.clone(), found], "{k} of {share}");
            }
        }
    }
}

/// The bound is useless if it excludes no block.
#[test]
fn a_pass_ends_early_where_lengths_are_spread() {
    let world = large(30_000, 20, Some(Gamma::new(2.0, 1.0).unwrap()));
    let table = Table::build(world.matrix(), world.rows.clone());
    let query = Query::new(&table.codes, &world.weights).unwrap();
    let (matrix, weights, allowed) = (world.matrix(), &world.weights, &world.allowed);
    let pass = Pass { table: &table, codes: &table.codes, matrix, weights, query: &query, allowed };
    let mut best = Best::new(10);
    pass.run(0..table.codes.blocks(), &mut best);
    let end = pass.end_of_reach(0, &best);
    assert!(end * 4 < table.codes.blocks(), "{end} of {} blocks", table.codes.blocks());
}
