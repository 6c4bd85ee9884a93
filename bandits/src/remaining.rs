//! The candidates that remain for a ranking, for uniform draws.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The candidates not yet shown; supports drawing and removing in O(1).
pub(crate) struct Remaining {
    /// Unsorted, but the order depends only on the candidates removed before.
    candidates: Vec<usize>,
    /// Position in `candidates` of each remaining candidate.
    positions: Vec<usize>,
}

impl Remaining {
    pub(crate) fn all(n: usize) -> Self {
        Self { candidates: (0..n).collect(), positions: (0..n).collect() }
    }

    /// A uniformly random candidate. The caller guarantees that some are left.
    pub(crate) fn draw(&self, rng: &mut ChaCha8Rng) -> usize {
        self.candidates[rng.random_range(0..self.candidates.len())]
    }

    /// All of them, unsorted.
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
