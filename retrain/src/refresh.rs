//! Training that goes on from an earlier one.
//!
//! A refresh takes over what an earlier training from nothing settled on (regularization, the scale of the prior, the
//! noise) and its factors, and iterations on over everything there is now until held-out ratings are no longer predicted
//! better. Only ratings that the earlier training has not seen can be held out: of the others its factors know. Where the
//! caller cannot say which those are, or they are few, a fixed number of iterations is taken.
//!
//! Every refresh goes on from the factors of the training from nothing, not from those of the refresh before, which are
//! not kept. One reason is that iterations beyond the first dozens make the served posteriors worse, though the trainer's own
//! weights go on improving: these know how unsure each item's features are, and the posteriors do not (on
//! ml-latest-small, 36 iterations more raise the served RMSE from 0.837 to 0.844). Twenty refreshes one upon the other would
//! take as many. The other is that a version then knows only of what two trainings have read, and not of what any refresh
//! between them has.
//!
//! What a refresh does not do: choose settings. When the data have changed as a whole, a training from nothing does; a
//! refresh of much more data than its start was trained on is refused for that reason.

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

/// One fresh rating in so many is held out, from [`HELD_OUT_MIN`] on and up to [`HELD_OUT_MAX`].
const HELD_OUT_SHARE: usize = 10;
const HELD_OUT_MIN: usize = 50;
const HELD_OUT_MAX: usize = 20_000;

/// With so many held-out ratings their own noise is believed; with fewer, that of the earlier training, changed as the
/// trainer's own estimate has changed.
const NOISE_ENOUGH: usize = 2000;

/// Iterations where nothing is held out. On ml-latest-small with 70 % more ratings, one to three iterations serve alike.
const ITERATIONS_UNJUDGED: usize = 3;

/// A iteration that lowers the held-out error by less than this share is the last but one.
const IMPROVEMENT_MIN: f64 = 1e-3;

/// With more ratings than this times those of the earlier training, its settings say little.
const GROWTH_MAX: f64 = 2.0;

/// An earlier training, and what is new since.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// What it left; items are numbered as in the ratings, and those beyond its own are new.
    pub state: &'a TrainerState,
    /// For every rating whether the earlier training from nothing, whose factors the state holds, has not seen it; `None`
    /// where that is not known.
    pub fresh: Option<&'a [bool]>,
}

impl Parent<'_> {
    /// Why a training with these settings cannot go on from it; `None` where it can.
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

/// What the trainers of graded labels and of clicks go on from.
#[derive(Clone, Copy)]
pub(crate) struct Fresh<'a> {
    pub(crate) settled: &'a Settled,
    pub(crate) state: &'a AlsState,
    pub(crate) rows: Option<&'a [bool]>,
}

/// Trains on `ratings`, going on from an earlier training of the same loss and `dim`.
///
/// The result depends on ratings, settings, pinned features and the earlier training, not on the number of threads.
///
/// # Errors
/// `WarmStart` where [`Parent::objection`] has one, and those of [`crate::train`].
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
    let judge = |learnt: &Learnt| -> Result<Option<Errors>, RetrainError> {
        let prior = fit_prior(learnt, settled.prior_scale, learnt.noise_variance)?;
        Ok(served.as_ref().map(|served| served.errors(learnt, &prior)).transpose()?)
    };
    let error = |learnt: &Learnt| Ok(judge(learnt)?.map_or(0.0, |errors| errors.rmse()));
    let refit = refit(ratings, recipe, fresh.state, (held.as_ref(), settings.iterations_max), error, progress)?;
    let changed = refit.learnt.noise_variance / fresh.state.population.noise_variance;
    let mut figures = HeldOutFigures { rmse: None, noise_variance: settled.noise_variance * changed };
    let errors = refit.judged.as_ref().map(judge).transpose()?.flatten();
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

/// Ratings that are held out of a refresh until its last iteration.
pub(crate) struct HeldRows {
    /// For every rating whether it is held out.
    pub(crate) rows: Vec<bool>,
    pub(crate) known: Ratings,
    pub(crate) asked: Ratings,
}

impl HeldRows {
    /// A share of the fresh ratings; `None` where those are not known or too few.
    pub(crate) fn of(ratings: &Ratings, fresh: Option<&[bool]>, seed: u64) -> Option<Self> {
        let rows = hold_out(fresh?, seed)?;
        let (known, asked) = (ratings.filtered(|row| !rows[row]), ratings.filtered(|row| rows[row]));
        Some(Self { rows, known, asked })
    }
}

/// A fit to everything, and the same fit before it saw what was held out.
pub(crate) struct Refit {
    pub(crate) learnt: Learnt,
    pub(crate) iterations: usize,
    pub(crate) judged: Option<Learnt>,
}

/// Iterations on from `state`: over what is not held out until `error`, that of what is held out, no longer falls; then once
/// over everything. The caller guarantees that `held` is of the same rows as `ratings`, whatever its labels.
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
            als.sweep()?;
            report(iteration, iterations);
        }
        return Ok(Refit { learnt: prepared.finish(ratings, recipe, als)?, iterations, judged: None });
    };
    let known = ratings.filtered(|row| !held.rows[row]);
    als.learn_from(&Grouped::of(&known));
    let (mut iterations, mut last) = (0, f64::INFINITY);
    let judged = loop {
        als.sweep()?;
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
    als.sweep()?;
    report(1, 1);
    Ok(Refit { learnt: prepared.finish(ratings, recipe, als)?, iterations: iterations + 1, judged: Some(judged) })
}

/// Which ratings are held out: a share of the fresh ones; `None` where those are too few.
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
