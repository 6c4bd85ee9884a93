//! The trainer `popularity`: offsets of items and nothing else, from the first few observations on.
//!
//! Factors need thousands of observations; until then a version of offsets ranks better than one
//! that knows nothing, and costs one pass over the observations. Under each loss an offset is what
//! minimises the loss of a model without users, with a prior that pulls items with few observations
//! to where they would be without any:
//!
//! - **Squared loss**: the mean label of the item, shrunk as if the item had had `k` more
//!   observations, with labels [`PESSIMISM`] mean absolute deviations below the mean of all labels.
//!   An item without observations is expected to be worse than the observed ones (observations are
//!   not missing at random: Marlin & Zemel 2009), so that among equal means the more popular item ranks
//!   higher. A constant common to all offsets keeps the mean prediction at the mean label.
//! - **Logistic loss**: the log-odds of the item's rate, shrunk to the rate of all.
//! - **Implicit feedback**: the confidence-weighted mean preference of all users, in which the
//!   untaken pairs count as 0 with confidence 1.
//!
//! `k` is the empirical Bayes estimate by the method of moments: the variance of labels within
//! items over that of the means between them (Efron & Morris 1975).
//!
//! Users start from the prior of an untrained version; only the precision of their bias and the
//! noise are estimated, in the same way. Given features are kept.

use celeris_features::ColdItem;
use celeris_features::bounds::NOISE_VARIANCE_MAX;
use celeris_model::{Loss, Prior};

use crate::error::RetrainError;
use crate::implicit::taken;
use crate::learn::Pinned;
use crate::ratings::{Rating, Ratings};
use crate::settings::TrainSettings;
use crate::trained::{Metrics, Trained};
use crate::trainer::check;

/// Name of the trainer, and of the algorithm of its versions.
pub const POPULARITY: &str = "popularity";

/// How far below the mean label unobserved items are assumed to be, in mean absolute deviations of
/// the labels. On samples of 500 ratings of ml-latest-small, 1.5 finds 24 % more of the liked
/// held-out items among the first 20 than the numbers of ratings do, and 0 finds as many as they
/// do; the error of predictions is smallest at 1 to 1.5.
const PESSIMISM: f64 = 1.5;

/// The same where all labels are equal, as a share of their magnitude.
const PESSIMISM_OF_EQUALS: f64 = 0.1;

/// How many times the usual confidence of a pair the confidence of one may be: a user who played an
/// item a million times does not decide its popularity.
const TAKINGS_MAX: f32 = 20.0;

/// Relative error of a variance that is computed from sums of squares.
const ROUNDING: f64 = 1e-12;

/// Range of `k`, in observations; the middle one where nothing was observed twice.
const SHRINKAGE: (f64, f64, f64) = (3.0, 10.0, 50.0);

/// Range of the precision of a user's bias, in observations. Few observations say little about how
/// users differ, and a user's first ones should be seen in the answers.
const BIAS_PRECISION: (f64, f64) = (1.0, 10.0);

/// Trains offsets. Ignores all settings but `dim` and `loss`.
///
/// # Errors
/// `Setting`, `IndexOutOfRange` or `Prior` for invalid input.
#[expect(clippy::cast_possible_truncation, reason = "offsets are held in f32; rounding to the nearest is meant")]
pub fn train_popularity(ratings: &Ratings, settings: &TrainSettings, pinned: &Pinned) -> Result<Trained, RetrainError> {
    check(ratings, settings, pinned)?;
    let fit = match settings.loss {
        Loss::Squared => graded(ratings),
        Loss::Logistic => clicks(ratings),
        Loss::Implicit => takings(ratings),
    };
    let dim = settings.dim;
    let cold_item = ColdItem { offset: fit.cold as f32, ..ColdItem::blank(dim) };
    let mut item_features = cold_item.features.repeat(ratings.items());
    for (item, features) in pinned.items.iter().zip(pinned.features.chunks_exact(dim)) {
        item_features[*item as usize * dim..][..dim].copy_from_slice(features);
    }
    let mut precision = vec![0.0; dim * dim];
    (0..dim).for_each(|entry| precision[entry * dim + entry] = 1.0);
    precision[dim * dim - 1] = fit.bias_precision;
    let prior = Prior::new(vec![0.0; dim], precision, fit.noise_variance)?;
    let metrics = Metrics {
        ratings: ratings.list().len(),
        users: ratings.users(),
        items: ratings.items(),
        regularization: fit.shrinkage,
        iterations: 1,
        prior_scale: 1.0,
        validation_rmse: None,
        validation_percentile_rank: None,
        validation_recall_at_10: None,
        validation_log_loss: None,
        base_rate_log_loss: None,
        train_rmse: fit.train_rmse,
        noise_variance: fit.noise_variance,
        prior_condition: prior.condition(),
    };
    Ok(Trained {
        dim,
        item_offsets: fit.offsets.iter().map(|offset| *offset as f32).collect(),
        item_features,
        user_weights: vec![0.0; ratings.users() * dim],
        choices: Vec::new(),
        variances: Vec::new(),
        cold_variance: 0.0,
        pulls: Vec::new(),
        prior,
        cold_item,
        label_range: ratings.label_range(),
        metrics,
        state: None,
    })
}

