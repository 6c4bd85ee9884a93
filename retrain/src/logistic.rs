//! Training on clicks: features on the log-odds scale by one step of reweighted least squares,
//! evaluated by the log loss.
//!
//! Scores of a logistic model are log-odds, and `theta` and prior have to be on that scale. One
//! step of iteratively reweighted least squares from the base rate `p0` (McCullagh and Nelder 1989,
//! section 2.5) replaces a label by its working response
//!
//! ```text
//! z = logit(p0) + (y - p0) / (p0 (1 - p0))
//! ```
//!
//! Its expectation is the log-odds to first order in `p - p0`, and its weight `p0 (1 - p0)` is the
//! same for all labels, so least squares on `z` is the whole step. Offsets, factors and the
//! population of users then come from the trainer for graded labels. The limitation: log-odds far
//! from those of the base rate are estimated too far above it and not far enough below, and no
//! later step corrects that in `theta`. Two numbers compensate for it on average, both chosen by
//! the log loss of held-out labels: a gain, by which everything but the base rate is shrunk, and
//! the scale of the prior. The served user states are solved under the exact logistic loss.

use celeris_model::linear::cholesky_of_squares;
use celeris_model::{Loss, ModelError, Prior};
use nalgebra::{DMatrix, DVector};
use rayon::prelude::*;

use crate::error::RetrainError;
use crate::learn::{Learnt, Pinned, Prepared, Recipe, learn};
use crate::prior_fit::fit_absolute_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ratings::{Entry, Rating, Ratings, Rows};
use crate::refit::{Fresh, HeldRows, refit};
use crate::settings::TrainSettings;
use crate::state::Settled;
use crate::trained::{Metrics, Trained};
use crate::tuning::{Fold, ITERATIONS_MIN, PRIOR_SCALES, RATINGS_MIN, folds};

/// Minimum distance of the base rate from 0 and 1, so that working responses stay finite if all
/// labels are equal.
const RATE_MIN: f64 = 1e-4;

/// Candidate gains, descending; the first is kept unless another is better.
const GAINS: [f64; 5] = [1.0, 0.71, 0.5, 0.35, 0.25];

/// Relative difference below which losses are considered equal.
const INDIFFERENCE: f64 = 1e-3;

/// Maximum number of users whose held-out labels are predicted; each is solved for every gain and
/// scale.
const USERS_MAX: usize = 2048;

/// Users per partial sum; fixed, so that sums do not depend on the number of threads.
const CHUNK_USERS: usize = 64;

/// Maximum number of Newton steps per user; on this loss they converge in fewer than ten.
const NEWTON_STEPS_MAX: usize = 25;

/// Step size relative to the weights below which the solver stops.
const NEWTON_TOLERANCE: f64 = 1e-9;

/// The probability at log-odds `score`.
fn sigmoid(score: f64) -> f64 {
    if score >= 0.0 { 1.0 / (1.0 + (-score).exp()) } else { score.exp() / (1.0 + score.exp()) }
}

/// `-ln p(y)` at log-odds `score`, for a label from 0 to 1.
fn log_loss(score: f64, label: f64) -> f64 {
    score.max(0.0) - label * score + (-score.abs()).exp().ln_1p()
}

/// The expansion around the base rate.
#[derive(Debug, Clone, Copy)]
struct BaseRate {
    rate: f64,
}

impl BaseRate {
    /// The weighted mean of labels clipped to `[0, 1]`, with half a label of each kind added.
    fn of(ratings: &Ratings) -> Self {
        let (mut total, mut positive) = (1.0, 0.5);
        for rating in ratings.list() {
            total += f64::from(rating.weight);
            positive += f64::from(rating.weight) * Loss::Logistic.outcome(rating.label);
        }
        Self { rate: (positive / total).clamp(RATE_MIN, 1.0 - RATE_MIN) }
    }

    fn log_odds(self) -> f64 {
        (self.rate / (1.0 - self.rate)).ln()
    }

    /// The ratings with labels replaced by working responses.
    #[expect(clippy::cast_possible_truncation, reason = "labels are held in f32; rounding to the nearest is meant")]
    fn working(self, ratings: &Ratings) -> Result<Ratings, RetrainError> {
        let slope = self.rate * (1.0 - self.rate);
        let response = |label: f32| self.log_odds() + (Loss::Logistic.outcome(label) - self.rate) / slope;
        let list = ratings.list().iter().map(|r| Rating { label: response(r.label) as f32, ..*r }).collect();
        Ratings::new(ratings.users(), ratings.items(), list)
    }
}

