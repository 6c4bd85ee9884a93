//! Alternating least squares in which each side accounts for the posterior variance of the other.
//!
//! Labels are modelled as `y = mean + b_i + w_u·(x_i, g_i, 1) + noise`, with latent factors `x_i ~
//! N(0, I)`, item biases `b_i ~ N(0, tau^2)`, user weights `w_u ~ N(w0, S)`, and given side
//! features `g_i` of the item (see [`crate::side_features`]); the prior means of `x_i` and `b_i` are
//! moved by who has rated the item, that of `w_u` by what the user has rated ([`partners`]). With one side fixed, the other is a
//! ridge regression per row, as in ALS (Zhou et al. 2008). There are two differences. The ridge of
//! a row includes the posterior variances of its partners, so it grows with the number of ratings
//! according to the uncertainty of the partners (variational matrix factorisation, Lim and Teh
//! 2007, with one variance per coordinate). And `w0`, `S`, `tau^2` and the noise variance are
//! estimated again after every iteration, so that a factor without support in the data shrinks to
//! zero instead of fitting the noise.
//!
//! Rows are solved in parallel and their sums are added in chunks of fixed size, so the result does
//! not depend on the number of threads.

mod items;
mod partners;
mod ridge;
mod users;

use std::sync::Arc;

use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use celeris_kernel as kernel;
use celeris_model::ModelError;
use celeris_model::linear::dot;
use serde::{Deserialize, Serialize};

use self::partners::PartnerVectors;
use crate::ratings::{Entry, Ratings, Rows};

/// Rows per parallel chunk.
const CHUNK_ROWS: usize = 64;

/// Prefetch distance in ratings. Partners are in random order, and their rows do not fit into the
/// caches close to a core.
const FETCHED_AHEAD: usize = 8;

/// Weight of the starting value of a variance, in rows.
const START_EVIDENCE: f64 = 5.0;

/// Starting variances as shares of the labels' variance: of one latent weight, of the weight of one
/// side feature, of the biases.
const LATENT_SHARE: f64 = 0.02;
const SIDE_FEATURE_SHARE: f64 = 0.03;
const BIAS_SHARE: f64 = 0.2;

/// Starting noise variance and its lower bound, as shares of the labels' variance.
const NOISE_SHARE: f64 = 0.8;
const NOISE_SHARE_MIN: f64 = 1e-3;

/// Lower bound of the labels' variance for these shares, so that equal labels can be trained on.
const LABEL_VARIANCE_MIN: f64 = 1e-6;

/// Layout of the `dim` coordinates of a user's weights, in this order: latent factors, side
/// features, the constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) latent: usize,
    pub(crate) side_features: usize,
}

impl Shape {
    pub(crate) fn dim(self) -> usize {
        self.latent + self.side_features + 1
    }
}

/// Ratings grouped by user and by item.
#[derive(Debug, Clone)]
pub(crate) struct Grouped {
    by_user: Arc<Rows>,
    by_item: Arc<Rows>,
}

impl Grouped {
    pub(crate) fn of(ratings: &Ratings) -> Self {
        let (by_user, by_item) = rayon::join(|| Rows::by_user(ratings), || Rows::by_item(ratings));
        Self { by_user: Arc::new(by_user), by_item: Arc::new(by_item) }
    }
}

/// Input of a fit apart from the ratings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) shape: Shape,
    /// Row-major `items x shape.side_features`.
    pub(crate) side_features: &'a [f32],
    /// Share of the partners' variances in a row's ridge: 1 as in the model, 0 for plain ALS.
    pub(crate) regularization: f64,
    pub(crate) seed: u64,
    /// Whether the prior means of items depend on their users.
    pub(crate) audience: bool,
    /// Whether those of users depend on their items: whether choice vectors are fitted.
    pub(crate) choices: bool,
}

/// One fit in progress. All variances are in squared units of the label.
#[derive(Debug, Clone)]
pub(crate) struct Als {
    pub(crate) shape: Shape,
    pub(crate) mean: f64,
    pub(crate) noise_variance: f64,
    /// Row-major `items x dim`: latent factors, side features, 1.
    pub(crate) features: Vec<f32>,
    /// Length `items`, relative to `mean`.
    pub(crate) biases: Vec<f32>,
    /// Row-major `users x dim`; zero for users without ratings.
    pub(crate) weights: Vec<f32>,
    /// `w0`, length `dim`.
    pub(crate) weight_mean: DVector<f64>,
    /// `S`, `dim x dim`.
    pub(crate) weight_covariance: DMatrix<f64>,
    /// `tau^2`.
    bias_variance: f64,
    /// Row-major `items x latent`: posterior variances.
    factor_variances: Vec<f32>,
    /// Length `items`: posterior variances.
    bias_variances: Vec<f32>,
    /// Row-major `users x dim`: posterior variances.
    weight_variances: Vec<f32>,
    /// The vectors of users, if they are fitted.
    audience: Option<PartnerVectors>,
    /// The choice vectors of items, if they are fitted.
    choices: Option<PartnerVectors>,
    regularization: f64,
    label_variance: f64,
    by_user: Arc<Rows>,
    by_item: Arc<Rows>,
}

