//! Similar items: those whose features have a similar direction.

use celeris_kernel as kernel;
use rayon::prelude::*;

use crate::search::best::Best;
use crate::search::table::Matrix;
use crate::{CandidateSet, Hit, Row};

/// Slots compared per task: about a millisecond's work.
const PART: usize = 16_384;

/// The direction of an item's features, compared with those of others by cosine similarity: 1 for
/// the same direction, 0 for orthogonal, -1 for the opposite. The constant at the end of features
/// is ignored.
#[derive(Debug, Clone)]
pub struct Similarity<'a> {
    /// Unit vector, without the constant.
    direction: Vec<f32>,
    /// Default features of unknown items, constant included.
    blank: &'a [f32],
}

impl<'a> Similarity<'a> {
    /// Similarity to an item with these `features`; `None` if they carry no information: they equal
    /// `blank`, the default of unknown items, or have only the constant.
    #[must_use]
    pub fn to(features: &[f32], blank: &'a [f32]) -> Option<Self> {
        let varying = varying(features);
        let length = kernel::dot(varying, varying).sqrt();
        let is_blank = features == blank || length <= 0.0;
        (!is_blank).then(|| Self { direction: varying.iter().map(|entry| entry / length).collect(), blank })
    }

    /// The cosine with the features of another item; `None` if these carry no information.
    #[must_use]
    pub fn cosine(&self, features: &[f32]) -> Option<f32> {
        let varying = varying(features);
        let length = kernel::dot(varying, varying).sqrt();
        let is_blank = features == self.blank || length <= 0.0;
        // Rounding may move a cosine slightly out of its range.
        (!is_blank).then(|| (kernel::dot(&self.direction, varying) / length).clamp(-1.0, 1.0))
    }

    /// The `k` most similar of all slots whose rows are allowed, by a parallel scan of the whole
    /// matrix; ties by row.
    #[must_use]
    pub fn search(&self, matrix: Matrix<'_>, rows: &[Row], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        let of_part = |(part, rows): (usize, &[Row])| {
            let mut best = Best::new(k);
            for (slot, row) in (part * PART..).zip(rows) {
                if allowed.contains(*row)
                    && let Some(cosine) = self.cosine(matrix.features(slot))
                {
                    best.offer(*row, cosine);
                }
            }
            best
        };
        let both = |mut left: Best, right: Best| {
            left.merge(right);
            left
        };
        rows.par_chunks(PART).enumerate().map(of_part).reduce(|| Best::new(k), both).into_hits()
    }
}

/// The features without the constant.
fn varying(features: &[f32]) -> &[f32] {
    features.split_last().map_or(&[], |(_constant, varying)| varying)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLANK: [f32; 3] = [0.5, 0.5, 1.0];

    fn cosine(left: [f32; 3], right: [f32; 3]) -> Option<f32> {
        Similarity::to(&left, &BLANK)?.cosine(&right)
    }

    #[test]
    fn the_cosine_ignores_length_and_constant() {
        assert_eq!(cosine([2.0, 0.0, 1.0], [7.0, 0.0, 1.0]), Some(1.0));
        assert_eq!(cosine([2.0, 0.0, 1.0], [0.0, 3.0, 1.0]), Some(0.0));
        assert_eq!(cosine([2.0, 0.0, 1.0], [-0.1, 0.0, 1.0]), Some(-1.0));
        let slant = cosine([3.0, 3.0, 1.0], [0.0, 2.0, 1.0]).unwrap_or_default();
        assert!((slant - std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-6, "{slant}");
    }

    #[test]
    fn blank_features_have_no_similarity() {
        for nothing in [[0.0, 0.0, 1.0], BLANK] {
            assert!(Similarity::to(&nothing, &BLANK).is_none());
            assert_eq!(cosine([1.0, 2.0, 1.0], nothing), None);
        }
        assert!(Similarity::to(&[1.0], &[1.0]).is_none(), "nothing but the constant");
    }

    #[test]
    fn the_most_alike_of_the_allowed_come_first() {
        let features = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.9, 1.0, 0.0, 0.0, 1.0, 5.0, 0.1, 1.0, 2.0, 0.0, 1.0];
        let (rows, offsets) = ([4, 8, 2, 1, 9, 0], [0.0; 6]);
        let matrix = Matrix::new(3, &features, &offsets);
        let similarity = Similarity::to(&[1.0, 0.0, 1.0], &BLANK).expect("it has a direction");
        let found = |k, allowed: &CandidateSet| -> Vec<Row> {
            similarity.search(matrix, &rows, k, allowed).iter().map(|hit| hit.row).collect()
        };
        assert_eq!(found(9, &CandidateSet::all(10)), [0, 4, 9, 2, 8], "ties by row, without blank features");
        assert_eq!(found(2, &CandidateSet::all(10)), [0, 4]);
        let mut some = CandidateSet::all(10);
        some.remove(0);
        some.remove(9);
        assert_eq!(found(9, &some), [4, 2, 8]);
    }
}
