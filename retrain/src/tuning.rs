//! Tuning of settings on held-out ratings.
//!
//! A tenth of the ratings is held out, features are learnt from the rest for each regularization
//! until they stop improving, and each fit is evaluated by the served posteriors under priors of
//! several scales. If a tenth is few ratings, several tenths are held out in turn and evaluated
//! together.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::als::Als;
use crate::error::RetrainError;
use crate::learn::{Learnt, Prepared, Recipe, learn};
use crate::posterior_evaluation::{Errors, HeldOut};
use crate::prior_fit::fit_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ratings::{Rating, Ratings};
use crate::settings::TrainSettings;

/// One in this many ratings is held out.
const FOLDS: u8 = 10;

/// Folds are evaluated until this many ratings have been held out in total, or [`FOLDS_TRIED_MAX`]
/// folds.
const HELD_OUT_ENOUGH: usize = 2000;
const FOLDS_TRIED_MAX: usize = 3;

/// With fewer ratings, nothing is held out, and the settings are [`Tuned::untuned`].
pub(crate) const RATINGS_MIN: usize = 100;

/// Minimum number of iterations before the held-out error is evaluated.
///
/// Chosen on ml-latest-small, where the error of a split is flat from 10 to 20 iterations. With
/// some ten ratings per user, fewer iterations predict better (RMSE 0.954 after 10, 0.976 after 20,
/// see [`crate::side_features`]), but users learn less online.
pub(crate) const ITERATIONS_MIN: usize = 18;

/// Candidate shares of the partners' variances. The first is that of the model, and is kept unless
/// another is better.
const REGULARIZATIONS: [f64; 2] = [1.0, 0.5];

/// Candidate scales of the prior precision, ascending, in steps that the error hardly resolves.
pub(crate) const PRIOR_SCALES: [f64; 7] = [0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0];

/// Relative difference below which errors are considered equal: some thousands of held-out ratings
/// do not resolve less.
const INDIFFERENCE: f64 = 1e-3;

/// The settings of the final training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tuned {
    pub(crate) regularization: f64,
    pub(crate) iterations: usize,
    pub(crate) prior_scale: f64,
    pub(crate) held_out: Option<HeldOutFigures>,
}

/// Metrics of the chosen settings on held-out ratings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HeldOutFigures {
    /// `None` if the noise variance is from an earlier training and too few ratings could be held
    /// out.
    pub(crate) rmse: Option<f64>,
    pub(crate) noise_variance: f64,
}

impl Tuned {
    fn untuned(settings: &TrainSettings) -> Self {
        let regularization = settings.regularization.unwrap_or(REGULARIZATIONS[0]);
        Self {
            regularization,
            iterations: ITERATIONS_MIN.min(settings.iterations_max),
            prior_scale: 1.0,
            held_out: None,
        }
    }
}

/// One candidate's errors by prior scale, summed over folds.
struct Trial {
    regularization: f64,
    iterations: usize,
    errors: Vec<Errors>,
}

impl Trial {
    fn lowest_rmse(&self) -> f64 {
        self.errors.iter().map(Errors::rmse).fold(f64::INFINITY, f64::min)
    }

    /// Index of the smallest scale that is as good as the best: a wider prior lets users learn
    /// faster.
    fn best_scale(&self) -> usize {
        let enough = self.lowest_rmse() * (1.0 + INDIFFERENCE);
        self.errors.iter().position(|errors| errors.rmse() <= enough).unwrap_or_default()
    }

    fn beats(&self, other: &Self) -> bool {
        self.lowest_rmse() < other.lowest_rmse() * (1.0 - INDIFFERENCE)
    }
}

