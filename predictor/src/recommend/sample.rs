//! Uniform sampling of allowed rows.

use celeris_retrieval::{CandidateSet, Row};
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

/// `min(n, count)` distinct rows of `allowed` in random order, each set and order equally likely.
/// Scans the words of the set once.
pub(crate) fn sample(allowed: &CandidateSet, n: usize, rng: &mut ChaCha8Rng) -> Vec<Row> {
    let drawn = index::sample(rng, allowed.count(), n.min(allowed.count())).into_vec();
    // Sorted by rank, so that one pass finds all rows.
    let mut ranks: Vec<(usize, usize)> = drawn.iter().copied().zip(0..).collect();
    ranks.sort_unstable();
    let mut rows: Vec<Row> = vec![0; ranks.len()];
    let mut before = 0;
    let mut ranks = ranks.into_iter().peekable();
    for (at, word) in allowed.words().iter().enumerate() {
        let ones = word.count_ones() as usize;
        while let Some((rank, place)) = ranks.next_if(|(rank, _)| *rank < before + ones) {
            let row = at * u64::BITS as usize + nth_one(*word, rank - before);
            rows[place] = Row::try_from(row).expect("a set of rows has no bit behind the last row");
        }
        before += ones;
    }
    rows
}

/// The position of the one bit with `n` ones below it.
fn nth_one(mut word: u64, n: usize) -> usize {
    for _ in 0..n {
        word &= word - 1;
    }
    word.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    /// The 99.9 % quantile of chi-square with 36 degrees of freedom.
    const CHI_SQUARE_MAX: f64 = 67.98;

    #[test]
    fn rows_are_drawn_uniformly_without_replacement() {
        let mut allowed = CandidateSet::none();
        (0..37).for_each(|row| allowed.insert(row * row));
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut drawn, rounds, n) = (vec![0_u32; 37], 4_000, 5);
        let mut first = drawn.clone();
        for _ in 0..rounds {
            let mut rows = sample(&allowed, n, &mut rng);
            assert!(rows.iter().all(|row| allowed.contains(*row)));
            first[rows[0].isqrt() as usize] += 1;
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), n);
            rows.iter().for_each(|row| drawn[row.isqrt() as usize] += 1);
        }
        // Sampling without replacement has less variance than chi-square assumes.
        for (counts, expected) in [(&drawn, f64::from(rounds) * 5.0 / 37.0), (&first, f64::from(rounds) / 37.0)] {
            let chi_square: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
            assert!(chi_square < CHI_SQUARE_MAX, "{chi_square}");
        }
        assert_eq!(sample(&allowed, 100, &mut rng).len(), 37, "there are no more");
        assert!(sample(&CandidateSet::none(), 3, &mut rng).is_empty());
    }
}
