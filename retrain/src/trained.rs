//! The result of a training, in memory.

use std::collections::BTreeMap;

use celeris_features::ColdItem;
use celeris_model::{Estimate, Example, Learning, Prior, Timestamp, UserModel};

use crate::ratings::Rating;
use crate::state::TrainerState;

/// Metrics of a training run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Number of ratings.
    pub ratings: usize,
    /// Number of users, with or without ratings.
    pub users: usize,
    /// Number of items, with or without ratings.
    pub items: usize,
    /// The tuned or given regularization.
    pub regularization: f64,
    /// Number of iterations of the final training.
    pub iterations: usize,
    /// The tuned scale of the prior precision.
    pub prior_scale: f64,
    /// RMSE of the served posterior on held-out ratings; `None` if there were too few to hold out.
    pub validation_rmse: Option<f64>,
    /// Expected percentile rank of held-out pairs (Hu et al. 2008, eq. 8), 0.5 by chance; implicit
    /// feedback only.
    pub validation_percentile_rank: Option<f64>,
    /// Recall at 10 of held-out items; implicit feedback only.
    pub validation_recall_at_10: Option<f64>,
    /// Mean log loss of the served posterior on held-out labels; clicks only.
    pub validation_log_loss: Option<f64>,
    /// The same for the base rate alone.
    pub base_rate_log_loss: Option<f64>,
    /// RMSE of the trainer's own weights on the training data: of labels, probabilities or
    /// preferences.
    pub train_rmse: f64,
    /// `sigma^2`: from held-out ratings, otherwise the trainer's own estimate.
    pub noise_variance: f64,
    /// Condition number of `Lambda`.
    pub prior_condition: f64,
}

impl Metrics {
    /// The metrics by name, for a version's manifest.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, f64> {
        let mut metrics: BTreeMap<String, f64> = [
            ("ratings", self.ratings as f64),
            ("users", self.users as f64),
            ("items", self.items as f64),
            ("regularization", self.regularization),
            ("iterations", self.iterations as f64),
            ("prior_scale", self.prior_scale),
            ("train_rmse", self.train_rmse),
            ("noise_variance", self.noise_variance),
            ("prior_condition", self.prior_condition),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        let held_out = [
            ("validation_rmse", self.validation_rmse),
            ("validation_percentile_rank", self.validation_percentile_rank),
            ("validation_recall_at_10", self.validation_recall_at_10),
            ("validation_log_loss", self.validation_log_loss),
            ("base_rate_log_loss", self.base_rate_log_loss),
        ];
        metrics.extend(held_out.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        metrics
    }
}

/// A trained version, in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// Length of feature and weight vectors.
    pub dim: usize,
    /// Length `items`.
    pub item_offsets: Vec<f32>,
    /// Row-major `items x dim`: unit RMS per column over the rated items, the last column exactly 1. Items without
    /// ratings have the cold item's row.
    pub item_features: Vec<f32>,
    /// Row-major `users x dim`: the trainer's own weights, which are not served.
    pub user_weights: Vec<f32>,
    /// Row-major `items x dim`: the choice vectors of the items; empty for a version without.
    pub choices: Vec<f32>,
    /// Length `items`: what the uncertainty of an item adds to the variance of a score; empty for a version that does not
    /// know.
    pub variances: Vec<f32>,
    /// That of an item of which nothing is known; 0 for a version that does not know.
    pub cold_variance: f32,
    /// Row-major `items x dim`: `Lambda y` for each choice vector `y`; empty for a version without.
    pub pulls: Vec<f32>,
    /// The prior of all users.
    pub prior: Prior,
    /// Offset and features of items that were not trained.
    pub cold_item: ColdItem,
    /// The smallest and largest label.
    pub label_range: (f32, f32),
    pub metrics: Metrics,
    /// State for a warm start, see [`crate::Parent`]; `None` for a version of an external engine.
    pub state: Option<TrainerState>,
}

impl Trained {
    /// The rating as an example for a served user state, as the first one of its user and item. For
    /// repeated pairs under implicit loss, use [`celeris_model::preference::Takings`].
    ///
    /// The caller guarantees that the item's index is below the number of items in the training.
    #[must_use]
    pub fn example(&self, rating: &Rating) -> Example<'_> {
        let item = rating.item as usize;
        Example {
            features: &self.item_features[item * self.dim..][..self.dim],
            label: rating.label,
            offset: self.item_offsets[item],
            weight: rating.weight,
            timestamp: Timestamp::default(),
            taken_before: None,
            choice: self.pulls.get(item * self.dim..(item + 1) * self.dim).unwrap_or_default(),
        }
    }

    /// The estimate of a served user state for the item of `rating`, as a node gives it.
    ///
    /// The caller guarantees that the item's index is below the number of items in the training.
    #[must_use]
    pub fn estimate(&self, state: &UserModel, learning: &Learning, rating: &Rating) -> Estimate {
        let Example { offset, features, .. } = self.example(rating);
        let variance = self.variances.get(rating.item as usize).copied().unwrap_or_default();
        learning.widened(state.estimate(learning, offset, features), f64::from(variance))
    }

    /// The trainer's own weights of a user, length `dim`.
    ///
    /// The caller guarantees that the user's index is below the number of users in the training.
    #[must_use]
    pub fn own_weights(&self, user: u32) -> &[f32] {
        &self.user_weights[user as usize * self.dim..][..self.dim]
    }
}
