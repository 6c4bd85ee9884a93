//! Warm start: training from the state of an earlier training.
//!
//! A refresh takes over the settings of an earlier cold training (regularization, scale of the prior, noise variance)
//! and its factors, and iterates over all current ratings until held-out ratings are no longer predicted better. Only
//! ratings that the cold training has not seen can be held out, since its factors were fitted to the others. If the
//! caller does not know which ratings these are, or there are few, a fixed number of iterations is made.
//!
//! Every refresh starts from the factors of the cold training, not from those of the previous refresh, which are not
//! stored. One reason is that iterations beyond the first dozens make the served posteriors worse, though the trainer's
//! own weights still improve: the trainer accounts for the uncertainty of each item's features, and the posteriors do
//! not (on ml-latest-small, 36 more iterations raise the served RMSE from 0.837 to 0.844). A chain of twenty refreshes
//! would make that many. The other reason is that a version then depends only on the log as read by two trainings, and
//! not on what the refreshes between them have read.
//!
//! A refresh does not choose settings. If the data have changed as a whole, a cold training is needed; for that reason,
//! a refresh on much more data than the cold training had is rejected.

use celeris_model::Loss;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::ThreadPoolBuilder;

use crate::als::{AlsState, Grouped};
use crate::error::RetrainError;
use crate::implicit_train::refresh_implicit;
use crate::learn::{Learnt, Pinned, Prepared, Recipe};
use crate::logistic::refresh_logistic;
use crate::posterior_evaluation::{Errors, HeldOut};
use crate::prior_fit::fit_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ratings::Ratings;
use crate::state::{Known, Settled, TrainerState};
use crate::trainer::{TrainSettings, Trained, check, finish};
use crate::tuning::{HeldOutFigures, Tuned};

/// One in this many fresh ratings is held out, if that gives [`HELD_OUT_MIN`] or more, up to [`HELD_OUT_MAX`].
const HELD_OUT_SHARE: usize = 10;
const HELD_OUT_MIN: usize = 50;
const HELD_OUT_MAX: usize = 20_000;

/// Minimum number of held-out ratings to estimate the noise variance from them; with fewer, that of the earlier
/// training is scaled by the change of the trainer's own estimate.
const NOISE_ENOUGH: usize = 2000;

/// Iterations if nothing is held out. On ml-latest-small with 70 % more ratings, one to three iterations give the same
/// served error.
const ITERATIONS_UNJUDGED: usize = 3;

/// Iterations stop when the held-out error decreases by less than this share.
const IMPROVEMENT_MIN: f64 = 1e-3;

/// Maximum growth of the number of ratings: beyond it, the settings of the earlier training are not reliable.
const GROWTH_MAX: f64 = 2.0;

/// An earlier training, and the ratings that are new since.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// Its state; items are numbered as in the ratings, and items beyond its own are new.
    pub state: &'a TrainerState,
    /// For every rating, whether the cold training whose factors the state contains has not seen it; `None` if unknown.
    pub fresh: Option<&'a [bool]>,
}

impl Parent<'_> {
    /// Why a training with these settings cannot start from it; `None` if it can.
    #[must_use]
    pub fn objection(&self, ratings: &Ratings, settings: &TrainSettings) -> Option<String> {
        let settled = &self.state.settled;
        if settled.loss != settings.loss {
            return Some("it was trained for another loss".to_owned());
        }
        if settled.dim != settings.dim {
            return Some(format!("it was trained with dim {}, not {}", settled.dim, settings.dim));
        }
        let count = ratings.list().len();
        if count as f64 > settled.ratings as f64 * GROWTH_MAX {
            return Some(format!("it was trained on {} ratings, of {count} that there are now", settled.ratings));
        }
        None
    }
}

/// Warm start of the trainers of graded labels and of clicks.
#[derive(Clone, Copy)]
pub(crate) struct Fresh<'a> {
    pub(crate) settled: &'a Settled,
    pub(crate) state: &'a AlsState,
    pub(crate) rows: Option<&'a [bool]>,
}

/// Trains on `ratings`, starting from an earlier training with the same loss and `dim`.
///
/// The result depends on ratings, settings, pinned features and the earlier training, not on the number of threads.
///
/// # Errors
/// `WarmStart` if [`Parent::objection`] returns a reason, and the errors of [`crate::train`].
pub fn refresh(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    parent: Parent,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    check(ratings, settings, pinned)?;
    if let Some(reason) = parent.objection(ratings, settings) {
        return Err(RetrainError::WarmStart { reason });
    }
    let settled = &parent.state.settled;
    let pool = ThreadPoolBuilder::new().num_threads(settings.threads.get()).build()?;
    let trained = pool.install(|| match &parent.state.known {
        Known::Implicit(factors) => refresh_implicit(ratings, settings, pinned, (settled, factors), progress),
        Known::Als(state) => {
            let fresh = Fresh { settled, state, rows: parent.fresh };
            match settings.loss {
                Loss::Logistic => refresh_logistic(ratings, settings, pinned, fresh, progress),
                _ => refresh_squared(ratings, settings, pinned, fresh, progress),
            }
        }
    })?;
    Ok(Trained { state: Some(parent.state.for_items(ratings.items())), ..trained })
}