/// Offsets, and the little that is estimated besides.
struct Fit {
    /// By item.
    offsets: Vec<f64>,
    /// The offset of an item without observations.
    cold: f64,
    /// `k`; 0 where nothing is shrunk.
    shrinkage: f64,
    bias_precision: f64,
    noise_variance: f64,
    /// Root mean square of what the offsets leave of labels, probabilities or preferences.
    train_rmse: f64,
}

/// Sums of one group of values.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    weight: f64,
    sum: f64,
    square: f64,
}

impl Sums {
    fn add(&mut self, value: f64, weight: f64) {
        self.weight += weight;
        self.sum += weight * value;
        self.square += weight * value * value;
    }

    /// The mean of these values and of `k` more at zero.
    fn shrunk(self, k: f64) -> f64 {
        self.sum / (self.weight + k)
    }

    /// Without one of the values.
    fn without(self, value: f64, weight: f64) -> Self {
        Self { weight: (self.weight - weight).max(0.0), sum: self.sum - weight * value, ..self }
    }
}

/// The values in groups.
fn grouped(groups: usize, values: impl Iterator<Item = (u32, f64, f64)>) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); groups];
    for (group, value, weight) in values {
        sums[group as usize].add(value, weight);
    }
    sums
}

/// The variance of values within their groups over the variance between the means of groups, by the
/// method of moments; infinite if groups do not differ. `None` if no group has two values. Weights
/// are numbers of repetitions.
fn within_over_between(groups: &[Sums]) -> Option<f64> {
    let mut all = Sums::default();
    let (mut within, mut filled) = (0.0, 0.0);
    for group in groups.iter().filter(|group| group.weight > 0.0) {
        all.weight += group.weight;
        all.sum += group.sum;
        all.square += group.square;
        within += group.square - group.sum * group.sum / group.weight;
        filled += 1.0;
    }
    if all.weight <= filled {
        return None;
    }
    let within = within.max(0.0) / (all.weight - filled);
    let total = (all.square - all.sum * all.sum / all.weight).max(0.0) / (all.weight - 1.0);
    // Sums of equal values differ from zero by rounding.
    let rounding = ROUNDING * all.square / all.weight;
    Some(if total > within + rounding { within / (total - within) } else { f64::INFINITY })
}

fn shrinkage(groups: &[Sums]) -> f64 {
    let (least, usual, most) = SHRINKAGE;
    within_over_between(groups).unwrap_or(usual).clamp(least, most)
}

