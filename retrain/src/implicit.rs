//! Features from implicit feedback: alternating least squares after Hu, Koren and Volinsky (2008).
//!
//! Every pair of a user and an item has a preference `p`, 1 if the user has taken the item and 0
//! otherwise, with confidence `c = 1 + sum weight * label` over the observations of the pair
//! ([`celeris_model::preference`]). There is no decay here: a half-life decays the influence of a
//! user's past on the user's own weights, while item factors use all observations equally. Factors
//! minimise
//!
//! ```text
//! sum over all pairs  c (p - x_u · y_i)^2  +  lambda (sum |x_u|^2 + sum |y_i|^2)
//! ```
//!
//! With one side fixed, a row of the other is `(Y^T Y + lambda I + Y^T (C - I) Y) x = Y^T C p`,
//! where `Y^T Y` is shared by all rows and the rest is a sum over the row's own pairs (their
//! section 4).
//!
//! Two things are specific to this model. The last feature of every item is 1, so the last weight
//! of a user is the user's general tendency to take items; it is part of `Y^T Y` like every other
//! feature. And at the end all factors are divided by their common root mean square, and `lambda`
//! by its square: that changes no score, and the ridge stays a multiple of the identity, so that a
//! user's posterior under the version's prior is the user's row of this factorisation.

use std::collections::HashMap;

use celeris_features::ColdItem;
use celeris_kernel as kernel;
use celeris_model::linear::symmetric_eigen;
use celeris_model::preference::{self, excess, is_taken};
use celeris_model::{ModelError, Prior};
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::als::write_row;
use crate::conjugate::{Pair, Shared, Solver};
use crate::error::RetrainError;
use crate::learn::Pinned;
use crate::prior_fit::CONDITION_TARGET;
use crate::ratings::{Entry, Rating, Ratings, Rows};

/// Rows per parallel chunk.
const CHUNK_ROWS: usize = 64;

/// Rows per partial sum of products; fixed, so that sums do not depend on the number of threads.
const GRAM_ROWS: usize = 4096;

/// Rows multiplied in `f32` before they are added in `f64`.
const GRAM_BLOCK: usize = 256;

/// Standard deviation of the initial factors: small compared with the preferences.
const START_SPREAD: f32 = 0.1;

/// Factors with a smaller RMS carry no information and are not scaled.
const RMS_MIN: f64 = 1e-9;

/// Steps of conjugate gradients per row and iteration, starting from the previous iteration's row.
/// With two or three steps, iterations converge as with exact solves (Takács et al. 2011, section
/// 5).
const STEPS: usize = 3;

/// Steps from a zero start, in the first iteration of users and after the last.
const STEPS_FROM_NOTHING: usize = 10;

/// Rounds of refinement in `f64` of the users' final rows, each of at most [`STEPS_EXACT`] steps:
/// every round reduces the error to a thousandth or less if the condition is within its bound.
const REFINEMENTS: usize = 4;
const STEPS_EXACT: usize = 64;

/// The distinct pairs that were taken. The label of a pair is its excess confidence `c - 1`,
/// rounded to `f32` but never to 0.
///
/// Several observations of a pair are one preference, with the confidence of all of them; labels of
/// 0 and below add nothing to the confidence of 1 that every pair has.
#[expect(clippy::cast_possible_truncation, reason = "ratings are held in f32; rounding to the nearest is meant")]
pub(crate) fn taken(ratings: &Ratings) -> Vec<Rating> {
    let mut places: HashMap<(u32, u32), usize, foldhash::fast::RandomState> = HashMap::default();
    places.reserve(ratings.list().len());
    let mut pairs: Vec<(Rating, f64)> = Vec::new();
    for rating in ratings.list().iter().filter(|rating| is_taken(rating.label)) {
        let place = *places.entry((rating.user, rating.item)).or_insert_with(|| {
            pairs.push((Rating { label: 0.0, weight: 1.0, ..*rating }, 0.0));
            pairs.len() - 1
        });
        pairs[place].1 += excess(rating.label, rating.weight);
    }
    pairs.into_iter().map(|(pair, excess)| Rating { label: (excess as f32).max(f32::MIN_POSITIVE), ..pair }).collect()
}