/// The state of a fit for items and the population of users: together with the ratings, it
/// determines the next iteration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AlsState {
    /// Row-major `items x latent`.
    pub(crate) factors: Vec<f32>,
    /// Row-major `items x latent`: posterior variances of the factors.
    pub(crate) factor_variances: Vec<f32>,
    /// Length `items`, relative to `population.mean`.
    pub(crate) biases: Vec<f32>,
    /// Length `items`: posterior variances of the biases.
    pub(crate) bias_variances: Vec<f32>,
    /// Row-major `items x dim`: the choice vectors, if they were fitted.
    pub(crate) choices: Option<Vec<f32>>,
    pub(crate) population: Population,
}

impl AlsState {
    /// Length `items`: the variance of the score of a user drawn from the population that is due to the uncertainty of the item's
    /// bias and factors; and that for an item of which nothing is known, which items that are not `rated` have.
    #[expect(clippy::cast_possible_truncation, reason = "variances are held in f32; rounding to the nearest is meant")]
    pub(crate) fn score_variances(&self, rated: &[bool]) -> (Vec<f32>, f32) {
        let Population { weight_mean, weight_covariance, bias_variance, .. } = &self.population;
        let dim = weight_mean.len();
        let latent = self.factors.len() / self.biases.len().max(1);
        let squares: Vec<f64> =
            (0..latent).map(|k| weight_mean[k] * weight_mean[k] + weight_covariance[k * dim + k]).collect();
        // The prior variance of a factor is 1.
        let unknown = (bias_variance + squares.iter().sum::<f64>()) as f32;
        let of_item = |(item, rated): (usize, &bool)| {
            if !*rated {
                return unknown;
            }
            let of_factors = self.factor_variances[item * latent..][..latent].iter().zip(&squares);
            let of_factors: f64 = of_factors.map(|(variance, square)| f64::from(*variance) * square).sum();
            (f64::from(self.bias_variances[item]) + of_factors) as f32
        };
        (rated.iter().enumerate().map(of_item).collect(), unknown)
    }
}

/// The part of an [`AlsState`] whose size does not depend on the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Population {
    pub(crate) mean: f64,
    pub(crate) noise_variance: f64,
    pub(crate) bias_variance: f64,
    /// `w0`, length `dim`.
    pub(crate) weight_mean: Vec<f64>,
    /// `S`, row-major `dim x dim`.
    pub(crate) weight_covariance: Vec<f64>,
}

impl Als {
    /// Starts with random factors and unknown weights.
    pub(crate) fn start(ratings: &Ratings, grouped: &Grouped, start: Start) -> Self {
        let shape = start.shape;
        let (users, items, dim) = (ratings.users(), ratings.items(), shape.dim());
        let (mean, variance) = ratings.label_moments();
        let label_variance = variance.max(LABEL_VARIANCE_MIN);
        let mut als = Self {
            shape,
            mean,
            noise_variance: NOISE_SHARE * label_variance,
            features: start_features(shape, start.side_features, items, start.seed),
            biases: vec![0.0; items],
            weights: vec![0.0; users * dim],
            weight_mean: DVector::zeros(dim),
            weight_covariance: DMatrix::zeros(dim, dim),
            bias_variance: BIAS_SHARE * label_variance,
            factor_variances: vec![0.0; items * shape.latent],
            bias_variances: vec![0.0; items],
            weight_variances: vec![0.0; users * dim],
            audience: start.audience.then(|| PartnerVectors::audience(users, items, shape.latent)),
            choices: start.choices.then(|| PartnerVectors::choices(users, items, dim)),
            regularization: start.regularization,
            label_variance,
            by_user: Arc::clone(&grouped.by_user),
            by_item: Arc::clone(&grouped.by_item),
        };
        als.weight_covariance = als.start_covariance();
        als
    }

    /// Starts from the state of an earlier fit of the same shape. Items that the state does not
    /// contain or has no data for keep the prior variances.
    #[expect(clippy::cast_possible_truncation, reason = "factors are held in f32; rounding to the nearest is meant")]
    pub(crate) fn resume(&mut self, known: &AlsState) {
        let (dim, latent) = (self.shape.dim(), self.shape.latent);
        let Population { mean, noise_variance, bias_variance, weight_mean, weight_covariance } = &known.population;
        self.noise_variance = *noise_variance;
        self.bias_variance = *bias_variance;
        self.weight_mean = DVector::from_column_slice(weight_mean);
        self.weight_covariance = DMatrix::from_row_slice(dim, dim, weight_covariance);
        for (item, row) in self.features.chunks_exact_mut(dim).enumerate() {
            let variances = &mut self.factor_variances[item * latent..][..latent];
            match known.factors.get(item * latent..(item + 1) * latent) {
                Some(factors) if factors.iter().any(|factor| *factor != 0.0) => {
                    row[..latent].copy_from_slice(factors);
                    variances.copy_from_slice(&known.factor_variances[item * latent..][..latent]);
                }
                _ => {
                    row[..latent].fill(0.0);
                    variances.fill(1.0);
                }
            }
            let bias = known.biases.get(item).zip(known.bias_variances.get(item));
            let (bias, variance) = bias.map_or((0.0, *bias_variance as f32), |(bias, variance)| {
                ((f64::from(*bias) + mean - self.mean) as f32, *variance)
            });
            (self.biases[item], self.bias_variances[item]) = (bias, variance);
        }
        self.resume_audience();
        if let (Some(choices), Some(known)) = (&mut self.choices, &known.choices) {
            choices.vectors[..known.len()].copy_from_slice(known);
            choices.add_up(&self.by_user);
        }
    }

