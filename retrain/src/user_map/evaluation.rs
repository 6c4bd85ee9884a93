//! The errors of scores for users who are new, with a map from their attributes and without.

use std::sync::Arc;

use celeris_model::UserModel;

use super::Fit;
use crate::ratings::Entry;

/// Labels known of a user who is hardly new any more.
const FEW: usize = 5;

/// Weighted squared errors of one user's scores, clipped to the range of the labels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Squares {
    without: f64,
    with: f64,
    weight: f64,
}

/// The errors of a user whom a map was not fitted to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stages {
    /// While no label is known.
    pub(super) new: Squares,
    /// After [`FEW`] labels.
    pub(super) few: Squares,
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
    /// `None` if a state cannot be computed.
    pub(super) fn stages(self) -> Option<Stages> {
        let few = self.entries.len().min(FEW);
        Some(Stages { new: self.squares(0)?, few: self.squares(few)? })
    }

    /// The errors of the ratings after the first `known`, by the posteriors of these.
    fn squares(&self, known: usize) -> Option<Squares> {
        let (known, asked) = self.entries.split_at(known);
        let mut squares = Squares::default();
        if asked.is_empty() {
            return Some(squares);
        }
        let without = self.fit.state(known)?;
        let with = without.clone().with_profile(self.fit.learning, Some(Arc::clone(&self.pull)));
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

/// RMSE of all ratings in a stage: without the map, and with it.
pub(super) fn rmse_of(users: &[Stages], stage: fn(&Stages) -> Squares) -> [f64; 2] {
    let sum = |of: fn(Squares) -> f64| users.iter().map(|user| of(stage(user))).sum::<f64>();
    let weight = sum(|squares| squares.weight);
    [sum(|squares| squares.without), sum(|squares| squares.with)].map(|squares| (squares / weight).sqrt())
}

/// The squared errors with the map, of both stages together.
pub(super) fn error_of(users: &[Stages]) -> f64 {
    users.iter().map(|user| user.new.with + user.few.with).sum()
}

/// Whether the map lowers the squared errors of both stages together by more than the standard error of that.
pub(super) fn helps(users: &[Stages]) -> bool {
    let gain = |squares: Squares| squares.without - squares.with;
    let gains: Vec<f64> = users.iter().map(|user| gain(user.new) + gain(user.few)).collect();
    let (sum, count) = (gains.iter().sum::<f64>(), gains.len() as f64);
    let spread: f64 = gains.iter().map(|gain| (gain - sum / count).powi(2)).sum();
    sum > spread.sqrt()
}
