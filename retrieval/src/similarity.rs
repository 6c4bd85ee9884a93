//! Items like an item: those whose features point the same way.

use celeris_model::kernel;
use rayon::prelude::*;

use crate::best::Best;
use crate::table::Matrix;
use crate::{CandidateSet, Hit, Row};

/// Slots that are compared by one thread at a time: a millisecond's work.
const PART: usize = 16_384;

/// The direction of an item's features, to compare others with by the cosine of the angle between: 1 for the same
/// direction, 0 for nothing in common, -1 for the opposite. The constant at the end of features is left out.
#[derive(Debug, Clone)]
pub struct Similarity<'a> {
    /// Of length 1, without the constant.
    direction: Vec<f32>,
    /// Features that say nothing of an item, constant included.
    blank: &'a [f32],
}

impl<'a> Similarity<'a> {
    /// Similarity to an item of these `features`; `None` where they say nothing of it: they are `blank`, which stands in
    /// for items that nothing is known of, or nothing but the constant.
    #[must_use]
    pub fn to(features: &[f32], blank: &'a [f32]) -> Option<Self> {
        let varying = varying(features);
        let length = kernel::dot(varying, varying).sqrt();
        let says_nothing = features == blank || length <= 0.0;
        (!says_nothing).then(|| Self { direction: varying.iter().map(|entry| entry / length).collect(), blank })
    }

    /// The cosine with the features of another item; `None` where they say nothing of it.
    #[must_use]
    pub fn cosine(&self, features: &[f32]) -> Option<f32> {
        let varying = varying(features);
        let length = kernel::dot(varying, varying).sqrt();
        let says_nothing = features == self.blank || length <= 0.0;
        // Rounding may put a cosine a little beyond its range.
        (!says_nothing).then(|| (kernel::dot(&self.direction, varying) / length).clamp(-1.0, 1.0))
    }

    /// The `k` most like it of all slots whose rows are allowed, by a pass over the whole matrix on all
    /// processors; equal ones by row.
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
    fn direction_counts_and_neither_length_nor_the_constant_does() {
        assert_eq!(cosine([2.0, 0.0, 1.0], [7.0, 0.0, 1.0]), Some(1.0));
        assert_eq!(cosine([2.0, 0.0, 1.0], [0.0, 3.0, 1.0]), Some(0.0));
        assert_eq!(cosine([2.0, 0.0, 1.0], [-0.1, 0.0, 1.0]), Some(-1.0));
        let slant = cosine([3.0, 3.0, 1.0], [0.0, 2.0, 1.0]).unwrap_or_default();
        assert!((slant - std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-6, "{slant}");
    }

    #[test]
    fn what_nothing_is_known_of_is_like_nothing() {
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
        let wanted = Similarity::to(&[1.0, 0.0, 1.0], &BLANK).expect("it has a direction");
        let found = |k, allowed: &CandidateSet| -> Vec<Row> {
            wanted.search(matrix, &rows, k, allowed).iter().map(|hit| hit.row).collect()
        };
        assert_eq!(found(9, &CandidateSet::all(10)), [0, 4, 9, 2, 8], "equal ones by row, and not what says nothing");
        assert_eq!(found(2, &CandidateSet::all(10)), [0, 4]);
        let mut some = CandidateSet::all(10);
        some.remove(0);
        some.remove(9);
        assert_eq!(found(9, &some), [4, 2, 8]);
    }
}
