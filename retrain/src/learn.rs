//! From ratings to features: side features, alternating least squares, standardisation, and pinned
//! features.

use std::sync::Arc;

use celeris_features::ColdItem;
use celeris_model::{ModelError, Prior};
use nalgebra::{DMatrix, DVector};

use crate::als::{Als, AlsState, Grouped, Shape, Start};
use crate::ratings::{Rating, Ratings};
use crate::side_features::{SIDE_FEATURES, SideFeatures};
use crate::state::{Known, Settled, TrainerState};
use crate::trained::{Metrics, Trained};

/// Iterations that fit offsets and population to given features; without latent factors they
/// converge quickly.
const REFIT_ITERATIONS: usize = 10;

/// A feature whose RMS is smaller than this carries no information and is not scaled to unit RMS.
const RMS_MIN: f64 = 1e-12;

/// Features of some items that a caller supplied; they replace the trained ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pinned {
    /// Indices of the items, below [`Ratings::items`].
    pub items: Vec<u32>,
    /// Row-major `items.len() x dim`, the last entry of each row 1.
    pub features: Vec<f32>,
}

/// Settings of a fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe<'a> {
    pub(crate) dim: usize,
    pub(crate) seed: u64,
    pub(crate) regularization: f64,
    /// Whether the prior means of items depend on their users.
    pub(crate) audience: bool,
    /// Whether choice vectors are fitted.
    pub(crate) choices: bool,
    pub(crate) pinned: &'a Pinned,
}

/// Standardised features, and the population of weights for them.
#[derive(Debug, Clone)]
pub(crate) struct Learnt {
    pub(crate) dim: usize,
    /// Layout of the `dim` coordinates.
    pub(crate) shape: Shape,
    /// Length `items`; an item without ratings has the cold offset.
    pub(crate) offsets: Vec<f32>,
    /// Row-major `items x dim`; an item without ratings has the cold features.
    pub(crate) features: Vec<f32>,
    pub(crate) cold_offset: f32,
    pub(crate) cold_features: Vec<f32>,
    /// Row-major `users x dim`; a user without ratings has the population's mean.
    pub(crate) weights: Vec<f32>,
    pub(crate) weight_mean: DVector<f64>,
    pub(crate) weight_covariance: DMatrix<f64>,
    pub(crate) noise_variance: f64,
    /// Row-major `items x dim`: the choice vectors; empty without.
    pub(crate) choices: Vec<f32>,
    /// Length `items`: what the uncertainty of an item adds to the variance of a score, as that of an unknown item for one
    /// without ratings; empty if that is not known.
    pub(crate) variances: Vec<f32>,
    pub(crate) cold_variance: f32,
    /// The state for a later warm start.
    pub(crate) state: Arc<AlsState>,
}

/// Data shared by all fits to the same ratings.
pub(crate) struct Prepared {
    pub(crate) grouped: Grouped,
    side_features: SideFeatures,
}

impl Prepared {
    pub(crate) fn of(ratings: &Ratings, dim: usize) -> Self {
        let grouped = Grouped::of(ratings);
        Self { grouped, side_features: SideFeatures::of(ratings, SIDE_FEATURES.min(dim - 1)) }
    }

    /// A fit before its first iteration.
    pub(crate) fn begin(&self, ratings: &Ratings, recipe: Recipe) -> Als {
        let side_features = &self.side_features;
        let shape = Shape { latent: recipe.dim - 1 - side_features.count, side_features: side_features.count };
        let start = Start {
            shape,
            side_features: &side_features.items,
            regularization: recipe.regularization,
            seed: recipe.seed,
            audience: recipe.audience,
            choices: recipe.choices,
        };
        Als::start(ratings, &self.grouped, start)
    }