/// Settings of a fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImplicitRecipe<'a> {
    pub(crate) dim: usize,
    pub(crate) seed: u64,
    pub(crate) lambda: f64,
    pub(crate) iterations: usize,
    pub(crate) pinned: &'a Pinned,
    /// Row-major `items x (dim - 1)`: initial factors in place of random ones.
    pub(crate) factors: Option<&'a [f32]>,
}

/// Result of a fit.
#[derive(Debug, Clone)]
pub(crate) struct ImplicitFit {
    /// Row-major `items x dim`: the last column is 1, the others have a common root mean square of 1. Items without
    /// observations have the cold item's row.
    pub(crate) features: Vec<f32>,
    /// Row-major `users x dim`: each user's row of the factorisation, the posterior mean under
    /// [`ImplicitFit::precision`].
    pub(crate) weights: Vec<f32>,
    pub(crate) cold_item: ColdItem,
    /// `Lambda = Y^T Y + lambda I`.
    pub(crate) precision: DMatrix<f64>,
    /// Row-major `items x (dim - 1)`: the factors after the last iteration, before scaling.
    pub(crate) factors: Vec<f32>,
}

impl ImplicitFit {
    /// The prior that users are served from: zero mean, and the precision of a user who has taken
    /// nothing.
    ///
    /// # Errors
    /// [`RetrainError::Prior`] if the confidences were so large that the features overflowed.
    pub(crate) fn prior(&self, noise_variance: f64) -> Result<Prior, RetrainError> {
        let dim = self.precision.nrows();
        Ok(Prior::new(vec![0.0; dim], self.precision.as_slice().to_vec(), noise_variance)?)
    }
}

struct Factors<'a> {
    dim: usize,
    lambda: f64,
    /// Row-major `items x dim`.
    items: Vec<f32>,
    /// Row-major `users x dim`.
    users: Vec<f32>,
    /// Items with observations; only these are part of all pairs.
    active: &'a [bool],
    by_user: Rows,
    by_item: Rows,
}

/// Accuracy of the users' rows after the last iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    /// As exact as they can be stored.
    Exact,
    /// As exact as a ranking needs.
    Near,
}

/// Fits factors to the pairs. `active` marks the items with observations; `on_iteration` is called
/// after every iteration.
///
/// # Errors
/// `NonFinite` if features overflow.
pub(crate) fn fit(
    (users, items): (usize, usize),
    taken: &[Rating],
    active: &[bool],
    recipe: ImplicitRecipe,
    solved: Users,
    mut on_iteration: impl FnMut(usize),
) -> Result<ImplicitFit, ModelError> {
    let mut factors = Factors::start((users, items), taken, active, recipe);
    for iteration in 1..=recipe.iterations {
        let precision = factors.user_precision();
        factors.solve_users(&precision, if iteration == 1 { STEPS_FROM_NOTHING } else { STEPS });
        factors.solve_items(STEPS);
        on_iteration(iteration);
    }
    factors.finish(recipe.pinned, solved)
}

/// Features that are given instead of learnt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    /// Row-major `items x dim`, the last entry of a row 1.
    pub(crate) features: &'a [f32],
    /// Length `dim`.
    pub(crate) cold_features: &'a [f32],
    pub(crate) active: &'a [bool],
    /// The ridge `lambda`, raised as far as the bound on the condition requires.
    pub(crate) ridge: f64,
}

