//! Boosts of a request, applied exactly: items that match a boost are ranked as if their score were
//! higher by its amount.
//!
//! Within a cell, that is, the rows that match the same boosts, the order is that of the scores; so
//! merging the best of all cells gives the best by boosted score.

use celeris_retrieval::{CandidateSet, Row};

#[derive(Debug, Default)]
pub(crate) struct Boosts(Vec<(CandidateSet, f32)>);

#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) rows: CandidateSet,
    /// Added to the score of each row.
    pub(crate) add: f32,
}

impl Boosts {
    /// Pairs of a boost's rows and the amount it adds.
    pub(crate) fn new(boosts: Vec<(CandidateSet, f32)>) -> Self {
        Self(boosts)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of the boosts of `row`.
    pub(crate) fn of(&self, row: Row) -> f32 {
        self.0.iter().filter(|(rows, _)| rows.contains(row)).map(|(_, add)| add).sum()
    }

    /// The non-empty cells of `allowed`. Every row is in exactly one.
    pub(crate) fn cells(&self, allowed: &CandidateSet) -> Vec<Cell> {
        let mut cells = vec![(allowed.words().to_vec(), Vec::new())];
        for (rows, add) in &self.0 {
            let word = |at: usize| rows.words().get(at).copied().unwrap_or(0);
            for (words, adds) in std::mem::take(&mut cells) {
                let inside: Vec<u64> = words.iter().enumerate().map(|(at, bits)| bits & word(at)).collect();
                let outside = words.iter().enumerate().map(|(at, bits)| bits & !word(at)).collect();
                cells.push((inside, adds.iter().copied().chain([*add]).collect::<Vec<f32>>()));
                cells.push((outside, adds));
            }
            cells.retain(|(words, _)| words.iter().any(|bits| *bits != 0));
        }
        let cell =
            |(words, adds): (Vec<u64>, Vec<f32>)| Cell { rows: CandidateSet::of_words(words), add: adds.iter().sum() };
        cells.into_iter().map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn every_row_is_in_exactly_one_cell_with_the_sum_of_its_boosts() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for boosts in 0..=4 {
            let mut some = |share: f64, upto: Row| {
                let mut rows = CandidateSet::none();
                (0..upto).filter(|_| rng.random_bool(share)).for_each(|row| rows.insert(row));
                rows
            };
            let allowed = some(0.7, 300);
            // Shorter than `allowed`, and longer.
            let boosts = Boosts::new((0..boosts).map(|at| (some(0.5, 150 + 100 * at), at as f32 - 1.5)).collect());
            let cells = boosts.cells(&allowed);
            let mut met: Vec<Row> = Vec::new();
            for Cell { rows, add } in &cells {
                assert!(!rows.is_empty());
                assert!(rows.rows().all(|row| boosts.of(row).to_bits() == add.to_bits()));
                met.extend(rows.rows());
            }
            met.sort_unstable();
            assert_eq!(met, allowed.rows().collect::<Vec<Row>>());
        }
    }
}