fn graded(ratings: &Ratings) -> Fit {
    let (mean, _) = ratings.label_moments();
    let weight = |rating: &Rating| f64::from(rating.weight);
    let total: f64 = ratings.list().iter().map(weight).sum();
    let mean_of = |value: &dyn Fn(&Rating) -> f64| {
        ratings.list().iter().map(|rating| weight(rating) * value(rating)).sum::<f64>() / total
    };
    let deviation = mean_of(&|rating| (f64::from(rating.label) - mean).abs());
    let pessimism = if deviation > 0.0 { PESSIMISM * deviation } else { PESSIMISM_OF_EQUALS * mean.abs() };
    // Labels relative to the assumed one of unobserved items.
    let excess = |rating: &Rating| f64::from(rating.label) - mean + pessimism;
    let by_item =
        grouped(ratings.items(), ratings.list().iter().map(|rating| (rating.item, excess(rating), weight(rating))));
    let k = shrinkage(&by_item);
    // Predictions of each label without itself: an item's only label says nothing about them.
    let without = |rating: &Rating| by_item[rating.item as usize].without(excess(rating), weight(rating)).shrunk(k);
    let base = mean_of(&|rating| f64::from(rating.label) - without(rating));
    let error = |rating: &Rating| f64::from(rating.label) - base - without(rating);
    let by_user =
        grouped(ratings.users(), ratings.list().iter().map(|rating| (rating.user, error(rating), weight(rating))));
    let (least, most) = BIAS_PRECISION;
    let offsets: Vec<f64> = by_item.iter().map(|item| base + item.shrunk(k)).collect();
    let left = |rating: &Rating| (f64::from(rating.label) - offsets[rating.item as usize]).powi(2);
    Fit {
        cold: base,
        shrinkage: k,
        bias_precision: within_over_between(&by_user).unwrap_or(least).clamp(least, most),
        noise_variance: mean_of(&|rating| error(rating).powi(2))
            .clamp(f64::from(f32::MIN_POSITIVE), NOISE_VARIANCE_MAX),
        train_rmse: mean_of(&left).sqrt(),
        offsets,
    }
}

fn clicks(ratings: &Ratings) -> Fit {
    let values = || ratings.list().iter().map(|rating| (f64::from(rating.label), f64::from(rating.weight)));
    let total: f64 = values().map(|(_, weight)| weight).sum();
    // As if there were half an observation of either kind more, so that the rate is within 0 and 1.
    let rate = (values().map(|(label, weight)| label * weight).sum::<f64>() + 0.5) / (total + 1.0);
    let relative =
        ratings.list().iter().map(|rating| (rating.item, f64::from(rating.label) - rate, f64::from(rating.weight)));
    let by_item = grouped(ratings.items(), relative);
    let k = shrinkage(&by_item);
    let rates: Vec<f64> = by_item.iter().map(|item| rate + item.shrunk(k)).collect();
    let left =
        |rating: &Rating| f64::from(rating.weight) * (f64::from(rating.label) - rates[rating.item as usize]).powi(2);
    let train_rmse = (ratings.list().iter().map(left).sum::<f64>() / total).sqrt();
    let log_odds = |rate: f64| (rate / (1.0 - rate)).ln();
    Fit {
        offsets: rates.into_iter().map(log_odds).collect(),
        cold: log_odds(rate),
        shrinkage: k,
        bias_precision: BIAS_PRECISION.0,
        noise_variance: 1.0,
        train_rmse,
    }
}

/// The middle one of the values; infinite if there are none.
fn median(mut values: Vec<f32>) -> f32 {
    let middle = values.len() / 2;
    if values.is_empty() { f32::INFINITY } else { *values.select_nth_unstable_by(middle, f32::total_cmp).1 }
}

fn takings(ratings: &Ratings) -> Fit {
    let mut pairs = taken(ratings);
    let most = TAKINGS_MAX * median(pairs.iter().map(|pair| pair.label).collect());
    pairs.iter_mut().for_each(|pair| pair.label = pair.label.min(most));
    // Confidence of the taken pairs, and their number, by item.
    let mut sums = vec![(0.0, 0.0); ratings.items()];
    for pair in &pairs {
        let (confidence, takers) = &mut sums[pair.item as usize];
        *confidence += 1.0 + f64::from(pair.label);
        *takers += 1.0;
    }
    let users = ratings.users() as f64;
    let offset = |(confidence, takers): &(f64, f64)| confidence / (confidence + (users - takers)).max(1.0);
    let offsets: Vec<f64> = sums.iter().map(offset).collect();
    let left: f64 = pairs.iter().map(|pair| (1.0 - offsets[pair.item as usize]).powi(2)).sum();
    Fit {
        offsets,
        cold: 0.0,
        shrinkage: 0.0,
        bias_precision: BIAS_PRECISION.0,
        noise_variance: 1.0,
        train_rmse: (left / (pairs.len() as f64).max(1.0)).sqrt(),
    }
}