/// Fits every user's row to given features, under `Lambda = Y^T Y + lambda I`.
///
/// # Errors
/// `NonFinite` if sums of features overflow.
pub(crate) fn fit_users(users: usize, taken: &[Rating], given: Given) -> Result<ImplicitFit, ModelError> {
    let Given { features, cold_features, active, ridge } = given;
    let dim = cold_features.len();
    let mut factors = Factors {
        dim,
        lambda: ridge,
        items: features.to_vec(),
        users: vec![0.0; users * dim],
        active,
        by_user: Rows::grouped(users, taken, |pair| (pair.user, pair.item)),
        by_item: Rows::grouped(active.len(), taken, |pair| (pair.item, pair.user)),
    };
    let precision = ridged(gram_exactly(features, dim, |item| active[item]), ridge)?;
    factors.solve_users_exactly(&precision);
    let cold_item = ColdItem { offset: 0.0, features: cold_features.to_vec() };
    // No factors, since nothing is warm started from given features.
    Ok(ImplicitFit { features: factors.items, weights: factors.users, cold_item, precision, factors: Vec::new() })
}

impl<'a> Factors<'a> {
    fn start((users, items): (usize, usize), taken: &[Rating], active: &'a [bool], recipe: ImplicitRecipe) -> Self {
        let dim = recipe.dim;
        let mut random = ChaCha8Rng::seed_from_u64(recipe.seed);
        let mut rows = vec![1.0_f32; items * dim];
        for (item, row) in rows.chunks_exact_mut(dim).enumerate() {
            match recipe.factors.and_then(|factors| factors.get(item * (dim - 1)..(item + 1) * (dim - 1))) {
                Some(known) => row[..dim - 1].copy_from_slice(known),
                None => row[..dim - 1].fill_with(|| (random.random::<f32>() * 2.0 - 1.0) * START_SPREAD),
            }
        }
        let (by_user, by_item) = rayon::join(
            || Rows::grouped(users, taken, |pair| (pair.user, pair.item)),
            || Rows::grouped(items, taken, |pair| (pair.item, pair.user)),
        );
        Self { dim, lambda: recipe.lambda, items: rows, users: vec![0.0; users * dim], active, by_user, by_item }
    }

    /// Root mean square of all latent factors of active items.
    fn rms(&self) -> f64 {
        let (mut squares, mut count) = (0.0, 0.0);
        for (row, _) in self.items.chunks_exact(self.dim).zip(self.active).filter(|(_, active)| **active) {
            squares += row[..self.dim - 1].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            count += (self.dim - 1) as f64;
        }
        let rms = if count > 0.0 { (squares / count).sqrt() } else { 1.0 };
        if rms < RMS_MIN { 1.0 } else { rms }
    }

    /// `Y^T Y` plus the ridge. The ridge of the constant's weight is `lambda` over the mean square
    /// of the others, since the constant is not scaled at the end.
    fn user_precision(&self) -> DMatrix<f64> {
        let mut precision = gram(&self.items, self.dim, |item| self.active[item]);
        for k in 0..self.dim - 1 {
            precision[(k, k)] += self.lambda;
        }
        precision[(self.dim - 1, self.dim - 1)] += self.lambda / self.rms().powi(2);
        precision
    }

    fn solve_users(&mut self, precision: &DMatrix<f64>, steps: usize) {
        self.each_user(precision, |_, solver, pairs, weights| {
            if pairs.is_empty() {
                weights.fill(0.0);
            } else {
                solver.improve(pairs, weights, steps);
            }
        });
    }

    /// Lets `solve` write every user's row, given the user's pairs.
    fn each_user(&mut self, precision: &DMatrix<f64>, solve: impl Fn(&Self, &mut Solver, &[Pair], &mut [f32]) + Sync) {
        let dim = self.dim;
        let shared = Shared::new(precision, &DVector::zeros(dim));
        let mut users = std::mem::take(&mut self.users);
        let this = &*self;
        users.par_chunks_mut(CHUNK_ROWS * dim).enumerate().for_each(|(chunk, rows)| {
            let (mut solver, mut pairs) = (Solver::new(&shared, &this.items), Vec::new());
            for (row, weights) in rows.chunks_exact_mut(dim).enumerate() {
                this.pairs_of_user(chunk * CHUNK_ROWS + row, &mut pairs);
                solve(this, &mut solver, &pairs, weights);
            }
        });
        self.users = users;
    }