    /// Standardises the features of a fit and replaces pinned ones.
    pub(crate) fn finish(&self, ratings: &Ratings, recipe: Recipe, als: Als) -> Result<Learnt, ModelError> {
        let shape = als.shape;
        let mut cold_features = vec![0.0; shape.latent];
        cold_features.extend(&self.side_features.cold);
        cold_features.push(1.0);
        let mut learnt = Learnt::of(ratings, als, cold_features);
        let state = Arc::clone(&learnt.state);
        learnt.standardise(&rated_items(ratings));
        if !recipe.pinned.items.is_empty() {
            learnt = learnt.with_pinned(ratings, &self.grouped, recipe.pinned)?;
        }
        // A refit has no latent factors, but the meaning of the coordinates is unchanged, and the
        // next warm start uses this state.
        learnt.shape = shape;
        learnt.state = state;
        Ok(learnt)
    }
}

/// Fits features to the ratings until `finished`, which is called after each iteration, returns
/// true.
pub(crate) fn learn(
    ratings: &Ratings,
    prepared: &Prepared,
    recipe: Recipe,
    mut finished: impl FnMut(usize, &Als) -> bool,
) -> Result<Learnt, ModelError> {
    let mut als = prepared.begin(ratings, recipe);
    let mut iterations = 0;
    loop {
        als.iterate()?;
        iterations += 1;
        if finished(iterations, &als) {
            break;
        }
    }
    prepared.finish(ratings, recipe, als)
}

/// Fits offsets, weights and population to given features, row-major `items x dim` with the last
/// entry of a row 1, by the same alternation without latent factors. `dim` is the length of
/// `cold_features`.
pub(crate) fn fit_weights(
    ratings: &Ratings,
    grouped: &Grouped,
    features: &[f32],
    cold_features: Vec<f32>,
) -> Result<Learnt, ModelError> {
    let dim = cold_features.len();
    let known: Vec<f32> = features.chunks_exact(dim).flat_map(|row| &row[..dim - 1]).copied().collect();
    let shape = Shape { latent: 0, side_features: dim - 1 };
    let mut als = Als::start(
        ratings,
        grouped,
        Start { shape, side_features: &known, regularization: 1.0, seed: 0, audience: false, choices: false },
    );
    for _ in 0..REFIT_ITERATIONS {
        als.iterate()?;
    }
    Ok(Learnt::of(ratings, als, cold_features))
}

pub(crate) fn rated_items(ratings: &Ratings) -> Vec<bool> {
    let mut rated = vec![false; ratings.items()];
    for rating in ratings.list() {
        rated[rating.item as usize] = true;
    }
    rated
}

impl Learnt {
    #[expect(clippy::cast_possible_truncation, reason = "tables are held in f32; rounding to the nearest is meant")]
    fn of(ratings: &Ratings, als: Als, cold_features: Vec<f32>) -> Self {
        let state = Arc::new(als.state());
        let choices = state.choices.clone().unwrap_or_default();
        let (variances, cold_variance) = state.score_variances(&rated_items(ratings));
        let dim = als.shape.dim();
        let offsets = als.biases.iter().map(|bias| (als.mean + f64::from(*bias)) as f32).collect();
        let mut weights = als.weights;
        let mut active = vec![false; ratings.users()];
        for rating in ratings.list() {
            active[rating.user as usize] = true;
        }
        for (row, _) in weights.chunks_exact_mut(dim).zip(active).filter(|(_, active)| !active) {
            for (slot, mean) in row.iter_mut().zip(&als.weight_mean) {
                *slot = *mean as f32;
            }
        }
        Self {
            dim,
            shape: als.shape,
            offsets,
            features: als.features,
            cold_offset: als.mean as f32,
            cold_features,
            weights,
            weight_mean: als.weight_mean,
            weight_covariance: als.weight_covariance,
            noise_variance: als.noise_variance,
            choices,
            variances,
            cold_variance,
            state,
        }
    }

