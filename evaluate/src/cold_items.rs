//! `--protocol cold-items`: ratings of items without any training ratings, predicted from titles
//! and genres.
//!
//! A random tenth of the items is excluded from training with all of their ratings. Users learn
//! from their other ratings; then the ratings of the excluded items are predicted, with features
//! that the version's map computes from their attributes. The baselines are the version's default
//! features for unknown items, and, without a model, the mean label with and without the mean
//! deviation of the user's other ratings.

use std::collections::HashMap;
use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use celeris_datasets::Dataset;
use celeris_features::{ColdItem, ColdMap};
use celeris_model::{Estimate, ItemId, Learning, ModelError, UserModel};
use celeris_retrain::{ColdMapInput, FittedColdMap, Rating, Trained, fit_cold_map};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{DEVIATIONS_95, EvaluateSettings, Numbered, by_user, examples, mean_square};

/// One item in this many is left out.
const LEFT_OUT_ONE_IN: usize = 10;

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColdItemsReport {
    /// `"cold-items"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of the choice of items and of the trainer.
    pub seed: u64,
    /// Number of items left out of the training.
    pub items_left_out: usize,
    /// Number of training ratings.
    pub train_ratings: usize,
    /// Number of predicted ratings: those of left-out items by users who have other ratings.
    pub test_ratings: usize,
    /// RMSE with features from attributes.
    pub rmse: f64,
    /// The share of labels inside the served 95 % interval, with features from attributes.
    pub coverage_95: f64,
    /// RMSE with the version's default features for unknown items.
    pub rmse_stand_in: f64,
    /// The share of labels inside the 95 % interval, with the default features.
    pub coverage_95_stand_in: f64,
    /// RMSE of the mean label and the user's mean deviation from it.
    pub rmse_mean_and_user_bias: f64,
    /// RMSE of the mean label.
    pub rmse_mean: f64,
    /// The mean `std_error` with features from attributes, and for the same users with the default
    /// features.
    pub mean_std_error: [f64; 2],
    /// Number of items that the map was fitted to.
    pub map_items: usize,
    /// The ridge parameter chosen by cross-validation.
    pub map_ridge: f64,
    /// The share of the variance of scores between items that the map explains, by
    /// cross-validation.
    pub map_explains: f64,
    /// Time for fitting the map, including the choice of its ridge parameter, in seconds.
    pub map_seconds: f64,
    /// Time for tuning and training, in seconds.
    pub train_seconds: f64,
}

/// Runs the protocol.
///
/// # Errors
/// If the data set does not describe its items or has too few, or the trainer rejects the ratings.
pub fn evaluate_cold_items(dataset: &Dataset, settings: &EvaluateSettings) -> anyhow::Result<ColdItemsReport> {
    ensure!(!dataset.items.is_empty(), "the data set does not describe its items; give a folder that has movies.csv");
    let mut numbered = Numbered::default();
    let ratings = numbered.number(&dataset.ratings);
    let left_out = left_out(numbered.items.len(), settings.seed);
    let (tested, known): (Vec<Rating>, Vec<Rating>) = ratings.iter().partition(|rating| left_out[rating.item as usize]);
    let users = numbered.users.len();
    let learnt = by_user(users, &known);
    let tested: Vec<Rating> = tested.into_iter().filter(|rating| !learnt[rating.user as usize].is_empty()).collect();
    ensure!(!tested.is_empty(), "no ratings of items left out; give a data set of more than {LEFT_OUT_ONE_IN} items");

    let started = Instant::now();
    let trained = numbered.train(&known, settings, settings.stage("training", None))?;
    let train_seconds = started.elapsed().as_secs_f64();
    let attributes = attributes_by_number(dataset, &numbered.items);
    let started = Instant::now();
    settings.stage("fitting the map of attributes", None);
    let fitted = fit(&trained, &known, &attributes)?;
    let map_seconds = started.elapsed().as_secs_f64();

    let scene = Scene { trained: &trained, attributes: &attributes, map: &fitted.map };
    settings.stage("predicting rows", Some(tested.len()));
    let predictions = scene.predict(&learnt, &by_user(users, &tested))?;
    let range = trained.label_range;
    let rmse = |score: fn(&Prediction) -> f32| {
        mean_square(range, predictions.iter().map(|one| (one.label, score(one)))).sqrt()
    };
    let covered = |estimate: fn(&Prediction) -> Estimate| share(&predictions, |one| covers(estimate(one), one.label));
    let mean = |value: fn(&Prediction) -> f32| {
        predictions.iter().map(|one| f64::from(value(one))).sum::<f64>() / predictions.len() as f64
    };
    Ok(ColdItemsReport {
        protocol: "cold-items",
        dataset: dataset.name.clone(),
        dim: settings.dim,
        seed: settings.seed,
        items_left_out: left_out.iter().filter(|left_out| **left_out).count(),
        train_ratings: known.len(),
        test_ratings: tested.len(),
        rmse: rmse(|one| one.mapped.score),
        coverage_95: covered(|one| one.mapped),
        rmse_stand_in: rmse(|one| one.stand_in.score),
        coverage_95_stand_in: covered(|one| one.stand_in),
        rmse_mean_and_user_bias: rmse(|one| one.user_mean),
        rmse_mean: rmse(|one| one.mean),
        mean_std_error: [mean(|one| one.mapped.std_error), mean(|one| one.stand_in.std_error)],
        map_items: fitted.items,
        map_ridge: fitted.map.ridge(),
        map_explains: 1.0 - fitted.score_variance / fitted.score_variance_of_average,
        map_seconds,
        train_seconds,
    })
}

