//! Diverse rankings by maximal marginal relevance.
//!
//! Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and
//! producing summaries" (SIGIR 1998): each slot goes to the item that is relevant and differs from
//! the slots above.

/// Items to be reordered: `n`, best first.
pub(crate) struct Relevant<'a> {
    /// Length `n`: the scores by which they are ranked.
    pub(crate) scores: &'a [f32],
    /// Length `n`: features without the constant, all of one length.
    pub(crate) features: Vec<&'a [f32]>,
}

/// The first `k` of an order in which each slot has the greatest `(1 - diversity) · relevance -
/// diversity · similarity`: relevance is the score, scaled to 0 for the lowest and 1 for the
/// highest of the `n`, so that it is comparable with a cosine; similarity is the greatest cosine
/// with the features of a slot above, 0 for the first slot. Ties go to the earlier item.
///
/// The paper's `lambda` is `1 - diversity`. Takes O(n k dim).
pub(crate) fn marginal_relevance(relevant: &Relevant<'_>, diversity: f32, k: usize) -> Vec<usize> {
    let Relevant { scores, features } = relevant;
    let (least, greatest) = scores
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(least, greatest), score| (least.min(*score), greatest.max(*score)));
    let span = greatest - least;
    let relevance = |index: usize| if span > 0.0 { (scores[index] - least) / span } else { 1.0 };
    let norms: Vec<f32> = features.iter().map(|row| dot(row, row).sqrt()).collect();
    let mut similarity: Vec<Option<f32>> = vec![None; scores.len()];
    let mut left: Vec<usize> = (0..scores.len()).collect();
    let mut order = Vec::with_capacity(k.min(left.len()));
    while order.len() < k && !left.is_empty() {
        let marginal =
            |index: usize| (1.0 - diversity) * relevance(index) - diversity * similarity[index].unwrap_or(0.0);
        let mut best = 0;
        for place in 1..left.len() {
            if marginal(left[place]) > marginal(left[best]) {
                best = place;
            }
        }
        // Keeps the order of the others, so that ties go to the earlier item.
        let chosen = left.remove(best);
        order.push(chosen);
        for &other in &left {
            let both = norms[other] * norms[chosen];
            let cosine = if both > 0.0 { dot(features[other], features[chosen]) / both } else { 0.0 };
            similarity[other] = Some(similarity[other].map_or(cosine, |before| before.max(cosine)));
        }
    }
    order
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two similar items, one orthogonal, one opposite.
    const FEATURES: [[f32; 2]; 4] = [[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [-1.0, 0.0]];
    const SCORES: [f32; 4] = [4.0, 3.9, 3.0, 0.0];

    fn order(diversity: f32, k: usize) -> Vec<usize> {
        let features = FEATURES.iter().map(|row| row.as_slice()).collect();
        marginal_relevance(&Relevant { scores: &SCORES, features }, diversity, k)
    }

    #[test]
    fn diversity_separates_similar_items() {
        assert_eq!(order(0.0, 4), [0, 1, 2, 3]);
        assert_eq!(order(0.3, 4), [0, 2, 1, 3], "0.7 · 0.75 against 0.7 · 0.975 - 0.3 · 0.995 for the twin");
        assert_eq!(order(1.0, 2), [0, 3], "the opposite is the least like it");
        assert_eq!(order(0.5, 0), Vec::<usize>::new());
        assert_eq!(order(0.3, 9).len(), 4, "there are no more");
    }

    #[test]
    fn items_without_features_keep_their_order() {
        let flat = marginal_relevance(&Relevant { scores: &[2.0; 3], features: vec![&[0.0], &[0.0], &[0.0]] }, 0.5, 3);
        assert_eq!(flat, [0, 1, 2]);
    }
}