    fn pairs_of_user(&self, user: usize, pairs: &mut Vec<Pair>) {
        pairs.clear();
        pairs.extend(self.by_user.row(user).iter().map(|entry| Pair {
            start: entry.other as usize * self.dim,
            excess: entry.label,
            pull: preference_pull(entry),
        }));
    }

    /// Solves the users' rows to full `f32` accuracy: conjugate gradients in `f32`, refined with
    /// residuals in `f64` (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, chapter
    /// 12).
    fn solve_users_exactly(&mut self, precision: &DMatrix<f64>) {
        self.each_user(precision, |this, solver, pairs, weights| {
            let mut exact = DVector::zeros(this.dim);
            if !pairs.is_empty() {
                for _ in 0..REFINEMENTS {
                    let residual = this.residual(pairs, precision, &exact);
                    let correction = solver.correction(pairs, &residual, STEPS_EXACT);
                    exact.iter_mut().zip(correction).for_each(|(sum, part)| *sum += f64::from(*part));
                }
            }
            write_row(weights, exact.iter().copied());
        });
    }

    #[expect(clippy::cast_possible_truncation, reason = "a residual is solved for in f32")]
    fn residual(&self, pairs: &[Pair], precision: &DMatrix<f64>, x: &DVector<f64>) -> Vec<f32> {
        let mut residual = -(precision * x);
        for pair in pairs {
            let row = &self.items[pair.start..pair.start + self.dim];
            let score: f64 = row.iter().zip(x).map(|(y, x)| f64::from(*y) * x).sum();
            let missing = 1.0 + f64::from(pair.excess) * (1.0 - score);
            residual.iter_mut().zip(row).for_each(|(sum, y)| *sum += missing * f64::from(*y));
        }
        residual.iter().map(|value| *value as f32).collect()
    }

    /// Solves the latent factors of active items; the part of a preference that the constant
    /// explains is subtracted first.
    fn solve_items(&mut self, steps: usize) {
        let (dim, latent) = (self.dim, self.dim - 1);
        if latent == 0 {
            return;
        }
        let gram = gram(&self.users, dim, |_| true);
        let mut precision = gram.view((0, 0), (latent, latent)).into_owned();
        for k in 0..latent {
            precision[(k, k)] += self.lambda;
        }
        let shared = Shared::new(&precision, &-gram.view((0, latent), (latent, 1)).column(0).into_owned());
        let mut items = std::mem::take(&mut self.items);
        let this = &*self;
        items.par_chunks_mut(CHUNK_ROWS * dim).enumerate().for_each(|(chunk, rows)| {
            let (mut solver, mut pairs) = (Solver::new(&shared, &this.users), Vec::new());
            for (row, features) in rows.chunks_exact_mut(dim).enumerate() {
                let item = chunk * CHUNK_ROWS + row;
                if !this.active[item] {
                    continue;
                }
                pairs.clear();
                pairs.extend(this.by_item.row(item).iter().map(|entry| {
                    let start = entry.other as usize * dim;
                    let pull = preference_pull(entry) - entry.label * this.users[start + latent];
                    Pair { start, excess: entry.label, pull }
                }));
                solver.improve(&pairs, &mut features[..latent], steps);
            }
        });
        self.items = items;
    }

