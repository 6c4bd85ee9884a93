//! An index of items that a version was not trained on: they are added, changed and removed one by
//! one, and searched by computing every score.

use std::collections::HashMap;

use crate::search::best::Best;
use crate::search::similarity::Similarity;
use crate::search::table::{Matrix, scan};
use crate::{CandidateSet, Hit, Row};

/// A mutable table: features under one version of items that are not in the version's own table.
#[derive(Debug, Clone)]
pub struct DeltaIndex {
    dim: usize,
    rows: Vec<Row>,
    offsets: Vec<f32>,
    /// Row-major, `rows.len() x dim`.
    features: Vec<f32>,
    /// The position of each row in `rows`.
    places: HashMap<Row, usize>,
}

impl DeltaIndex {
    /// An empty index for features of length `dim`.
    #[must_use]
    pub fn new(dim: usize) -> Self {
        Self { dim, rows: Vec::new(), offsets: Vec::new(), features: Vec::new(), places: HashMap::new() }
    }

    /// Adds or replaces an item. The caller guarantees the length of the features.
    pub fn put(&mut self, row: Row, offset: f32, features: &[f32]) {
        debug_assert_eq!(features.len(), self.dim);
        match self.places.get(&row) {
            Some(place) => {
                self.offsets[*place] = offset;
                self.features[place * self.dim..][..self.dim].copy_from_slice(features);
            }
            None => {
                self.places.insert(row, self.rows.len());
                self.rows.push(row);
                self.offsets.push(offset);
                self.features.extend_from_slice(features);
            }
        }
    }

    /// Removes an item; returns whether it was present. The last one moves to its position.
    pub fn remove(&mut self, row: Row) -> bool {
        let Some(place) = self.places.remove(&row) else { return false };
        self.rows.swap_remove(place);
        self.offsets.swap_remove(place);
        let last = self.rows.len() * self.dim;
        self.features.copy_within(last.., place * self.dim);
        self.features.truncate(last);
        if let Some(moved) = self.rows.get(place) {
            self.places.insert(*moved, place);
        }
        true
    }

    /// Offset and features of an item.
    #[must_use]
    pub fn get(&self, row: Row) -> Option<(f32, &[f32])> {
        let place = *self.places.get(&row)?;
        Some((self.offsets[place], &self.features[place * self.dim..][..self.dim]))
    }

    /// The `k` best of the allowed items by `offset + weights·f`, best first, equal scores by row;
    /// fewer if there are not as many.
    ///
    /// The caller guarantees that `weights` has the length of the features.
    #[must_use]
    pub fn search(&self, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        let matrix = Matrix::new(self.dim, &self.features, &self.offsets);
        scan(matrix, &self.rows, weights, k, allowed)
    }

    /// The `k` allowed items most similar to another one; see [`Similarity::search`].
    #[must_use]
    pub fn alike(&self, wanted: &Similarity<'_>, k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        wanted.search(Matrix::new(self.dim, &self.features, &self.offsets), &self.rows, k, allowed)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Size in memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let arrays = self.rows.capacity() * size_of::<Row>()
            + (self.offsets.capacity() + self.features.capacity()) * size_of::<f32>();
        // The hash table has one control byte per entry.
        size_of::<Self>() + arrays + self.places.capacity() * (size_of::<(Row, usize)>() + 1)
    }
}

/// The `k` best of several searches' hits, best first.
#[must_use]
pub fn best_of<'a>(k: usize, searches: impl IntoIterator<Item = &'a [Hit]>) -> Vec<Hit> {
    let mut best = Best::new(k);
    for hit in searches.into_iter().flatten() {
        best.offer(hit.row, hit.score);
    }
    best.into_hits()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Puts, replacements and removals in any order, compared with a map that is sorted for each
    /// search.
    #[test]
    fn searches_see_the_last_put_and_no_removed_items() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut index = DeltaIndex::new(2);
        let mut oracle: BTreeMap<Row, f32> = BTreeMap::new();
        let allowed = CandidateSet::of_words(vec![0xdead_beef_dead_beef]);
        for step in 0..2_000 {
            let row = rng.random_range(0..64);
            if rng.random_bool(0.4) {
                assert_eq!(index.remove(row), oracle.remove(&row).is_some());
            } else {
                // Few different values, so that scores are often equal.
                let (offset, feature) = (rng.random_range(0..3) as f32, rng.random_range(0..3) as f32);
                index.put(row, offset, &[feature, 1.0]);
                oracle.insert(row, offset + (2.0 * feature + 0.5));
            }
            let mut expected: Vec<(Row, f32)> =
                oracle.iter().filter(|(row, _)| allowed.contains(**row)).map(|(row, score)| (*row, *score)).collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            expected.truncate(5);
            let found: Vec<(Row, f32)> =
                index.search(&[2.0, 0.5], 5, &allowed).iter().map(|hit| (hit.row, hit.score)).collect();
            assert_eq!(found, expected, "after step {step}");
            assert_eq!(index.len(), oracle.len());
        }
    }

    #[test]
    fn several_searches_merge_into_the_best() {
        let hit = |row, score| Hit { row, score };
        let (left, right) = ([hit(1, 3.0), hit(2, 1.0)], [hit(0, 1.0), hit(5, 0.5)]);
        assert_eq!(best_of(3, [&left[..], &right[..]]), [hit(1, 3.0), hit(0, 1.0), hit(2, 1.0)]);
    }
}
