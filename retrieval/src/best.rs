//! The best hits of a search so far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::{Hit, Row};

/// Keeps the `k` best of the hits it is offered: higher scores first, and of equal scores the lower row. What it keeps is
/// a function of the hits alone, not of their order.
#[derive(Debug, Clone)]
pub struct Best {
    k: usize,
    /// The worst hit that is kept is on top.
    kept: BinaryHeap<Worse>,
}

/// A hit in the order of a heap whose greatest entry is the worst.
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

/// `Less` where `left` is the better of the two.
fn order(left: &Hit, right: &Hit) -> Ordering {
    key(right.score).total_cmp(&key(left.score)).then(left.row.cmp(&right.row))
}

/// Scores compare as numbers: both zeros are equal, and what is no number is below all that are.
fn key(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 }
}

impl Best {
    /// Keeps at most `k` hits; memory grows with those it is offered only.
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

    /// A hit with a score below this cannot be kept any more; one that reaches it may be.
    #[inline]
    #[must_use]
    pub fn floor(&self) -> f32 {
        match self.kept.peek() {
            Some(worst) if self.kept.len() == self.k => key(worst.0.score),
            None if self.k == 0 => f32::INFINITY,
            _ => f32::NEG_INFINITY,
        }
    }

    /// How many hits are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Another one for as many hits, without any.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::new(self.k)
    }

    /// Takes over what another one kept.
    pub fn merge(&mut self, other: Self) {
        for Worse(hit) in other.kept {
            self.offer(hit.row, hit.score);
        }
    }

    /// What was kept, best first.
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
    fn equal_scores_are_ordered_by_row_whatever_came_first() {
        let forwards = [(1, 2.0), (2, 3.0), (3, 2.0), (4, 2.0)];
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        assert_eq!(best(3, &forwards), [(2, 3.0), (1, 2.0), (3, 2.0)]);
        assert_eq!(best(3, &backwards), best(3, &forwards));
        assert_eq!(best(1, &[(7, 0.0), (3, -0.0)])[0].0, 3, "both zeros are one score");
        assert_eq!(best(2, &[(1, f32::NAN), (2, -1.0), (3, -2.0)]), [(2, -1.0), (3, -2.0)]);
    }

    #[test]
    fn nothing_is_below_the_floor_before_there_are_k() {
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
