//! Tuning of settings on held-out ratings.
//!
//! A tenth of the ratings is held out, features are learnt from the rest until they stop improving, with choice vectors
//! and without, and each fit is evaluated by the served posteriors under priors of several scales. Choice vectors are
//! left out unless they lower the error by more than its standard error, since a version pays for them in
//! memory and at each observation; nor have users a recent bias unless that does. If a tenth is few ratings, several tenths are held out in turn and evaluated
//! together. Of many ratings, settings are tuned on those of some users, which would otherwise take longer than the training.

use celeris_model::RecentBias;
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
use crate::recent_bias::{Replay, Served, choose};
use crate::settings::TrainSettings;

/// One in this many ratings is held out.
const FOLDS: u8 = 10;

/// Folds are evaluated until this many ratings have been held out in total, or [`FOLDS_TRIED_MAX`]
/// folds.
const HELD_OUT_ENOUGH: usize = 2000;
const FOLDS_TRIED_MAX: usize = 3;

/// With fewer ratings, nothing is held out, and the settings are [`Tuned::untuned`].
pub(crate) const RATINGS_MIN: usize = 100;

/// Beyond this many ratings, settings are tuned on about as many, all of some users.
const RATINGS_MAX: usize = 1_000_000;

/// Minimum number of iterations before the held-out error is evaluated.
///
/// Chosen on ml-latest-small: with five ratings per user, the error still falls from 10 to 20
/// iterations (RMSE 0.962 and 0.956), and with ninety percent of the data it is flat.
pub(crate) const ITERATIONS_MIN: usize = 18;

/// The regularization unless it is set: that of the model.
pub(crate) const REGULARIZATION: f64 = 1.0;

/// Candidate scales of the prior precision, ascending, in steps that the error hardly resolves.
pub(crate) const PRIOR_SCALES: [f64; 7] = [0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0];

/// The settings of the final training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tuned {
    pub(crate) regularization: f64,
    /// Whether choice vectors are fitted.
    pub(crate) choices: bool,
    pub(crate) iterations: usize,
    pub(crate) prior_scale: f64,
    /// The rule of the users' recent bias; `None` if they have none.
    pub(crate) recent_bias: Option<RecentBias>,
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
        let regularization = settings.regularization.unwrap_or(REGULARIZATION);
        Self {
            regularization,
            choices: false,
            iterations: ITERATIONS_MIN.min(settings.iterations_max),
            prior_scale: 1.0,
            recent_bias: None,
            held_out: None,
        }
    }
}

/// A way to train, evaluated on all folds.
struct Trial {
    choices: bool,
    /// Of all folds together.
    iterations: usize,
    /// The errors of each user in each fold, by prior scale.
    errors: Vec<Vec<Errors>>,
    /// By fold.
    fits: Vec<Learnt>,
}

impl Trial {
    /// Index of the scale with the lowest error.
    fn best_scale(&self) -> usize {
        let rmse = |scale: usize| Errors::sum(&self.errors[scale]).rmse();
        let scales = 0..self.errors.len();
        scales.min_by(|a, b| rmse(*a).total_cmp(&rmse(*b))).expect("there is at least one scale to try")
    }

    fn best(&self) -> &[Errors] {
        &self.errors[self.best_scale()]
    }

    /// Whether its error is lower than that of `other` by more than the standard error of the difference.
    fn surely_beats(&self, other: &Self) -> bool {
        let (excess, deviation) = Errors::excess(other.best(), self.best());
        excess > deviation
    }
}