/// Shrinks everything but the base rate by `gain`.
#[expect(clippy::cast_possible_truncation, reason = "tables are held in f32; rounding to the nearest is meant")]
fn shrunk(mut learnt: Learnt, base: BaseRate, gain: f64) -> Learnt {
    let around = base.log_odds();
    for offset in learnt.offsets.iter_mut().chain([&mut learnt.cold_offset]) {
        *offset = (around + gain * (f64::from(*offset) - around)) as f32;
    }
    for weight in &mut learnt.weights {
        *weight = (gain * f64::from(*weight)) as f32;
    }
    learnt.weight_mean *= gain;
    learnt.weight_covariance *= gain * gain;
    // They are those of working responses, and would move every probability towards one half.
    learnt.variances.clear();
    learnt.cold_variance = 0.0;
    learnt
}

/// Sums of losses over held-out labels.
#[derive(Debug, Clone, Copy, Default)]
struct Losses {
    weight: f64,
    loss: f64,
    base: f64,
}

impl Losses {
    fn plus(self, other: Self) -> Self {
        Self { weight: self.weight + other.weight, loss: self.loss + other.loss, base: self.base + other.base }
    }

    fn mean(&self) -> f64 {
        self.loss / self.weight
    }
}

/// The weights of one user that maximise the posterior of the `known` labels under the prior.
fn posterior_mode(learnt: &Learnt, prior: &Prior, known: &[Entry]) -> Result<DVector<f64>, ModelError> {
    let dim = learnt.dim;
    let precision = DMatrix::from_row_slice(dim, dim, prior.precision());
    let mean = DVector::from_column_slice(prior.mean());
    let mut weights = mean.clone();
    let mut cost = f64::INFINITY;
    let mut step = DVector::zeros(dim);
    for _ in 0..NEWTON_STEPS_MAX {
        let from_mean = &weights - &mean;
        let mut now = 0.5 * from_mean.dot(&(&precision * &from_mean));
        let mut gradient = &precision * &from_mean;
        let mut curvature = precision.clone();
        for entry in known {
            let features = learnt.features_of(entry.other);
            let score = learnt.score_with(&weights, entry.other);
            let (weight, label) = (f64::from(entry.weight), Loss::Logistic.outcome(entry.label));
            let chance = sigmoid(score);
            now += weight * log_loss(score, label);
            gradient.axpy(weight * (chance - label), &features, 1.0);
            curvature.ger(weight * chance * (1.0 - chance), &features, &features, 1.0);
        }
        if now > cost {
            // The loss is convex, so halving a step that was too long reduces the loss.
            step *= 0.5;
            weights += &step;
            continue;
        }
        cost = now;
        let factor = cholesky_of_squares(curvature.as_slice(), dim)
            .ok_or(ModelError::NotPositiveDefinite { what: "the precision of a user's weights" })?;
        step = factor.solve(&gradient);
        weights -= &step;
        if step.norm() <= NEWTON_TOLERANCE * weights.norm().max(1.0) {
            break;
        }
    }
    Ok(weights)
}

impl Learnt {
    fn features_of(&self, item: u32) -> DVector<f64> {
        let row = &self.features[item as usize * self.dim..][..self.dim];
        DVector::from_iterator(self.dim, row.iter().map(|x| f64::from(*x)))
    }

    fn score_with(&self, weights: &DVector<f64>, item: u32) -> f64 {
        f64::from(self.offsets[item as usize]) + weights.dot(&self.features_of(item))
    }
}

/// The loss on `asked` of users' posteriors that have learnt `known`.
fn held_out_loss(
    learnt: &Learnt,
    prior: &Prior,
    known: &Rows,
    asked: &Rows,
    base: BaseRate,
) -> Result<Losses, ModelError> {
    let users: Vec<usize> = (0..asked.count()).filter(|user| !asked.row(*user).is_empty()).collect();
    let stride = users.len().div_ceil(USERS_MAX).max(1);
    let users: Vec<usize> = users.into_iter().step_by(stride).collect();
    let chunks: Vec<Result<Losses, ModelError>> = users
        .par_chunks(CHUNK_USERS)
        .map(|users| {
            users.iter().try_fold(Losses::default(), |sum, user| {
                let weights = posterior_mode(learnt, prior, known.row(*user))?;
                Ok(asked.row(*user).iter().fold(sum, |sum, entry| {
                    let (weight, label) = (f64::from(entry.weight), Loss::Logistic.outcome(entry.label));
                    sum.plus(Losses {
                        weight,
                        loss: weight * log_loss(learnt.score_with(&weights, entry.other), label),
                        base: weight * log_loss(base.log_odds(), label),
                    })
                }))
            })
        })
        .collect();
    chunks.into_iter().try_fold(Losses::default(), |sum, chunk| Ok(sum.plus(chunk?)))
}

