//! The features of a version in the layout for searches.

use celeris_kernel as kernel;

/// Offsets and row-major features of a version's items, borrowed from the version.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    dim: usize,
    features: &'a [f32],
    offsets: &'a [f32],
}

impl<'a> Matrix<'a> {
    /// `features` is row-major with `offsets.len()` rows of `dim` entries, the last of each row the
    /// constant 1.
    ///
    /// # Panics
    /// If the shapes do not match.
    #[must_use]
    pub fn new(dim: usize, features: &'a [f32], offsets: &'a [f32]) -> Self {
        assert_eq!(features.len(), offsets.len() * dim, "as many rows as offsets");
        Self { dim, features, offsets }
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The length of a row.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The features of the item in `slot`.
    #[must_use]
    pub fn features(&self, slot: usize) -> &'a [f32] {
        &self.features[slot * self.dim..][..self.dim]
    }

    /// The offset of the item in `slot`.
    #[must_use]
    pub fn offset(&self, slot: usize) -> f32 {
        self.offsets[slot]
    }

    /// `offset + weights·f` of the item in `slot`, with the same bits as from a user's state with
    /// these weights.
    #[must_use]
    pub fn score(&self, weights: &[f32], slot: usize) -> f32 {
        self.offsets[slot] + kernel::dot(weights, self.features(slot))
    }

    /// Computes the scores of `out.len()` items from slot `first` on.
    pub fn score_range(&self, weights: &[f32], first: usize, out: &mut [f32]) {
        let features = &self.features[first * self.dim..][..out.len() * self.dim];
        kernel::score_rows(weights, &self.offsets[first..][..out.len()], features, out);
    }
}
