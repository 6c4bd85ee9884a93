//! Errors of predicted ratings: squared loss.

use std::fmt;

use serde::Serialize;

use super::{Chosen, Header, Parts};
use crate::accuracy::{Rmse, Squares, clamped_square};
use crate::page::{Tabled, cell, percent, table};
use crate::{DEVIATIONS_95, EvaluateSettings, absolute_error, mean_loss, mean_square, predict};

/// The report of a split of ratings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RatingsReport {
    #[serde(flatten)]
    pub header: Header,
    /// Root mean squared error of the served predictions.
    pub rmse: f64,
    /// Its standard error over users.
    pub std_error: f64,
    /// Mean absolute error of the served predictions.
    pub mae: f64,
    /// The share of labels inside their served 95 % interval.
    pub coverage_95: f64,
    /// RMSE of the trainer's own weights.
    pub rmse_own_weights: f64,
    /// RMSE of a bias-only model (`dim` 1), trained and served in the same way.
    pub rmse_biases: f64,
    #[serde(flatten)]
    pub chosen: Chosen,
}

pub(super) fn evaluate(header: Header, parts: &Parts, settings: &EvaluateSettings) -> anyhow::Result<RatingsReport> {
    let (trained, chosen) = parts.train(settings)?;
    let biases = parts.train_biases(settings)?;

    settings.stage("predicting rows", Some(parts.tested.len()));
    let [learnt, tested] = parts.by_user();
    let predictions = predict(&trained, settings.loss, settings.part(0, 2), (&learnt, &tested))?;
    let predictions_of_biases = predict(&biases, settings.loss, settings.part(1, 2), (&learnt, &tested))?;
    let range = trained.label_range;
    let served = || predictions.iter().map(|one| (one.label, one.served.score));
    let mut squares = Squares::default();
    for one in &predictions {
        squares.add(one.user, clamped_square(range, one.label, one.served.score));
    }
    let covered =
        predictions.iter().filter(|one| (one.label - one.served.score).abs() <= DEVIATIONS_95 * one.served.label_std);
    Ok(RatingsReport {
        header,
        rmse: mean_square(range, served()).sqrt(),
        std_error: squares.rmse().std_error,
        mae: mean_loss(range, served(), absolute_error),
        coverage_95: covered.count() as f64 / predictions.len() as f64,
        rmse_own_weights: mean_square(range, predictions.iter().map(|one| (one.label, one.own))).sqrt(),
        rmse_biases: mean_square(range, predictions_of_biases.iter().map(|one| (one.label, one.served.score))).sqrt(),
        chosen,
    })
}

impl fmt::Display for RatingsReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}", self.header)?;
        writeln!(out, "  rmse                  {:.4} ± {:.4}   mae {:.4}", self.rmse, self.std_error, self.mae)?;
        writeln!(out, "  rmse, own weights     {:.4}   (the trainer's, which are not served)", self.rmse_own_weights)?;
        writeln!(out, "  rmse, biases alone    {:.4}", self.rmse_biases)?;
        writeln!(out, "  95 % intervals cover  {:.1} %", 100.0 * self.coverage_95)?;
        write!(out, "{}", self.chosen)
    }
}

impl Tabled for RatingsReport {
    fn parts(&self) -> Vec<(&'static str, String)> {
        let Header { dataset, split, dim, seed, train_ratings, test_ratings, .. } = &self.header;
        let rows = [vec![
            cell(Rmse { rmse: self.rmse, std_error: self.std_error }),
            format!("{:.4}", self.mae),
            percent(self.coverage_95),
            format!("{:.4}", self.rmse_biases),
        ]];
        let text = format!(
            "`celeris evaluate --protocol split --dim {dim} --seed {seed}` on {dataset} ({split}): {train_ratings} ratings to train \
             on, {test_ratings} to predict; standard error over users.\n\n{}",
            table(&["RMSE", "MAE", "95 % intervals cover", "RMSE of biases alone"], &rows)
        );
        vec![("split", text)]
    }
}