/// Chooses the regularization, the number of iterations and the scale of the prior.
///
/// # Errors
/// [`RetrainError::Prior`] if a prior or posterior overflows.
pub(crate) fn tune(
    ratings: &Ratings,
    recipe: Recipe,
    settings: &TrainSettings,
    progress: &dyn Progress,
) -> Result<Tuned, RetrainError> {
    if ratings.list().len() < RATINGS_MIN {
        return Ok(Tuned::untuned(settings));
    }
    let folds: Vec<(Ratings, Ratings, Prepared)> = folds(ratings, settings.seed)
        .into_iter()
        .map(|(known, asked)| {
            let prepared = Prepared::of(&known, recipe.dim)?;
            Ok((known, asked, prepared))
        })
        .collect::<Result<_, RetrainError>>()?;
    let fixed = settings.regularization.map(|value| [value]);
    let candidates = fixed.as_ref().map_or(REGULARIZATIONS.as_slice(), <[f64; 1]>::as_slice);
    let (mut done, total) = (0, candidates.len() * folds.len());
    let mut best: Option<Trial> = None;
    for &regularization in candidates {
        let mut trial = Trial { regularization, iterations: 0, errors: vec![Errors::default(); PRIOR_SCALES.len()] };
        for (known, asked, prepared) in &folds {
            let report = |iteration: usize| {
                let within = iteration as f32 / settings.iterations_max as f32;
                progress.report(Step { phase: Phase::Tuning, fraction: (done as f32 + within) / total as f32 });
            };
            let (learnt, iterations) = learn_until_worse(
                (known, prepared),
                asked.list(),
                Recipe { regularization, ..recipe },
                settings.iterations_max,
                report,
            )?;
            trial.iterations += iterations;
            let held_out = HeldOut::new(known, asked);
            for (sum, scale) in trial.errors.iter_mut().zip(PRIOR_SCALES) {
                let prior = fit_prior(&learnt, scale, learnt.noise_variance)?;
                *sum = sum.plus(held_out.errors(&learnt, &prior)?);
            }
            done += 1;
        }
        if best.as_ref().is_none_or(|best| trial.beats(best)) {
            best = Some(trial);
        }
    }
    progress.report(Step { phase: Phase::Tuning, fraction: 1.0 });
    let best = best.expect("there is at least one regularization to try");
    let scale = best.best_scale();
    let chosen = best.errors[scale];
    Ok(Tuned {
        regularization: best.regularization,
        iterations: best.iterations.div_ceil(folds.len()),
        prior_scale: PRIOR_SCALES[scale],
        held_out: Some(HeldOutFigures { rmse: Some(chosen.rmse()), noise_variance: chosen.noise_variance() }),
    })
}

/// Pairs of known and held-out ratings.
pub(crate) fn folds(ratings: &Ratings, seed: u64) -> Vec<(Ratings, Ratings)> {
    let count = ratings.list().len();
    let mut fold_of: Vec<u8> = (0_u8..FOLDS).cycle().take(count).collect();
    fold_of.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let tried = HELD_OUT_ENOUGH.div_ceil(count / usize::from(FOLDS)).min(FOLDS_TRIED_MAX);
    let split = |fold| (ratings.filtered(|row| fold_of[row] != fold), ratings.filtered(|row| fold_of[row] == fold));
    (0_u8..FOLDS).take(tried).map(split).collect()
}

/// Learns until an iteration, from [`ITERATIONS_MIN`] on, no longer lowers the held-out error.
/// Returns the fit and the number of iterations.
fn learn_until_worse(
    (known, prepared): (&Ratings, &Prepared),
    asked: &[Rating],
    recipe: Recipe,
    iterations_max: usize,
    report: impl Fn(usize),
) -> Result<(Learnt, usize), RetrainError> {
    let mut last = f64::INFINITY;
    let mut iterations = 0;
    let learnt = learn(known, prepared, recipe, |iteration, als| {
        report(iteration);
        iterations = iteration;
        if iteration + 1 < ITERATIONS_MIN {
            return iteration >= iterations_max;
        }
        let error = held_out_square(als, asked);
        let worse = error >= last;
        last = error;
        iteration >= iterations_max || worse
    })?;
    Ok((learnt, iterations))
}

fn held_out_square(als: &Als, asked: &[Rating]) -> f64 {
    let square = |r: &Rating| f64::from(r.weight) * (f64::from(r.label) - als.score(r.user, r.item)).powi(2);
    asked.iter().map(square).sum()
}
