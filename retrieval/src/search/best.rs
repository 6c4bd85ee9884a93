//! The top `k` hits of a search.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::{Hit, Row};

/// Keeps the `k` best of the offered hits: higher scores first, and lower rows first among equal
/// scores. The result is a function of the hits alone, not of their order.
#[derive(Debug, Clone)]
pub struct Best {
    k: usize,
    /// The worst kept hit is on top.
    kept: BinaryHeap<Worse>,
}

/// A hit in the order of a max-heap whose greatest entry is the worst.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Worse(Hit);

impl Eq for Worse {}

impl Ord for Worse {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

impl PartialOrd for Worse {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `Less` if `left` is better.
fn order(left: &Hit, right: &Hit) -> Ordering {
    key(right.score).total_cmp(&key(left.score)).then(left.row.cmp(&right.row))
}

/// Comparison key of a score: both zeros are equal, and NaN is below all numbers.
fn key(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 }
}

impl Best {
    /// Keeps at most `k` hits; memory grows only with offered hits.
    #[must_use]
    pub fn new(k: usize) -> Self {
        Self { k, kept: BinaryHeap::new() }
    }

    /// Keeps a hit if it is one of the `k` best.
    #[inline]
    pub fn offer(&mut self, row: Row, score: f32) {
        let hit = Worse(Hit { row, score });
        if self.kept.len() < self.k {
            self.kept.push(hit);
        } else if let Some(mut worst) = self.kept.peek_mut().filter(|worst| hit < **worst) {
            *worst = hit;
        }
    }

    /// The least score with which a hit can still be kept.
    #[inline]
    #[must_use]
    pub fn floor(&self) -> f32 {
        match self.kept.peek() {
            Some(worst) if self.kept.len() == self.k => key(worst.0.score),
            None if self.k == 0 => f32::INFINITY,
            _ => f32::NEG_INFINITY,
        }
    }

    /// An empty instance with the same `k`.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::new(self.k)
    }

    /// Adds the hits of another instance.
    pub fn merge(&mut self, other: Self) {
        for Worse(hit) in other.kept {
            self.offer(hit.row, hit.score);
        }
    }

    /// The kept hits, best first.
    #[must_use]
    pub fn into_hits(self) -> Vec<Hit> {
        self.kept.into_sorted_vec().into_iter().map(|Worse(hit)| hit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(k: usize, hits: &[(Row, f32)]) -> Vec<(Row, f32)> {
        let mut best = Best::new(k);
        for (row, score) in hits {
            best.offer(*row, *score);
        }
        best.into_hits().iter().map(|hit| (hit.row, hit.score)).collect()
    }

    #[test]
    fn equal_scores_are_ordered_by_row_in_any_order_of_offers() {
        let forwards = [(1, 2.0), (2, 3.0), (3, 2.0), (4, 2.0)];
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        assert_eq!(best(3, &forwards), [(2, 3.0), (1, 2.0), (3, 2.0)]);
        assert_eq!(best(3, &backwards), best(3, &forwards));
        assert_eq!(best(1, &[(7, 0.0), (3, -0.0)])[0].0, 3, "both zeros are one score");
        assert_eq!(best(2, &[(1, f32::NAN), (2, -1.0), (3, -2.0)]), [(2, -1.0), (3, -2.0)]);
    }

    #[test]
    fn there_is_no_floor_before_k_hits_are_kept() {
        let mut best = Best::new(2);
        assert_eq!(best.floor(), f32::NEG_INFINITY);
        best.offer(1, 5.0);
        assert_eq!(best.floor(), f32::NEG_INFINITY);
        best.offer(2, 4.0);
        assert_eq!(best.floor(), 4.0);
        best.offer(3, 4.5);
        assert_eq!(best.floor(), 4.5);
        assert_eq!(Best::new(0).floor(), f32::INFINITY);
    }
}
