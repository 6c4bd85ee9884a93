//! Warm start of the trainers of graded labels and of clicks: iterations from the factors of an
//! earlier training.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::als::{AlsState, Grouped};
use crate::error::RetrainError;
use crate::learn::{Learnt, Prepared, Recipe};
use crate::progress::{Phase, Progress, Step};
use crate::ratings::Ratings;
use crate::state::Settled;

/// One in this many fresh ratings is held out, if that gives [`HELD_OUT_MIN`] or more, up to
/// [`HELD_OUT_MAX`].
const HELD_OUT_SHARE: usize = 10;
const HELD_OUT_MIN: usize = 50;
const HELD_OUT_MAX: usize = 20_000;

/// Iterations if nothing is held out. On ml-latest-small with 70 % more ratings, one to three
/// iterations give the same served error.
const ITERATIONS_UNJUDGED: usize = 3;

/// Iterations stop when the held-out error decreases by less than this share.
const IMPROVEMENT_MIN: f64 = 1e-3;

/// Warm start of the trainers of graded labels and of clicks.
#[derive(Clone, Copy)]
pub(crate) struct Fresh<'a> {
    pub(crate) settled: &'a Settled,
    pub(crate) state: &'a AlsState,
    pub(crate) rows: Option<&'a [bool]>,
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

/// Iterates from `state`: over the ratings that are not held out until `error`, the held-out error,
/// no longer decreases; then once over all ratings. The caller guarantees that `held` has the same
/// rows as `ratings`; the labels may differ.
pub(crate) fn refit(
    ratings: &Ratings,
    recipe: Recipe,
    state: &AlsState,
    (held, iterations_max): (Option<&HeldRows>, usize),
    error: impl Fn(&Learnt) -> Result<f64, RetrainError>,
    progress: &dyn Progress,
) -> Result<Refit, RetrainError> {
    let prepared = Prepared::of(ratings, recipe.dim);
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
