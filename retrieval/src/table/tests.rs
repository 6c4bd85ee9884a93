//! Every way to search against sorting all scores.

use proptest::prelude::*;

use super::{Matrix, Table};
use crate::{Allowed, Hit, Row};

/// A small world: offsets and features with the constant at the end, rows with holes between them, who is allowed.
#[derive(Debug, Clone)]
struct World {
    dim: usize,
    features: Vec<f32>,
    offsets: Vec<f32>,
    rows: Vec<Row>,
    allowed: Allowed,
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
        hits.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then(a.row.cmp(&b.row)));
        hits.truncate(k);
        hits
    }
}

/// Values that make ties, zeros and rows of very different length likely.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -3.0_f32..3.0,
        2 => prop_oneof![Just(0.0_f32), Just(-0.0), Just(1.0), Just(-1.0)],
        1 => prop_oneof![-1e4_f32..1e4, -1e-6_f32..1e-6],
    ]
}

fn world() -> impl Strategy<Value = World> {
    (1_usize..20, 0_usize..200).prop_flat_map(|(dim, count)| {
        let features = prop::collection::vec(value(), dim * count);
        let offsets = prop::collection::vec(value(), count);
        let weights = prop::collection::vec(value(), dim);
        // A gap before each row, and whether it is allowed.
        let rows = prop::collection::vec((0_u32..3, prop::bool::weighted(0.7)), count);
        (Just(dim), features, offsets, weights, rows).prop_map(|(dim, mut features, offsets, weights, gaps)| {
            for row in features.chunks_exact_mut(dim) {
                row[dim - 1] = 1.0;
            }
            let (mut allowed, mut rows, mut next) = (Allowed::none(), Vec::new(), 0);
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
    fn a_search_finds_what_sorting_all_scores_finds(world in world(), k in 0_usize..30) {
        let table = Table::build(world.matrix(), world.rows.clone());
        let expected = world.oracle(k);
        prop_assert_eq!(&table.search_exact(world.matrix(), &world.weights, k, &world.allowed), &expected);
        prop_assert_eq!(&table.search(world.matrix(), &world.weights, k, &world.allowed), &expected);
    }
}
