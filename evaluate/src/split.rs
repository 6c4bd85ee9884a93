//! `--protocol split`: trains on most of the ratings and predicts the rest.

use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use celeris_datasets::Rating as NamedRating;
use celeris_retrain::Rating;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{DEVIATIONS_95, EvaluateSettings, Numbered, absolute_error, by_user, mean_loss, mean_square, predict};

/// One rating in this many is held out if no test file is given.
const HELD_OUT_ONE_IN: usize = 10;

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitReport {
    /// `"split"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of split and trainer.
    pub seed: u64,
    /// Number of training ratings.
    pub train_ratings: usize,
    /// Number of predicted ratings.
    pub test_ratings: usize,
    /// Number of predicted ratings of items without training ratings.
    pub test_ratings_of_unseen_items: usize,
    /// Root mean squared error of the served predictions.
    pub rmse: f64,
    /// Mean absolute error of the served predictions.
    pub mae: f64,
    /// The share of labels inside their served 95 % interval.
    pub coverage_95: f64,
    /// Time for tuning and training, in seconds.
    pub train_seconds: f64,
    /// RMSE of the trainer's own weights.
    pub rmse_own_weights: f64,
    /// RMSE of a bias-only model (`dim` 1), trained and served in the same way.
    pub rmse_biases: f64,
    /// The regularization chosen by the trainer.
    pub regularization: f64,
    /// The number of iterations chosen by the trainer.
    pub iterations: usize,
    /// The scale of the prior precision chosen by the trainer.
    pub prior_scale: f64,
}

/// Runs the protocol on `ratings`, holding out a seeded random tenth, or predicting `test` if it is
/// given.
///
/// # Errors
/// If there are too few ratings to hold any out, or the trainer rejects them.
pub fn evaluate_split(
    dataset: &str,
    ratings: &[NamedRating],
    test: Option<&[NamedRating]>,
    settings: &EvaluateSettings,
) -> anyhow::Result<SplitReport> {
    let mut numbered = Numbered::default();
    let mut known = numbered.number(ratings);
    let tested = match test {
        Some(test) => numbered.number(test),
        None => {
            known.shuffle(&mut ChaCha8Rng::seed_from_u64(settings.seed));
            known.split_off(known.len() - known.len() / HELD_OUT_ONE_IN)
        }
    };
    ensure!(!tested.is_empty(), "no ratings to test on; give at least {HELD_OUT_ONE_IN} ratings or a test file");

    let started = Instant::now();
    let trained = numbered.train(&known, settings)?;
    let train_seconds = started.elapsed().as_secs_f64();
    let biases = numbered.train(&known, &EvaluateSettings { dim: 1, ..*settings })?;

    let users = numbered.users.len();
    let (learnt, tested_by_user) = (by_user(users, &known), by_user(users, &tested));
    let predictions = predict(&trained, &learnt, &tested_by_user)?;
    let predictions_of_biases = predict(&biases, &learnt, &tested_by_user)?;
    let range = trained.label_range;
    let served = || predictions.iter().map(|one| (one.label, one.served.score));
    let covered =
        predictions.iter().filter(|one| (one.label - one.served.score).abs() <= DEVIATIONS_95 * one.served.label_std);
    Ok(SplitReport {
        protocol: "split",
        dataset: dataset.to_owned(),
        dim: settings.dim,
        seed: settings.seed,
        train_ratings: known.len(),
        test_ratings: tested.len(),
        test_ratings_of_unseen_items: of_unseen_items(numbered.items.len(), &known, &tested),
        rmse: mean_square(range, served()).sqrt(),
        mae: mean_loss(range, served(), absolute_error),
        coverage_95: covered.count() as f64 / predictions.len() as f64,
        train_seconds,
        rmse_own_weights: mean_square(range, predictions.iter().map(|one| (one.label, one.own))).sqrt(),
        rmse_biases: mean_square(range, predictions_of_biases.iter().map(|one| (one.label, one.served.score))).sqrt(),
        regularization: trained.metrics.regularization,
        iterations: trained.metrics.iterations,
        prior_scale: trained.metrics.prior_scale,
    })
}

fn of_unseen_items(items: usize, known: &[Rating], tested: &[Rating]) -> usize {
    let mut seen = vec![false; items];
    for rating in known {
        seen[rating.item as usize] = true;
    }
    tested.iter().filter(|rating| !seen[rating.item as usize]).count()
}

impl fmt::Display for SplitReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, train_ratings, test_ratings, test_ratings_of_unseen_items: unseen, .. } = self;
        writeln!(out, "split of {dataset}, dim {dim}, seed {seed}")?;
        writeln!(
            out,
            "  {train_ratings} ratings to train on, {test_ratings} to predict, {unseen} of these of unseen items"
        )?;
        writeln!(out, "  rmse                  {:.4}   mae {:.4}", self.rmse, self.mae)?;
        writeln!(out, "  rmse, own weights     {:.4}   (the trainer's, which are not served)", self.rmse_own_weights)?;
        writeln!(out, "  rmse, biases alone    {:.4}", self.rmse_biases)?;
        writeln!(out, "  95 % intervals cover  {:.1} %", 100.0 * self.coverage_95)?;
        writeln!(out, "  training took         {:.1} s", self.train_seconds)?;
        let Self { regularization, iterations, prior_scale, .. } = self;
        write!(
            out,
            "  the trainer chose     regularization {regularization}, {iterations} iterations, prior scale {prior_scale}"
        )
    }
}
