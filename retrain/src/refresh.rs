//! Training that goes on from an earlier one.
//!
//! A refresh takes over what the earlier training settled on (regularization, the scale of the prior, the noise) and its
//! factors, and sweeps on over everything there is now until held-out ratings are no longer predicted better. Only ratings
//! that the earlier training has not seen can be held out: of the others its factors know. Where the caller cannot say
//! which those are, or they are few, a fixed number of sweeps is taken.
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
use crate::prior_fit::fit_prior;
use crate::progress::{Phase, Progress, Step};
use crate::ratings::Ratings;
use crate::served::HeldOut;
use crate::state::{Known, Settled, TrainerState};
use crate::trainer::{TrainSettings, Trained, check, finish};
use crate::tuning::{HeldOutFigures, Tuned, held_out_square};

/// One fresh rating in so many is held out, from [`HELD_OUT_MIN`] on and up to [`HELD_OUT_MAX`].
const HELD_OUT_SHARE: usize = 10;
const HELD_OUT_MIN: usize = 50;
const HELD_OUT_MAX: usize = 20_000;

/// With so many held-out ratings their own noise is believed; with fewer, that of the earlier training, changed as the
/// trainer's own estimate has changed.
const NOISE_ENOUGH: usize = 2000;

/// Sweeps where nothing is held out, and before the held-out error is asked whether to go on.
const SWEEPS_UNJUDGED: usize = 3;
const SWEEPS_MIN: usize = 2;

/// A sweep that lowers the held-out squared error by less than this share is the last but one.
const IMPROVEMENT_MIN: f64 = 1e-3;

/// With more ratings than this times those of the earlier training, its settings say little.
const GROWTH_MAX: f64 = 1.5;

/// An earlier training, and what is new since.
#[derive(Debug, Clone, Copy)]
pub struct Parent<'a> {
    /// What it left; items are numbered as in the ratings, and those beyond its own are new.
    pub state: &'a TrainerState,
    /// For every rating whether the earlier training has not seen it; `None` where that is not known.
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
    pool.install(|| match &parent.state.known {
        Known::Implicit(factors) => refresh_implicit(ratings, settings, pinned, (settled, factors), progress),
        Known::Als(state) => {
            let fresh = Fresh { settled, state, rows: parent.fresh };
            match settings.loss {
                Loss::Logistic => refresh_logistic(ratings, settings, pinned, fresh, progress),
                _ => refresh_squared(ratings, settings, pinned, fresh, progress),
            }
        }
    })
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
    let refit = refit(ratings, recipe, fresh.state, (fresh.rows, settings.sweeps_max), progress);
    let changed = refit.learnt.noise_variance / fresh.state.population.noise_variance;
    let mut held_out = HeldOutFigures { rmse: None, noise_variance: settled.noise_variance * changed };
    if let Some(judged) = &refit.judged {
        let kept = |wanted: bool| ratings.filtered(|row| judged.held_out[row] == wanted);
        let asked = kept(true);
        let prior = fit_prior(&judged.learnt, settled.prior_scale, judged.learnt.noise_variance)?;
        let errors = HeldOut::new(&kept(false), &asked).errors(&judged.learnt, &prior)?;
        held_out.rmse = Some(errors.rmse());
        if asked.list().len() >= NOISE_ENOUGH {
            held_out.noise_variance = errors.noise_variance();
        }
    }
    let Settled { prior_scale, .. } = *settled;
    finish(ratings, refit.learnt, Tuned { regularization, sweeps: refit.sweeps, prior_scale, held_out: Some(held_out) })
}

/// A fit to everything, and what it can be judged by.
pub(crate) struct Refit {
    pub(crate) learnt: Learnt,
    pub(crate) sweeps: usize,
    pub(crate) judged: Option<Judged>,
}

/// The same fit before it saw what was held out.
pub(crate) struct Judged {
    pub(crate) learnt: Learnt,
    /// For every rating whether it was held out.
    pub(crate) held_out: Vec<bool>,
}

/// Sweeps on from `state`: over what is not held out until that no longer helps, then once over everything.
pub(crate) fn refit(
    ratings: &Ratings,
    recipe: Recipe,
    state: &AlsState,
    (fresh, sweeps_max): (Option<&[bool]>, usize),
    progress: &dyn Progress,
) -> Refit {
    let prepared = Prepared::of(ratings, recipe.dim);
    let mut als = prepared.begin(ratings, recipe);
    als.resume(state);
    let report = |sweep: usize, of: usize| {
        let fraction = (sweep as f32 / of as f32).min(1.0);
        progress.report(Step { phase: Phase::Training, fraction });
    };
    let Some(held_out) = fresh.and_then(|fresh| hold_out(fresh, recipe.seed)) else {
        let sweeps = SWEEPS_UNJUDGED.min(sweeps_max);
        for sweep in 1..=sweeps {
            als.sweep();
            report(sweep, sweeps);
        }
        return Refit { learnt: prepared.finish(ratings, recipe, als), sweeps, judged: None };
    };
    let (known, asked) = (ratings.filtered(|row| !held_out[row]), ratings.filtered(|row| held_out[row]));
    als.learn_from(&Grouped::of(&known));
    let (mut sweeps, mut last) = (0, f64::INFINITY);
    loop {
        als.sweep();
        sweeps += 1;
        report(sweeps, sweeps_max + 1);
        let error = held_out_square(&als, asked.list());
        let settled = sweeps >= SWEEPS_MIN && error > last * (1.0 - IMPROVEMENT_MIN);
        last = error;
        if settled || sweeps >= sweeps_max {
            break;
        }
    }
    let judged = Judged { learnt: prepared.finish(&known, recipe, als.clone()), held_out };
    als.learn_from(&prepared.grouped);
    als.sweep();
    sweeps += 1;
    report(1, 1);
    Refit { learnt: prepared.finish(ratings, recipe, als), sweeps, judged: Some(judged) }
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