    fn finish(mut self, pinned: &Pinned, solved: Users) -> Result<ImplicitFit, ModelError> {
        let dim = self.dim;
        let factors = self.items.chunks_exact(dim).flat_map(|row| &row[..dim - 1]).copied().collect();
        let rms = self.rms();
        for row in self.items.chunks_exact_mut(dim) {
            let scaled: Vec<f64> = row[..dim - 1].iter().map(|x| f64::from(*x) / rms).collect();
            write_row(&mut row[..dim - 1], scaled);
        }
        let cold_item = ColdItem { offset: 0.0, features: self.mean_item() };
        for (row, _) in self.items.chunks_exact_mut(dim).zip(self.active).filter(|(_, active)| !**active) {
            row.copy_from_slice(&cold_item.features);
        }
        for (item, features) in pinned.items.iter().zip(pinned.features.chunks_exact(dim)) {
            self.items[*item as usize * dim..][..dim].copy_from_slice(features);
        }
        let gram = gram_exactly(&self.items, dim, |item| self.active[item]);
        let precision = ridged(gram, self.lambda / rms.powi(2))?;
        match solved {
            Users::Exact => self.solve_users_exactly(&precision),
            Users::Near => {
                self.users.fill(0.0);
                self.solve_users(&precision, STEPS_FROM_NOTHING);
            }
        }
        Ok(ImplicitFit { features: self.items, weights: self.users, cold_item, precision, factors })
    }

    /// The mean features of active items: used to score items without observations.
    #[expect(clippy::cast_possible_truncation, reason = "tables are held in f32; rounding to the nearest is meant")]
    fn mean_item(&self) -> Vec<f32> {
        let mut sums = vec![0.0_f64; self.dim];
        let mut count: f64 = 0.0;
        for (row, _) in self.items.chunks_exact(self.dim).zip(self.active).filter(|(_, active)| **active) {
            count += 1.0;
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += f64::from(*x);
            }
        }
        let mut mean: Vec<f32> = sums.iter().map(|sum| (sum / count.max(1.0)) as f32).collect();
        mean[self.dim - 1] = 1.0;
        mean
    }
}

/// The pull of a pair, its contribution to the right-hand side beyond the shared `Y^T Y`. The
/// target, which is the pull divided by the excess, would overflow `f32` for small excesses.
#[expect(clippy::cast_possible_truncation, reason = "pairs are held in f32; rounding to the nearest is meant")]
fn preference_pull(entry: &Entry) -> f32 {
    preference::Pair::taken(f64::from(entry.label)).pull() as f32
}

/// `sum y y^T` over the wanted rows, multiplied in `f32` block by block and added in `f64`, in an
/// order that does not depend on the number of threads.
fn gram(rows: &[f32], dim: usize, wanted: impl Fn(usize) -> bool + Sync) -> DMatrix<f64> {
    let stride = kernel::padded(dim);
    let sums: Vec<DMatrix<f64>> = rows
        .par_chunks(GRAM_ROWS * dim)
        .enumerate()
        .map(|(chunk, rows)| {
            let (mut block, mut products) = (Vec::new(), vec![0.0_f32; stride * stride]);
            let mut sum = DMatrix::zeros(dim, dim);
            for (part, rows) in rows.chunks(GRAM_BLOCK * dim).enumerate() {
                block.clear();
                for (row, values) in rows.chunks_exact(dim).enumerate() {
                    if wanted(chunk * GRAM_ROWS + part * GRAM_BLOCK + row) {
                        block.extend_from_slice(values);
                        block.resize(block.len().next_multiple_of(stride), 0.0);
                    }
                }
                kernel::gram(&block, &mut products, stride);
                for i in 0..dim {
                    for j in i..dim {
                        sum[(i, j)] += f64::from(products[i * stride + j]);
                    }
                }
            }
            sum
        })
        .collect();
    let mut sum = sums.into_iter().fold(DMatrix::zeros(dim, dim), |sum, chunk| sum + chunk);
    sum.fill_lower_triangle_with_upper_triangle();
    sum
}