struct Tuned {
    gain: f64,
    scale: f64,
    losses: Option<Losses>,
}

/// Trains on labels clipped to `[0, 1]`. The result does not depend on the number of threads.
pub(crate) fn train_logistic(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    let regularization = settings.regularization.unwrap_or(1.0);
    let recipe =
        Recipe { dim: settings.dim, seed: settings.seed, regularization, audience: false, choices: false, pinned };
    let iterations = ITERATIONS_MIN.min(settings.iterations_max);
    let scales = settings.prior_scale.map_or_else(|| PRIOR_SCALES.to_vec(), |scale| vec![scale]);
    let tuned = tune(ratings, recipe, (iterations, &scales), progress)?;
    let base = BaseRate::of(ratings);
    let working = base.working(ratings)?;
    let learnt = learn(&working, &Prepared::of(&working, settings.dim), recipe, |iteration, _| {
        progress.report(Step { phase: Phase::Training, fraction: iteration as f32 / iterations as f32 });
        iteration >= iterations
    })?;
    finish(ratings, shrunk(learnt, base, tuned.gain), &tuned, (regularization, iterations))
}

/// Warm start with the gain and scale of an earlier training: new working responses, a few
/// iterations.
pub(crate) fn refresh_logistic(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    fresh: Fresh,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    let (settled, state) = (fresh.settled, fresh.state);
    let prior_scale = settings.prior_scale.unwrap_or(settled.prior_scale);
    let regularization = settings.regularization.unwrap_or(settled.regularization);
    let recipe =
        Recipe { dim: settings.dim, seed: settings.seed, regularization, audience: false, choices: false, pinned };
    let base = BaseRate::of(ratings);
    let held = HeldRows::of(ratings, fresh.rows, settings.seed);
    let asked = held.as_ref().map(|held| base.working(&held.asked)).transpose()?;
    // Iterations fit working responses, so the error on these decides when to stop; the log loss is
    // evaluated at the end.
    let error = |learnt: &Learnt| {
        Ok(asked.as_ref().map_or(0.0, |asked| learnt.own_rmse(asked.list(), (f32::NEG_INFINITY, f32::INFINITY))))
    };
    let working = base.working(ratings)?;
    let refit = refit(&working, recipe, state, (held.as_ref(), settings.iterations_max), error, progress)?;
    let losses = match refit.evaluated.zip(held) {
        None => None,
        Some((evaluated, held)) => {
            let learnt = shrunk(evaluated, base, settled.gain);
            let prior = fit_absolute_prior(&learnt, prior_scale)?;
            Some(held_out_loss(&learnt, &prior, &Rows::by_user(&held.known), &Rows::by_user(&held.asked), base)?)
        }
    };
    let tuned = Tuned { gain: settled.gain, scale: prior_scale, losses };
    finish(ratings, shrunk(refit.learnt, base, tuned.gain), &tuned, (regularization, refit.iterations))
}

fn finish(
    ratings: &Ratings,
    learnt: Learnt,
    tuned: &Tuned,
    (regularization, iterations): (f64, usize),
) -> Result<Trained, RetrainError> {
    let prior = fit_absolute_prior(&learnt, tuned.scale)?;
    let squares = |rating: &Rating| {
        let error = Loss::Logistic.outcome(rating.label) - sigmoid(learnt.score(rating));
        f64::from(rating.weight) * error * error
    };
    let total: f64 = ratings.list().iter().map(|rating| f64::from(rating.weight)).sum();
    let metrics = Metrics {
        ratings: ratings.list().len(),
        users: ratings.users(),
        items: ratings.items(),
        regularization,
        iterations,
        prior_scale: tuned.scale,
        validation_rmse: None,
        validation_percentile_rank: None,
        validation_recall_at_10: None,
        validation_log_loss: tuned.losses.map(|losses| losses.mean()),
        base_rate_log_loss: tuned.losses.map(|losses| losses.base / losses.weight),
        train_rmse: (ratings.list().iter().map(squares).sum::<f64>() / total).sqrt(),
        noise_variance: prior.noise_variance(),
        prior_condition: prior.condition(),
    };
    let settled = Settled {
        loss: Loss::Logistic,
        dim: learnt.dim,
        ratings: ratings.list().len(),
        regularization,
        choices: false,
        prior_scale: tuned.scale,
        recent_bias: None,
        gain: tuned.gain,
        noise_variance: prior.noise_variance(),
    };
    Ok(learnt.trained(prior, ratings.label_range(), metrics, settled))
}