/// Whether each item is left out.
fn left_out(items: usize, seed: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..items).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut left_out = vec![false; items];
    for item in &order[..items / LEFT_OUT_ONE_IN] {
        left_out[*item] = true;
    }
    left_out
}

fn attributes_by_number(dataset: &Dataset, numbers: &HashMap<ItemId, u32>) -> Vec<Option<Map<String, Value>>> {
    let mut by_number = vec![None; numbers.len()];
    for item in &dataset.items {
        if let Some(number) = numbers.get(&item.id) {
            by_number[*number as usize] = Some(item.attributes());
        }
    }
    by_number
}

fn fit(
    trained: &Trained,
    known: &[Rating],
    attributes: &[Option<Map<String, Value>>],
) -> anyhow::Result<FittedColdMap> {
    let mut observed = vec![0_u32; attributes.len()];
    for rating in known {
        observed[rating.item as usize] += 1;
    }
    let input = ColdMapInput { trained, observed: &observed, attributes, ridge: None };
    fit_cold_map(&input).ok_or_else(|| anyhow::anyhow!("too few rated items are described to fit a map to them"))
}

fn covers(estimate: Estimate, label: f32) -> bool {
    (label - estimate.score).abs() <= DEVIATIONS_95 * estimate.label_std
}

fn share(predictions: &[Prediction], holds: impl Fn(&Prediction) -> bool) -> f64 {
    predictions.iter().filter(|one| holds(one)).count() as f64 / predictions.len() as f64
}

/// One predicted rating.
struct Prediction {
    label: f32,
    mapped: Estimate,
    stand_in: Estimate,
    user_mean: f32,
    mean: f32,
}

struct Scene<'a> {
    trained: &'a Trained,
    attributes: &'a [Option<Map<String, Value>>],
    map: &'a ColdMap,
}

impl Scene<'_> {
    fn predict(&self, learnt: &[Vec<Rating>], tested: &[Vec<Rating>]) -> Result<Vec<Prediction>, ModelError> {
        let learning = Learning::from(self.trained.prior.clone());
        let mean = mean_label(learnt.iter().flatten());
        let stand_in = &self.trained.cold_item;
        let mut predictions = Vec::new();
        for (learnt, tested) in learnt.iter().zip(tested).filter(|(_, tested)| !tested.is_empty()) {
            let history = examples(self.trained, learnt);
            let user = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64)?;
            let variance = self.map.variance(&user, &learning);
            let user_mean = mean_label(learnt.iter());
            let stand_in = user.estimate(&learning, stand_in.offset, &stand_in.features);
            let stand_in = learning.widened(stand_in, f64::from(self.trained.cold_variance));
            for rating in tested {
                let mapped = match &self.attributes[rating.item as usize] {
                    Some(attributes) => {
                        let ColdItem { offset, features } = self.map.map(attributes);
                        learning.widened(user.estimate(&learning, offset, &features), variance)
                    }
                    None => stand_in,
                };
                predictions.push(Prediction { label: rating.label, mapped, stand_in, user_mean, mean });
            }
        }
        Ok(predictions)
    }
}

fn mean_label<'r>(ratings: impl Iterator<Item = &'r Rating>) -> f32 {
    let (sum, count) = ratings.fold((0.0, 0.0), |(sum, count), rating| (sum + f64::from(rating.label), count + 1.0));
    (sum / count) as f32
}

impl fmt::Display for ColdItemsReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, items_left_out, train_ratings, test_ratings, .. } = self;
        writeln!(out, "cold items of {dataset}, dim {dim}, seed {seed}")?;
        writeln!(
            out,
            "  {items_left_out} items left out; {train_ratings} ratings to train on, {test_ratings} to predict"
        )?;
        writeln!(out, "                         rmse     95 % intervals cover")?;
        writeln!(out, "  from attributes        {:.4}   {:.1} %", self.rmse, 100.0 * self.coverage_95)?;
        let covered = 100.0 * self.coverage_95_stand_in;
        writeln!(out, "  stand-in               {:.4}   {covered:.1} %", self.rmse_stand_in)?;
        writeln!(out, "  mean and user's bias   {:.4}", self.rmse_mean_and_user_bias)?;
        writeln!(out, "  mean                   {:.4}", self.rmse_mean)?;
        let Self { map_items, map_ridge, map_explains, map_seconds, train_seconds, .. } = self;
        let explains = 100.0 * map_explains;
        writeln!(
            out,
            "  the map                {map_items} items, ridge {map_ridge:.2}, explains {explains:.0} % of scores"
        )?;
        write!(out, "  training took          {train_seconds:.1} s, the map {map_seconds:.1} s")
    }
}