    /// The version with this prior, and the settings for a later warm start.
    pub(crate) fn trained(self, prior: Prior, label_range: (f32, f32), metrics: Metrics, settled: Settled) -> Trained {
        let pulls = self.pulls(&prior);
        Trained {
            dim: self.dim,
            item_offsets: self.offsets,
            item_features: self.features,
            user_weights: self.weights,
            choices: self.choices,
            variances: self.variances,
            cold_variance: self.cold_variance,
            pulls,
            prior,
            cold_item: ColdItem { offset: self.cold_offset, features: self.cold_features },
            label_range,
            metrics,
            state: Some(TrainerState { settled, known: Known::Als(self.state) }),
        }
    }

    /// Row-major `items x dim`: the choice vectors times `Lambda`; empty without.
    pub(crate) fn pulls(&self, prior: &Prior) -> Vec<f32> {
        prior.pulls(&self.choices)
    }

    /// Scales every feature but the constant to unit RMS over the rated items, and the weights
    /// inversely, which changes no score. Features of equal scale keep the prior well conditioned
    /// and states accurate in `f32`.
    #[expect(clippy::cast_possible_truncation, reason = "tables are held in f32; rounding to the nearest is meant")]
    fn standardise(&mut self, rated: &[bool]) {
        let dim = self.dim;
        let mut squares = vec![0.0_f64; dim];
        for (row, _) in self.features.chunks_exact(dim).zip(rated).filter(|(_, rated)| **rated) {
            for (sum, x) in squares.iter_mut().zip(row) {
                *sum += f64::from(*x).powi(2);
            }
        }
        let count = rated.iter().filter(|rated| **rated).count() as f64;
        let mut scale = DVector::from_iterator(dim, squares.iter().map(|sum| (sum / count).sqrt()));
        scale.apply(|rms| {
            if *rms < RMS_MIN {
                *rms = 1.0;
            }
        });
        scale[dim - 1] = 1.0;
        let rows = self.features.chunks_exact_mut(dim).chain([self.cold_features.as_mut_slice()]);
        for (x, rms) in rows.flat_map(|row| row.iter_mut().zip(&scale)) {
            *x = (f64::from(*x) / rms) as f32;
        }
        let rows = self.weights.chunks_exact_mut(dim).chain(self.choices.chunks_exact_mut(dim));
        for (w, rms) in rows.flat_map(|row| row.iter_mut().zip(&scale)) {
            *w = (f64::from(*w) * rms) as f32;
        }
        self.weight_mean.component_mul_assign(&scale);
        self.weight_covariance.component_mul_assign(&(&scale * scale.transpose()));
        for ((row, offset), _) in
            self.features.chunks_exact_mut(dim).zip(&mut self.offsets).zip(rated).filter(|(_, rated)| !**rated)
        {
            row.copy_from_slice(&self.cold_features);
            *offset = self.cold_offset;
        }
    }

    /// Replaces the features of pinned items, then fits offsets, weights and population to the
    /// resulting features.
    fn with_pinned(mut self, ratings: &Ratings, grouped: &Grouped, pinned: &Pinned) -> Result<Self, ModelError> {
        let dim = self.dim;
        for (item, row) in pinned.items.iter().zip(pinned.features.chunks_exact(dim)) {
            self.features[*item as usize * dim..][..dim].copy_from_slice(row);
        }
        let mut refit = fit_weights(ratings, grouped, &self.features, self.cold_features)?;
        // Given features are certain; those of other items are as uncertain as before.
        for item in &pinned.items {
            self.variances[*item as usize] = refit.variances[*item as usize];
        }
        (refit.variances, refit.cold_variance) = (self.variances, self.cold_variance);
        Ok(refit)
    }

    /// The predicted label with the trainer's own weights.
    pub(crate) fn score(&self, rating: &Rating) -> f64 {
        let (user, item) = (rating.user as usize, rating.item as usize);
        let weights = &self.weights[user * self.dim..][..self.dim];
        let features = &self.features[item * self.dim..][..self.dim];
        f64::from(self.offsets[item]) + f64::from(celeris_model::linear::dot(weights, features))
    }
}
