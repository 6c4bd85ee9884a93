//! The best-first order of candidates, as much of it as a ranking needs.
//!
//! Everywhere the greater value is the better, and of equal values the one that comes first among the candidates.

use std::cmp::Ordering;

/// A candidate with the value it is ordered by.
#[derive(Clone, Copy)]
struct Valued {
    value: f64,
    candidate: usize,
}

fn best_first(left: &Valued, right: &Valued) -> Ordering {
    right.value.total_cmp(&left.value).then(left.candidate.cmp(&right.candidate))
}

/// The best `min(k, n)` of the candidates `0..n`, best first, in O(n + k log k) time and O(k) memory.
///
/// Candidates at or below the k-th best so far are passed over; the others gather in a buffer of `2k`, which is cut
/// back to its best `k` by selection whenever it is full. So the cost stays linear even where values come in rising
/// order, which is the worst case of a heap. `value` is asked once for each candidate, in their order.
pub(crate) fn top_k(n: usize, k: usize, mut value: impl FnMut(usize) -> f64) -> Vec<usize> {
    let k = k.min(n);
    if k == 0 {
        return Vec::new();
    }
    let capacity = k.saturating_mul(2).min(n);
    let mut kept: Vec<Valued> = Vec::with_capacity(capacity);
    let mut threshold = f64::NEG_INFINITY;
    for candidate in 0..n {
        // Adding zero makes -0 and 0 the tie that they are; an equal value that comes later is never the better one.
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

/// The best candidate that is left, while up to `k` are taken out of `n` from anywhere.
pub(crate) struct BestRemaining {
    /// The best `k`: with fewer than `k` taken, the best that remains is among them.
    order: Vec<usize>,
    /// Everything before this position of `order` is taken.
    next: usize,
    /// Length `n`.
    taken: Vec<bool>,
}

impl BestRemaining {
    pub(crate) fn new(n: usize, k: usize, value: impl Fn(usize) -> f64) -> Self {
        Self { order: top_k(n, k, value), next: 0, taken: vec![false; n] }
    }

    /// The best of those not taken, in O(1) amortised over a ranking.
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