    /// Replaces the ratings by others of the same users and items.
    pub(crate) fn learn_from(&mut self, grouped: &Grouped) {
        self.by_user = Arc::clone(&grouped.by_user);
        self.by_item = Arc::clone(&grouped.by_item);
    }

    /// The state from which another fit can start.
    pub(crate) fn state(&self) -> AlsState {
        let (dim, latent) = (self.shape.dim(), self.shape.latent);
        AlsState {
            factors: self.features.chunks_exact(dim).flat_map(|row| &row[..latent]).copied().collect(),
            factor_variances: self.factor_variances.clone(),
            biases: self.biases.clone(),
            bias_variances: self.bias_variances.clone(),
            choices: self.choices.as_ref().map(|choices| choices.vectors.clone()),
            population: Population {
                mean: self.mean,
                noise_variance: self.noise_variance,
                bias_variance: self.bias_variance,
                weight_mean: self.weight_mean.as_slice().to_vec(),
                weight_covariance: self.weight_covariance.as_slice().to_vec(),
            },
        }
    }

    /// One iteration: all users, what items say about them, all items and the noise variance, what users say about them.
    ///
    /// # Errors
    /// [`ModelError`] on overflow.
    pub(crate) fn iterate(&mut self) -> Result<(), ModelError> {
        self.solve_users()?;
        self.solve_choices();
        self.solve_items()?;
        self.solve_audience();
        Ok(())
    }

    /// The predicted label with the trainer's own weights.
    pub(crate) fn score(&self, user: u32, item: u32) -> f64 {
        let (weights, features) = (self.user_row(&self.weights, user), self.item_row(item));
        self.mean + f64::from(self.biases[item as usize]) + f64::from(dot(weights, features))
    }

    fn user_row<'a>(&self, table: &'a [f32], user: u32) -> &'a [f32] {
        let dim = self.shape.dim();
        &table[user as usize * dim..][..dim]
    }

    fn item_row(&self, item: u32) -> &[f32] {
        let dim = self.shape.dim();
        &self.features[item as usize * dim..][..dim]
    }

    fn factor_variances_of(&self, item: u32) -> &[f32] {
        let latent = self.shape.latent;
        &self.factor_variances[item as usize * latent..][..latent]
    }

    /// Iterates over a row's ratings and prefetches the partner rows of ratings further ahead from
    /// `tables`, given with their numbers of columns.
    fn fetching<'a>(entries: &'a [Entry], tables: [(&'a [f32], usize); 2]) -> impl Iterator<Item = &'a Entry> {
        entries.iter().enumerate().map(move |(place, entry)| {
            if let Some(soon) = entries.get(place + FETCHED_AHEAD) {
                for (table, columns) in tables {
                    kernel::prefetch(&table[soon.other as usize * columns..][..columns]);
                }
            }
            entry
        })
    }

    fn start_covariance(&self) -> DMatrix<f64> {
        let shares = (0..self.shape.latent)
            .map(|_| LATENT_SHARE)
            .chain((0..self.shape.side_features).map(|_| SIDE_FEATURE_SHARE))
            .chain([BIAS_SHARE])
            .map(|share| share * self.label_variance);
        DMatrix::from_diagonal(&DVector::from_iterator(self.shape.dim(), shares))
    }
}

fn start_features(shape: Shape, side_features: &[f32], items: usize, seed: u64) -> Vec<f32> {
    let dim = shape.dim();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut features = vec![1.0_f32; items * dim];
    for (item, row) in features.chunks_exact_mut(dim).enumerate() {
        for x in &mut row[..shape.latent] {
            // Uniform with mean 0 and variance 1, like the factors' prior.
            *x = (random.random::<f32>() * 2.0 - 1.0) * 3.0_f32.sqrt();
        }
        row[shape.latent..dim - 1].copy_from_slice(&side_features[item * shape.side_features..][..shape.side_features]);
    }
    features
}

#[expect(clippy::cast_possible_truncation, reason = "factors are held in f32; rounding to the nearest is meant")]
pub(crate) fn write_row(row: &mut [f32], values: impl IntoIterator<Item = f64>) {
    for (slot, value) in row.iter_mut().zip(values) {
        *slot = value as f32;
    }
}

#[cfg(test)]
mod tests;