/// Chooses the gain, and the scale of the prior among some, by the log loss of held-out labels.
fn tune(
    ratings: &Ratings,
    recipe: Recipe,
    (iterations, scales): (usize, &[f64]),
    progress: &dyn Progress,
) -> Result<Tuned, RetrainError> {
    if ratings.list().len() < RATINGS_MIN {
        let scale = if let [scale] = scales { *scale } else { 1.0 };
        return Ok(Tuned { gain: 1.0, scale, losses: None });
    }
    let folds = folds(ratings, recipe.seed);
    let settings: Vec<(f64, f64)> =
        GAINS.iter().flat_map(|gain| scales.iter().map(move |scale| (*gain, *scale))).collect();
    let mut sums = vec![Losses::default(); settings.len()];
    for (fold, Fold { known, asked, .. }) in folds.iter().enumerate() {
        let base = BaseRate::of(known);
        let working = base.working(known)?;
        let learnt = learn(&working, &Prepared::of(&working, recipe.dim), recipe, |iteration, _| {
            let within = 0.5 * iteration as f32 / iterations as f32;
            progress.report(Step { phase: Phase::Tuning, fraction: (fold as f32 + within) / folds.len() as f32 });
            iteration >= iterations
        })?;
        let (known, asked) = (Rows::by_user(known), Rows::by_user(asked));
        for ((gain, scale), sum) in settings.iter().zip(&mut sums) {
            let learnt = shrunk(learnt.clone(), base, *gain);
            let prior = fit_absolute_prior(&learnt, *scale)?;
            *sum = sum.plus(held_out_loss(&learnt, &prior, &known, &asked, base)?);
        }
    }
    progress.report(Step { phase: Phase::Tuning, fraction: 1.0 });
    let lowest = sums.iter().map(Losses::mean).fold(f64::INFINITY, f64::min);
    let chosen = sums.iter().position(|losses| losses.mean() <= lowest * (1.0 + INDIFFERENCE)).unwrap_or_default();
    let (gain, scale) = settings[chosen];
    Ok(Tuned { gain, scale, losses: Some(sums[chosen]) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn working_responses_are_the_log_odds_to_first_order() {
        let rating = |label| Rating { user: 0, item: 0, label, weight: 1.0 };
        let labels: Vec<Rating> = (0..1000).map(|k| rating(if k % 4 == 0 { 1.0 } else { 0.0 })).collect();
        let base = BaseRate::of(&Ratings::new(1, 1, labels.clone()).unwrap());
        assert!((base.rate - 0.25).abs() < 1e-3, "{}", base.rate);
        // The mean response of labels with a rate close to p0 is the log-odds of that rate, up to
        // the square of the difference.
        let rate: f64 = 0.26;
        let share = (rate * 1000.0).round() as usize;
        let near: Vec<Rating> = (0..1000).map(|k| rating(if k < share { 1.0 } else { 0.0 })).collect();
        let working = base.working(&Ratings::new(1, 1, near).unwrap()).unwrap();
        let mean = working.list().iter().map(|r| f64::from(r.label)).sum::<f64>() / 1000.0;
        let exact = (rate / (1.0 - rate)).ln();
        assert!((mean - exact).abs() < 2e-3, "{mean} is not {exact}");
    }

    #[test]
    fn losses_are_finite_and_correct_for_extreme_scores() {
        for (score, label, expected) in [(0.0, 1.0, 2.0_f64.ln()), (800.0, 0.0, 800.0), (-800.0, 0.0, 0.0)] {
            assert!((log_loss(score, label) - expected).abs() < 1e-12, "{score} {label}");
        }
        assert!((sigmoid(1.0) + sigmoid(-1.0) - 1.0).abs() < 1e-15);
    }
}
