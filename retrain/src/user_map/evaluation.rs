//! The errors of scores for users who are new, with a map from their attributes and without.

use std::sync::Arc;

use celeris_model::UserModel;

use super::Fit;
use crate::ratings::Entry;

/// Weighted squared errors of one user's scores, clipped to the range of the labels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Squares {
    without: f64,
    with: f64,
    weight: f64,
}

/// A user whom a map was not fitted to.
pub(super) struct HeldOutUser<'a> {
    pub(super) fit: &'a Fit<'a>,
    /// The user's ratings in their order.
    pub(super) entries: &'a [Entry],
    /// `Lambda q` by the map.
    pub(super) pull: Arc<[f32]>,
}

impl HeldOutUser<'_> {
    /// The errors of the ratings after the first `known`, by the posteriors of these; `None` if a state cannot be computed.
    pub(super) fn squares(self, known: usize) -> Option<Squares> {
        let (known, asked) = self.entries.split_at(known.min(self.entries.len()));
        let without = self.fit.state(known)?;
        let with = without.clone().with_profile(Some(Arc::clone(&self.pull)));
        let mut squares = Squares::default();
        for entry in asked {
            let weight = f64::from(entry.weight);
            squares.without += weight * self.square(&without, entry);
            squares.with += weight * self.square(&with, entry);
            squares.weight += weight;
        }
        Some(squares)
    }

    fn square(&self, state: &UserModel, entry: &Entry) -> f64 {
        let example = self.fit.example(entry);
        let score = example.offset + state.response(example.features);
        let (low, high) = self.fit.input.trained.label_range;
        f64::from(entry.label - score.clamp(low, high)).powi(2)
    }
}

/// RMSE of all ratings: without the map, and with it.
pub(super) fn rmse_of(users: &[Squares]) -> [f64; 2] {
    let sum = |of: fn(&Squares) -> f64| users.iter().map(of).sum::<f64>();
    let weight = sum(|squares| squares.weight);
    [sum(|squares| squares.without), sum(|squares| squares.with)].map(|squares| (squares / weight).sqrt())
}

/// By how much the map lowers the squared errors of these users, in sum and as standard error of the sum.
pub(super) fn gain_of(users: &[Squares]) -> (f64, f64) {
    let gains: Vec<f64> = users.iter().map(|squares| squares.without - squares.with).collect();
    let (sum, count) = (gains.iter().sum::<f64>(), gains.len() as f64);
    let spread: f64 = gains.iter().map(|gain| (gain - sum / count).powi(2)).sum();
    (sum, spread.sqrt())
}
