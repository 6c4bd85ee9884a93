//! Training on graded labels.

use celeris_model::Loss;

use crate::error::RetrainError;
use crate::learn::{Learnt, Pinned, Prepared, Recipe, learn};
use crate::posterior_evaluation::{Errors, HeldOut};
use crate::prior_fit::fit_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ratings::Ratings;
use crate::refit::{Fresh, HeldRows, refit};
use crate::settings::TrainSettings;
use crate::state::Settled;
use crate::trained::{Metrics, Trained};
use crate::tuning::{HeldOutFigures, REGULARIZATION, Tuned, tune};

/// Minimum number of held-out ratings to estimate the noise variance from them; with fewer, that of
/// the earlier training is scaled by the change of the trainer's own estimate.
const NOISE_ENOUGH: usize = 2000;

pub(crate) fn train_squared(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    let regularization = settings.regularization.unwrap_or(REGULARIZATION);
    let recipe =
        Recipe { dim: settings.dim, seed: settings.seed, regularization, audience: true, choices: false, pinned };
    let tuned = tune(ratings, recipe, settings, progress)?;
    let tuned = Tuned { prior_scale: settings.prior_scale.unwrap_or(tuned.prior_scale), ..tuned };
    let recipe = Recipe { choices: tuned.choices, ..recipe };
    let learnt = learn(ratings, &Prepared::of(ratings, settings.dim), recipe, |iteration, _| {
        progress.report(Step { phase: Phase::Training, fraction: iteration as f32 / tuned.iterations as f32 });
        iteration >= tuned.iterations
    })?;
    finish(ratings, learnt, tuned)
}

pub(crate) fn refresh_squared(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    fresh: Fresh,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    let settled = fresh.settled;
    let regularization = settings.regularization.unwrap_or(settled.regularization);
    let prior_scale = settings.prior_scale.unwrap_or(settled.prior_scale);
    let choices = settled.choices;
    let recipe = Recipe { dim: settings.dim, seed: settings.seed, regularization, audience: true, choices, pinned };
    let held = HeldRows::of(ratings, fresh.rows, settings.seed);
    let served = held.as_ref().map(|held| HeldOut::new(&held.known, &held.asked));
    let evaluate = |learnt: &Learnt| -> Result<Option<Errors>, RetrainError> {
        let prior = fit_prior(learnt, prior_scale, learnt.noise_variance)?;
        Ok(served.as_ref().map(|served| served.errors(learnt, &prior)).transpose()?)
    };
    let error = |learnt: &Learnt| Ok(evaluate(learnt)?.map_or(0.0, |errors| errors.rmse()));
    let refit = refit(ratings, recipe, fresh.state, (held.as_ref(), settings.iterations_max), error, progress)?;
    let changed = refit.learnt.noise_variance / fresh.state.population.noise_variance;
    let mut figures = HeldOutFigures { rmse: None, noise_variance: settled.noise_variance * changed };
    let errors = refit.evaluated.as_ref().map(evaluate).transpose()?.flatten();
    if let (Some(errors), Some(held)) = (errors, &held) {
        figures.rmse = Some(errors.rmse());
        if held.asked.list().len() >= NOISE_ENOUGH {
            figures.noise_variance = errors.noise_variance();
        }
    }
    let recent_bias = settled.recent_bias;
    finish(
        ratings,
        refit.learnt,
        Tuned {
            regularization,
            choices,
            iterations: refit.iterations,
            prior_scale,
            recent_bias,
            held_out: Some(figures),
        },
    )
}

/// Makes the version from the final training.
fn finish(ratings: &Ratings, learnt: Learnt, tuned: Tuned) -> Result<Trained, RetrainError> {
    let noise_variance = tuned.held_out.map_or(learnt.noise_variance, |held_out| held_out.noise_variance);
    // If all labels are predicted exactly, there is no noise, but a prior needs a positive
    // variance.
    let noise_variance = noise_variance.max(f64::from(f32::MIN_POSITIVE));
    let prior = fit_prior(&learnt, tuned.prior_scale, noise_variance)?.with_recent_bias(tuned.recent_bias);
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
        choices: tuned.choices,
        prior_scale: tuned.prior_scale,
        recent_bias: tuned.recent_bias,
        gain: 1.0,
        noise_variance,
    };
    Ok(learnt.trained(prior, label_range, metrics, settled))
}