fn refresh_squared(
    ratings: &Ratings,
    settings: &TrainSettings,
    pinned: &Pinned,
    fresh: Fresh,
    progress: &dyn Progress,
) -> Result<Trained, RetrainError> {
    let settled = fresh.settled;
    let regularization = settings.regularization.unwrap_or(settled.regularization);
    let recipe = Recipe { dim: settings.dim, seed: settings.seed, regularization, pinned };
    let held = HeldRows::of(ratings, fresh.rows, settings.seed);
    let served = held.as_ref().map(|held| HeldOut::new(&held.known, &held.asked));
    let evaluate = |learnt: &Learnt| -> Result<Option<Errors>, RetrainError> {
        let prior = fit_prior(learnt, settled.prior_scale, learnt.noise_variance)?;
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
    let Settled { prior_scale, .. } = *settled;
    finish(
        ratings,
        refit.learnt,
        Tuned { regularization, iterations: refit.iterations, prior_scale, held_out: Some(figures) },
    )
}

/// Ratings held out from a refresh until its last iteration.
pub(crate) struct HeldRows {
    /// For every rating, whether it is held out.
    pub(crate) rows: Vec<bool>,
    pub(crate) known: Ratings,
    pub(crate) asked: Ratings,
}

impl HeldRows {
    /// Holds out a share of the fresh ratings; `None` if these are unknown or too few.
    pub(crate) fn of(ratings: &Ratings, fresh: Option<&[bool]>, seed: u64) -> Option<Self> {
        let rows = hold_out(fresh?, seed)?;
        let (known, asked) = (ratings.filtered(|row| !rows[row]), ratings.filtered(|row| rows[row]));
        Some(Self { rows, known, asked })
    }
}

/// A fit to all ratings, and the same fit before it saw the held-out ones.
pub(crate) struct Refit {
    pub(crate) learnt: Learnt,
    pub(crate) iterations: usize,
    pub(crate) evaluated: Option<Learnt>,
}

/// Iterates from `state`: over the ratings that are not held out until `error`, the held-out error, no longer
/// decreases; then once over all ratings. The caller guarantees that `held` has the same rows as `ratings`; the labels
/// may differ.
pub(crate) fn refit(
    ratings: &Ratings,
    recipe: Recipe,
    state: &AlsState,
    (held, iterations_max): (Option<&HeldRows>, usize),
    error: impl Fn(&Learnt) -> Result<f64, RetrainError>,
    progress: &dyn Progress,
) -> Result<Refit, RetrainError> {
    let prepared = Prepared::of(ratings, recipe.dim)?;
    let mut als = prepared.begin(ratings, recipe);
    als.resume(state);
    let report = |iteration: usize, of: usize| {
        let fraction = (iteration as f32 / of as f32).min(1.0);
        progress.report(Step { phase: Phase::Training, fraction });
    };
    let Some(held) = held else {
        let iterations = ITERATIONS_UNJUDGED.min(iterations_max);
        for iteration in 1..=iterations {
            als.iterate()?;
            report(iteration, iterations);
        }
        return Ok(Refit { learnt: prepared.finish(ratings, recipe, als)?, iterations, evaluated: None });
    };
    let known = ratings.filtered(|row| !held.rows[row]);
    als.learn_from(&Grouped::of(&known));
    let (mut iterations, mut last) = (0, f64::INFINITY);
    let evaluated = loop {
        als.iterate()?;
        iterations += 1;
        report(iterations, iterations_max + 1);
        let learnt = prepared.finish(&known, recipe, als.clone())?;
        let now = error(&learnt)?;
        if now > last * (1.0 - IMPROVEMENT_MIN) || iterations >= iterations_max {
            break learnt;
        }
        last = now;
    };
    als.learn_from(&prepared.grouped);
    als.iterate()?;
    report(1, 1);
    Ok(Refit { learnt: prepared.finish(ratings, recipe, als)?, iterations: iterations + 1, evaluated: Some(evaluated) })
}

/// Selects the held-out ratings, a share of the fresh ones; `None` if these are too few.
fn hold_out(fresh: &[bool], seed: u64) -> Option<Vec<bool>> {
    let mut rows: Vec<usize> = fresh.iter().enumerate().filter(|(_, fresh)| **fresh).map(|(row, _)| row).collect();
    let count = (rows.len() / HELD_OUT_SHARE).min(HELD_OUT_MAX);
    if count < HELD_OUT_MIN {
        return None;
    }
    rows.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut held_out = vec![false; fresh.len()];
    for row in &rows[..count] {
        held_out[*row] = true;
    }
    Some(held_out)
}