/// The same in `f64` throughout, for the prior that users are served from.
fn gram_exactly(rows: &[f32], dim: usize, wanted: impl Fn(usize) -> bool + Sync) -> DMatrix<f64> {
    let sums: Vec<DMatrix<f64>> = rows
        .par_chunks(GRAM_ROWS * dim)
        .enumerate()
        .map(|(chunk, rows)| {
            let kept: Vec<f64> = rows
                .chunks_exact(dim)
                .enumerate()
                .filter(|(row, _)| wanted(chunk * GRAM_ROWS + row))
                .flat_map(|(_, row)| row.iter().map(|x| f64::from(*x)))
                .collect();
            let columns = DMatrix::from_column_slice(dim, kept.len() / dim, &kept);
            &columns * columns.transpose()
        })
        .collect();
    let sum = sums.into_iter().fold(DMatrix::zeros(dim, dim), |sum, chunk| sum + chunk);
    (&sum + sum.transpose()) * 0.5
}

/// `G + lambda I`, with `lambda` raised as far as the bound on the condition requires.
fn ridged(gram: DMatrix<f64>, lambda: f64) -> Result<DMatrix<f64>, ModelError> {
    let eigen = symmetric_eigen(gram.clone()).ok_or(ModelError::NonFinite { what: "the squares of features" })?;
    let eigenvalues = eigen.eigenvalues;
    let needed = (eigenvalues.max() - CONDITION_TARGET * eigenvalues.min()) / (CONDITION_TARGET - 1.0);
    let dim = gram.nrows();
    Ok(gram + DMatrix::identity(dim, dim) * lambda.max(needed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use nalgebra::DVector;

    use super::*;
    use crate::prior_fit::CONDITION_MAX;

    const USERS: usize = 9;
    const ITEMS: usize = 7;
    const DIM: usize = 4;

    /// Steps sufficient to solve a system of this size.
    const ENOUGH: usize = 20;

    fn ratings() -> Ratings {
        let list = (0..30_u32)
            .map(|k| Rating { user: k * 7 % 9, item: k * 5 % 6, label: (k % 4) as f32, weight: 1.0 + (k % 2) as f32 })
            .collect();
        Ratings::new(USERS, ITEMS, list).unwrap()
    }

    /// Items 0 to 5 have observations, item 6 has none.
    const ACTIVE: [bool; ITEMS] = [true, true, true, true, true, true, false];

    fn recipe(pinned: &Pinned) -> ImplicitRecipe<'_> {
        ImplicitRecipe { dim: DIM, seed: 3, lambda: 0.5, iterations: 4, pinned, factors: None }
    }

    /// Preference and confidence of every pair, computed entry by entry from the ratings.
    fn dense() -> (DMatrix<f64>, DMatrix<f64>) {
        let (mut p, mut c) = (DMatrix::zeros(USERS, ITEMS), DMatrix::from_element(USERS, ITEMS, 1.0));
        for rating in ratings().list().iter().filter(|rating| rating.label > 0.0) {
            let pair = (rating.user as usize, rating.item as usize);
            p[pair] = 1.0;
            c[pair] += f64::from(rating.weight) * f64::from(rating.label);
        }
        (p, c)
    }

    fn row(rows: &[f32], index: usize) -> DVector<f64> {
        DVector::from_iterator(DIM, rows[index * DIM..][..DIM].iter().map(|x| f64::from(*x)))
    }

    fn close(stored: f32, exact: f64) {
        // Stored values are rounded to f32, and so are their inputs.
        assert!((f64::from(stored) - exact).abs() <= 1e-5 * exact.abs().max(1.0), "{stored} is not {exact}");
    }

    #[test]
    fn half_iterations_equal_a_dense_solve_of_the_whole_matrix() {
        let pinned = Pinned::default();
        let pairs = taken(&ratings());
        let mut factors = Factors::start((USERS, ITEMS), &pairs, &ACTIVE, recipe(&pinned));
        let (p, c) = dense();
        for _ in 0..3 {
            let precision = factors.user_precision();
            factors.solve_users(&precision, ENOUGH);
            let mut ridge = DMatrix::identity(DIM, DIM) * 0.5;
            ridge[(DIM - 1, DIM - 1)] = 0.5 / factors.rms().powi(2);
            for user in 0..USERS {
                let (mut matrix, mut moment) = (ridge.clone(), DVector::zeros(DIM));
                for item in 0..6 {
                    let y = row(&factors.items, item);
                    matrix += &y * y.transpose() * c[(user, item)];
                    moment += &y * (c[(user, item)] * p[(user, item)]);
                }
                let exact = matrix.try_inverse().unwrap() * moment;
                (0..DIM).for_each(|k| close(factors.users[user * DIM + k], exact[k]));
            }
            factors.solve_items(ENOUGH);
            for item in 0..6 {
                let latent = DIM - 1;
                let (mut matrix, mut moment) = (DMatrix::identity(latent, latent) * 0.5, DVector::zeros(latent));
                for user in 0..USERS {
                    let all = row(&factors.users, user);
                    let x = all.rows(0, latent).into_owned();
                    matrix += &x * x.transpose() * c[(user, item)];
                    moment += &x * (c[(user, item)] * (p[(user, item)] - all[latent]));
                }
                let exact = matrix.try_inverse().unwrap() * moment;
                (0..latent).for_each(|k| close(factors.items[item * DIM + k], exact[k]));
            }
        }
    }

    #[test]
    fn a_fit_scales_its_factors_and_changes_no_score() {
        let pinned = Pinned::default();
        let pairs = taken(&ratings());
        let mut raw = Factors::start((USERS, ITEMS), &pairs, &ACTIVE, recipe(&pinned));
        for iteration in 0..4 {
            let precision = raw.user_precision();
            raw.solve_users(&precision, if iteration == 0 { STEPS_FROM_NOTHING } else { STEPS });
            raw.solve_items(STEPS);
        }
        let precision = raw.user_precision();
        raw.solve_users_exactly(&precision);
        let fit = fit((USERS, ITEMS), &pairs, &ACTIVE, recipe(&pinned), Users::Exact, |_| {}).unwrap();
        let squares: f32 = fit.features.chunks_exact(DIM).take(6).flat_map(|row| &row[..DIM - 1]).map(|x| x * x).sum();
        assert!((squares / (6.0 * (DIM - 1) as f32) - 1.0).abs() < 1e-5, "{squares}");
        for user in 0..USERS {
            for item in 0..6 {
                let before = row(&raw.users, user).dot(&row(&raw.items, item));
                let after = row(&fit.weights, user).dot(&row(&fit.features, item));
                assert!((before - after).abs() < 1e-4, "{before} became {after}");
            }
        }
        assert!(fit.features.chunks_exact(DIM).all(|row| row[DIM - 1].to_bits() == 1.0_f32.to_bits()));
        assert_eq!(fit.features[6 * DIM..], fit.cold_item.features);
    }

    #[test]
    fn repeated_pairs_are_one_preference_and_zeros_add_no_confidence() {
        let rating = |label, weight| Rating { user: 0, item: 0, label, weight };
        let ratings = Ratings::new(1, 1, vec![rating(2.0, 1.0), rating(0.0, 5.0), rating(1.0, 3.0)]).unwrap();
        assert_eq!(taken(&ratings), [Rating { user: 0, item: 0, label: 5.0, weight: 1.0 }]);
        let little = Ratings::new(1, 1, vec![rating(1e-30, 1e-30)]).unwrap();
        assert_eq!(taken(&little), [Rating { user: 0, item: 0, label: f32::MIN_POSITIVE, weight: 1.0 }]);
    }

    #[test]
    fn the_condition_is_bounded_by_raising_the_ridge() {
        let gram = DMatrix::from_diagonal(&nalgebra::dvector![1e9, 3.0, 0.0]);
        let eigenvalues = ridged(gram, 0.1).unwrap().symmetric_eigenvalues();
        assert!(eigenvalues.max() / eigenvalues.min() <= CONDITION_MAX, "{eigenvalues}");
        let gentle = ridged(DMatrix::identity(3, 3), 0.5).unwrap();
        assert!((gentle - DMatrix::identity(3, 3) * 1.5).norm() < 1e-12);
    }
}
