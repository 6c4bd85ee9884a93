//! The best-first order of candidates, as far as a ranking needs it.
//!
//! Greater values are better; ties go to the earlier candidate.

use std::cmp::Ordering;

#[derive(Clone, Copy)]
struct Valued {
    value: f64,
    candidate: usize,
}

fn best_first(left: &Valued, right: &Valued) -> Ordering {
    right.value.total_cmp(&left.value).then(left.candidate.cmp(&right.candidate))
}

/// The best `min(k, n)` of the candidates `0..n`, best first, in O(n + k log k) time and O(k)
/// memory.
///
/// Candidates at or below the k-th best so far are skipped; the others are collected in a buffer of
/// `2k`, which is reduced to its best `k` by selection whenever it is full. So the cost stays
/// linear even for ascending values, the worst case of a heap. `value` is called once for each
/// candidate, in order.
pub(crate) fn top_k(n: usize, k: usize, mut value: impl FnMut(usize) -> f64) -> Vec<usize> {
    let k = k.min(n);
    if k == 0 {
        return Vec::new();
    }
    let capacity = k.saturating_mul(2).min(n);
    let mut kept: Vec<Valued> = Vec::with_capacity(capacity);
    let mut threshold = f64::NEG_INFINITY;
    for candidate in 0..n {
        // Adding zero makes -0 and 0 equal; a later candidate with an equal value is never better.
        let value = value(candidate) + 0.0;
        if value <= threshold {
            continue;
        }
        kept.push(Valued { value, candidate });
        if kept.len() == 2 * k {
            let (_, kth, _) = kept.select_nth_unstable_by(k - 1, best_first);
            threshold = kth.value;
            kept.truncate(k);
        }
    }
    kept.sort_unstable_by(best_first);
    kept.truncate(k);
    kept.into_iter().map(|valued| valued.candidate).collect()
}

/// The best remaining candidate, while up to `k` of `n` are removed in any order.
pub(crate) struct BestRemaining {
    /// The best `k`: while fewer than `k` are taken, the best remaining one is among them.
    order: Vec<usize>,
    /// All positions of `order` before this one are taken.
    next: usize,
    /// Length `n`.
    taken: Vec<bool>,
}

impl BestRemaining {
    pub(crate) fn new(n: usize, k: usize, value: impl Fn(usize) -> f64) -> Self {
        Self { order: top_k(n, k, value), next: 0, taken: vec![false; n] }
    }

    /// The best candidate not taken, in O(1) amortised over a ranking.
    ///
    /// The caller guarantees that fewer than `min(k, n)` have been taken.
    pub(crate) fn best(&mut self) -> usize {
        while self.taken[self.order[self.next]] {
            self.next += 1;
        }
        self.order[self.next]
    }

    pub(crate) fn take(&mut self, candidate: usize) {
        self.taken[candidate] = true;
    }
}

/// For each slot of a ranking, whether it shows the best of the candidates that are not above it.
pub(crate) fn shows_best(n: usize, ranking: &[usize], value: impl Fn(usize) -> f64) -> impl Iterator<Item = bool> {
    let mut remaining = BestRemaining::new(n, ranking.len(), value);
    ranking.iter().map(move |candidate| {
        let best = remaining.best();
        remaining.take(*candidate);
        best == *candidate
    })
}