/// Chooses whether choice vectors are fitted, the number of iterations, the scale of the prior, and whether users have a recent bias.
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
    let of_some = of_some_users(ratings, RATINGS_MAX);
    let ratings = of_some.as_ref().unwrap_or(ratings);
    let folds: Vec<(Prepared, Fold)> =
        folds(ratings, settings.seed).into_iter().map(|fold| (Prepared::of(&fold.known, recipe.dim), fold)).collect();
    let (mut done, total) = (0, 2 * folds.len());
    let mut trials = [false, true].map(|choices| Trial {
        choices,
        iterations: 0,
        errors: vec![Vec::new(); PRIOR_SCALES.len()],
        fits: Vec::new(),
    });
    for trial in &mut trials {
        for (prepared, Fold { known, asked, .. }) in &folds {
            let report = |iteration: usize| {
                let within = iteration as f32 / settings.iterations_max as f32;
                progress.report(Step { phase: Phase::Tuning, fraction: (done as f32 + within) / total as f32 });
            };
            let recipe = Recipe { choices: trial.choices, ..recipe };
            let (learnt, used) =
                learn_until_worse((known, prepared), asked.list(), recipe, settings.iterations_max, report)?;
            trial.iterations += used;
            let held_out = HeldOut::new(known, asked);
            for (errors, scale) in trial.errors.iter_mut().zip(PRIOR_SCALES) {
                let prior = fit_prior(&learnt, scale, learnt.noise_variance)?;
                errors.extend(held_out.errors_by_user(&learnt, &prior)?);
            }
            trial.fits.push(learnt);
            done += 1;
        }
    }
    let [without, with] = trials;
    let best = if with.surely_beats(&without) { with } else { without };
    let replays: Vec<Replay> = folds.iter().map(|(_, fold)| Replay::new(ratings, &fold.held_out)).collect();
    let fits: Vec<(&Replay, &Learnt)> = replays.iter().zip(&best.fits).collect();
    let prior_scale = PRIOR_SCALES[best.best_scale()];
    let (Served { prior_scale, recent_bias }, errors) = match choose(&fits, prior_scale, &PRIOR_SCALES)? {
        Some(chosen) => chosen,
        None => (Served { prior_scale, recent_bias: None }, Errors::sum(best.best())),
    };
    progress.report(Step { phase: Phase::Tuning, fraction: 1.0 });
    Ok(Tuned {
        regularization: recipe.regularization,
        choices: best.choices,
        iterations: best.iterations.div_ceil(folds.len()),
        prior_scale,
        recent_bias,
        held_out: Some(HeldOutFigures { rmse: Some(errors.rmse()), noise_variance: errors.noise_variance() }),
    })
}

/// The ratings of every second, third, ... user, such that they are about `most`; `None` if there are no more, or if these users
/// have few of them.
fn of_some_users(ratings: &Ratings, most: usize) -> Option<Ratings> {
    let every = u32::try_from(ratings.list().len().div_ceil(most)).ok().filter(|every| *every > 1)?;
    let of_some = ratings.filtered(|row| ratings.list()[row].user.is_multiple_of(every));
    (of_some.list().len() >= most / 4).then_some(of_some)
}

/// Ratings of which some are held out.
pub(crate) struct Fold {
    pub(crate) known: Ratings,
    pub(crate) asked: Ratings,
    /// For every rating, whether it is held out.
    pub(crate) held_out: Vec<bool>,
}

/// Folds, whose held-out ratings are disjoint.
pub(crate) fn folds(ratings: &Ratings, seed: u64) -> Vec<Fold> {
    let count = ratings.list().len();
    let mut fold_of: Vec<u8> = (0_u8..FOLDS).cycle().take(count).collect();
    fold_of.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let tried = HELD_OUT_ENOUGH.div_ceil(count / usize::from(FOLDS)).min(FOLDS_TRIED_MAX);
    let split = |fold| {
        let held_out: Vec<bool> = fold_of.iter().map(|of| *of == fold).collect();
        let (known, asked) = (ratings.filtered(|row| !held_out[row]), ratings.filtered(|row| held_out[row]));
        Fold { known, asked, held_out }
    };
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn many_ratings_are_tuned_on_all_those_of_some_users() {
        let rating = |user, item| Rating { user, item, label: 1.0, weight: 1.0 };
        let list: Vec<Rating> = (0..90).flat_map(|user| (0..10).map(move |item| rating(user, item))).collect();
        let ratings = Ratings::new(90, 10, list).unwrap();
        assert!(of_some_users(&ratings, 900).is_none());
        let of_some = of_some_users(&ratings, 300).unwrap();
        assert_eq!((of_some.list().len(), of_some.users(), of_some.items()), (300, 90, 10));
        assert!(of_some.list().iter().all(|rating| rating.user.is_multiple_of(3)));
        // Nearly all are of one user, who is not among them.
        let list: Vec<Rating> = (0..900).map(|row| rating(u32::from(row != 0), row % 10)).collect();
        assert!(of_some_users(&Ratings::new(2, 10, list).unwrap(), 300).is_none());
    }
}
