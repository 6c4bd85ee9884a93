//! The built-in trainer.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use celeris_features::ColdItem;
use celeris_features::table::check_features;
use celeris_model::{Example, Loss, Prior, Timestamp};
use rayon::ThreadPoolBuilder;

use crate::error::RetrainError;
use crate::implicit_train::train_implicit;
use crate::learn::{Learnt, Pinned, Prepared, Recipe, learn};
use crate::logistic::train_logistic;
use crate::prior_fit::fit_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ratings::{Rating, Ratings};
use crate::state::{Settled, TrainerState};
use crate::tuning::{Tuned, tune};

/// Largest `dim`: beyond it, the state of a single user takes megabytes.
pub use celeris_formats::version_dir::DIM_MAX;

/// Largest number of iterations that can be configured.
pub const ITERATIONS_LIMIT: usize = 1000;

/// Settings of the caller; all others are tuned on held-out ratings.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainSettings {
    /// Length of feature and weight vectors, including the constant: with `dim` 20, 17 latent factors, two side
    /// features, and 1.
    pub dim: usize,
    /// Seed of the factors and of the choice of held-out ratings. Equal seeds and ratings give equal bytes.
    pub seed: u64,
    /// Number of training threads; does not affect the result.
    pub threads: NonZeroUsize,
    /// Maximum number of iterations.
    pub iterations_max: usize,
    /// Share of the partners' variances in every row's ridge; `None` tunes it.
    pub regularization: Option<f64>,
    /// The loss, which selects the trainer: for graded labels, clicks, or implicit feedback, where `regularization` is
    /// the `lambda` of Hu et al. (2008).
    pub loss: Loss,
}

impl TrainSettings {
    /// Default maximum number of iterations.
    pub const ITERATIONS_MAX: usize = 30;

    /// Settings with everything tuned, on one thread.
    #[must_use]
    pub fn new(dim: usize, seed: u64) -> Self {
        Self {
            dim,
            seed,
            threads: NonZeroUsize::MIN,
            iterations_max: Self::ITERATIONS_MAX,
            regularization: None,
            loss: Loss::Squared,
        }
    }

    pub(crate) fn check(&self) -> Result<(), RetrainError> {
        let within = |what, range, value: usize, max| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(RetrainError::Setting { what, range, value: value.to_string() })
        };
        within("dim", "1 to 512", self.dim, DIM_MAX)?;
        within("iterations_max", "1 to 1000", self.iterations_max, ITERATIONS_LIMIT)?;
        match self.regularization {
            Some(value) if !(0.0..=100.0).contains(&value) => {
                let range = "between 0 and 100";
                Err(RetrainError::Setting { what: "regularization", range, value: value.to_string() })
            }
            _ => Ok(()),
        }
    }
}

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
    /// Expected percentile rank of held-out pairs (Hu et al. 2008, eq. 8), 0.5 by chance; implicit feedback only.
    pub validation_percentile_rank: Option<f64>,
    /// Recall at 10 of held-out items; implicit feedback only.
    pub validation_recall_at_10: Option<f64>,
    /// Mean log loss of the served posterior on held-out labels; clicks only.
    pub validation_log_loss: Option<f64>,
    /// The same for the base rate alone.
    pub base_rate_log_loss: Option<f64>,
    /// RMSE of the trainer's own weights on the training data: of labels, probabilities or preferences.
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
    /// The prior of all users.
    pub prior: Prior,
    /// Offset and features of items that were not trained.
    pub cold_item: ColdItem,
    /// The smallest and largest label.
    pub label_range: (f32, f32),
    pub metrics: Metrics,
    /// State for a warm start, see [`mod@crate::refresh`]; `None` for a version of an external engine.
    pub state: Option<TrainerState>,
}

impl Trained {
    /// The rating as an example for a served user state, as the first one of its user and item. For repeated pairs
    /// under implicit loss, use [`celeris_model::preference::Takings`].
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
        }
    }

    /// The trainer's own weights of a user, length `dim`.
    ///
    /// The caller guarantees that the user's index is below the number of users in the training.
    #[must_use]
    pub fn own_weights(&self, user: u32) -> &[f32] {
        &self.user_weights[user as usize * self.dim..][..self.dim]
    }
}

