//! The candidates that are left to a ranking, to draw uniformly from.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The candidates not yet shown, from which one can be drawn or taken in O(1).
pub(crate) struct Remaining {
    /// In no particular order, but one that depends on nothing except what was taken before.
    candidates: Vec<usize>,
    /// Where in `candidates` each candidate that remains is.
    positions: Vec<usize>,
}

impl Remaining {
    pub(crate) fn all(n: usize) -> Self {
        Self { candidates: (0..n).collect(), positions: (0..n).collect() }
    }

    /// One of them, each with the same probability. The caller guarantees that some are left.
    pub(crate) fn draw(&self, rng: &mut ChaCha8Rng) -> usize {
        self.candidates[rng.random_range(0..self.candidates.len())]
    }

    /// All of them, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.candidates.iter().copied()
    }

    pub(crate) fn take(&mut self, candidate: usize) {
        let position = self.positions[candidate];
        self.candidates.swap_remove(position);
        if let Some(moved) = self.candidates.get(position) {
            self.positions[*moved] = position;
        }
    }
}
