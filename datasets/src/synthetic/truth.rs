//! The true parameters behind the generated ratings.

use std::collections::HashMap;

use celeris_model::{ItemId, UserId};

use super::genres::GENRES;

/// The true split model behind synthetic ratings: `expected(u, i) = offset_i + w_u · f_i`, before
/// noise, rounding to half stars and clipping.
///
/// The axes are the genres, then, if `true_dim` is larger, style axes that no title shows, and last
/// the constant 1, whose weight is the user's generosity.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    pub(super) dim: usize,
    pub(super) offsets: Vec<f32>,
    /// Row-major, `items x dim`.
    pub(super) features: Vec<f32>,
    /// Row-major, `users x dim`.
    pub(super) weights: Vec<f32>,
    pub(super) users: HashMap<UserId, usize>,
    pub(super) items: HashMap<ItemId, usize>,
}

impl Truth {
    /// Length of a user's weights and of an item's features, including the constant.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The axis of this genre.
    #[must_use]
    pub fn axis_of(&self, genre: &str) -> Option<usize> {
        GENRES.iter().position(|known| known.name == genre).filter(|axis| axis + 1 < self.dim)
    }

    /// The item's mean rating by the average user, in stars.
    #[must_use]
    pub fn offset(&self, item: &ItemId) -> Option<f32> {
        self.items.get(item).map(|row| self.offsets[*row])
    }

    /// The item's features, length `dim`, the last 1.
    #[must_use]
    pub fn features(&self, item: &ItemId) -> Option<&[f32]> {
        self.items.get(item).map(|row| &self.features[row * self.dim..][..self.dim])
    }

    /// The user's weights, length `dim`.
    #[must_use]
    pub fn weights(&self, user: &UserId) -> Option<&[f32]> {
        self.users.get(user).map(|row| &self.weights[row * self.dim..][..self.dim])
    }

    /// The label that this user gives this item on average, before rounding and clipping; `None` if
    /// either is unknown.
    #[must_use]
    pub fn expected(&self, user: &UserId, item: &ItemId) -> Option<f64> {
        Some(self.expected_at(*self.users.get(user)?, *self.items.get(item)?))
    }

    pub(super) fn expected_at(&self, user: usize, item: usize) -> f64 {
        let weights = &self.weights[user * self.dim..][..self.dim];
        let features = &self.features[item * self.dim..][..self.dim];
        let response: f64 = weights.iter().zip(features).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
        f64::from(self.offsets[item]) + response
    }
}