/// Trains on `ratings`: tunes settings on held-out ratings, then trains on all.
///
/// The result depends on ratings, settings and pinned features, not on the number of threads.
///
/// # Errors
/// `Setting`, `IndexOutOfRange` or `Prior` for invalid input, `Threads` if the threads cannot be started.
pub fn train(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    check(ratings, settings, pinned)?;
    let pool = ThreadPoolBuilder::new().num_threads(settings.threads.get()).build()?;
    pool.install(|| match settings.loss {
        Loss::Squared => train_squared(ratings, settings, pinned, progress),
        Loss::Logistic => train_logistic(ratings, settings, pinned, progress),
        Loss::Implicit => train_implicit(ratings, settings, pinned, progress),
    })
}

/// Checks the input of a training.
pub(crate) fn check(ratings: &Ratings, settings: &TrainSettings, pinned: &Pinned) -> Result<(), RetrainError> {
    settings.check()?;
    check_pinned(ratings, settings.dim, pinned)
}

fn train_squared(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    let regularization = settings.regularization.unwrap_or_default();
    let recipe = Recipe { dim: settings.dim, seed: settings.seed, regularization, pinned };
    let tuned = tune(ratings, recipe, settings, progress)?;
    let recipe = Recipe { regularization: tuned.regularization, ..recipe };
    let learnt = learn(ratings, &Prepared::of(ratings, settings.dim)?, recipe, |iteration, _| {
        progress.report(Step { phase: Phase::Training, fraction: iteration as f32 / tuned.iterations as f32 });
        iteration >= tuned.iterations
    })?;
    finish(ratings, learnt, tuned)
}

fn check_pinned(ratings: &Ratings, dim: usize, pinned: &Pinned) -> Result<(), RetrainError> {
    let (expected, received) = (pinned.items.len() * dim, pinned.features.len());
    if expected != received {
        return Err(celeris_model::ModelError::DimMismatch { what: "pinned features", expected, received }.into());
    }
    for (row, item) in pinned.items.iter().enumerate() {
        let count = ratings.items();
        if *item as usize >= count {
            return Err(RetrainError::IndexOutOfRange { row, what: "pinned item", index: *item, count });
        }
    }
    Ok(pinned.features.chunks_exact(dim).try_for_each(|row| check_features(row, dim))?)
}

/// Makes the version from the final training.
pub(crate) fn finish(ratings: &Ratings, learnt: Learnt, tuned: Tuned) -> Result<Trained, RetrainError> {
    let noise_variance = tuned.held_out.map_or(learnt.noise_variance, |held_out| held_out.noise_variance);
    // If all labels are predicted exactly, there is no noise, but a prior needs a positive variance.
    let noise_variance = noise_variance.max(f64::from(f32::MIN_POSITIVE));
    let prior = fit_prior(&learnt, tuned.prior_scale, noise_variance)?;
    let label_range = ratings.label_range();
    let metrics = Metrics {
        ratings: ratings.list().len(),
        users: ratings.users(),
        items: ratings.items(),
        regularization: tuned.regularization,
        iterations: tuned.iterations,
        prior_scale: tuned.prior_scale,
        validation_rmse: tuned.held_out.and_then(|held_out| held_out.rmse),
        validation_percentile_rank: None,
        validation_recall_at_10: None,
        validation_log_loss: None,
        base_rate_log_loss: None,
        train_rmse: learnt.own_rmse(ratings.list(), label_range),
        noise_variance,
        prior_condition: prior.condition(),
    };
    let settled = Settled {
        loss: Loss::Squared,
        dim: learnt.dim,
        ratings: ratings.list().len(),
        regularization: tuned.regularization,
        prior_scale: tuned.prior_scale,
        gain: 1.0,
        noise_variance,
    };
    Ok(learnt.trained(prior, label_range, metrics, settled))
}
