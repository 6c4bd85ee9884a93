//! `--protocol split`: trains on most of the rows and predicts the rest.
//!
//! [`holdout`] chooses the rows to predict: a random tenth, the latest tenth, or those of a file. What is
//! measured depends on the loss: errors of ratings ([`ratings`]), the quality of probabilities of
//! clicks ([`clicks`]), or lists of the items that users took next ([`plays`]).
//!
//! Users learn from their training rows, as online. A user without any is scored by the prior of
//! the version, an item without any by its features for unknown items.

pub mod clicks;
pub mod holdout;
pub mod plays;
pub mod ratings;

use std::fmt;
use std::time::Instant;

use celeris_datasets::Rating as NamedRating;
use celeris_model::{Loss, Timestamp};
use celeris_retrain::{Rating, Trained};
use serde::Serialize;

pub use self::holdout::Holdout;
use crate::{EvaluateSettings, Numbered, by_user};

/// What the reports of all losses begin with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Header {
    /// `"split"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The loss of the model.
    pub loss: Loss,
    /// How the predicted rows were chosen: `"random"`, `"time"` or `"file"`.
    pub split: &'static str,
    /// With `"time"`, the time of the first predicted row: all training rows are earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_from: Option<String>,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of split and trainer.
    pub seed: u64,
    /// Number of training rows.
    pub train_ratings: usize,
    /// Number of predicted rows.
    pub test_ratings: usize,
    /// Number of predicted rows of users without training rows.
    pub test_ratings_of_unseen_users: usize,
    /// Number of predicted rows of items without training rows.
    pub test_ratings_of_unseen_items: usize,
}

/// What the trainer chose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Chosen {
    /// Time for tuning and training, in seconds.
    pub train_seconds: f64,
    /// The regularization chosen by the trainer.
    pub regularization: f64,
    /// The number of iterations chosen by the trainer.
    pub iterations: usize,
    /// The scale of the prior precision chosen by the trainer.
    pub prior_scale: f64,
}

/// The rows of a split, with users and items by number.
pub(crate) struct Parts {
    pub(crate) numbered: Numbered,
    pub(crate) known: Vec<Rating>,
    pub(crate) tested: Vec<Rating>,
    /// The time of the first predicted row of a split by time.
    test_from: Option<Timestamp>,
}

impl Parts {
    /// The training rows and the predicted rows of each user.
    fn by_user(&self) -> [Vec<Vec<Rating>>; 2] {
        [&self.known, &self.tested].map(|rows| by_user(self.numbered.users.len(), rows))
    }

    fn header(&self, dataset: &str, holdout: Holdout, settings: &EvaluateSettings) -> Header {
        let (mut users, mut items) = (vec![false; self.numbered.users.len()], vec![false; self.numbered.items.len()]);
        for row in &self.known {
            users[row.user as usize] = true;
            items[row.item as usize] = true;
        }
        let tested = |unseen: &dyn Fn(&Rating) -> bool| self.tested.iter().filter(|row| unseen(row)).count();
        Header {
            protocol: "split",
            dataset: dataset.to_owned(),
            loss: settings.loss,
            split: holdout.name(),
            test_from: self.test_from.map(written),
            dim: settings.dim,
            seed: settings.seed,
            train_ratings: self.known.len(),
            test_ratings: self.tested.len(),
            test_ratings_of_unseen_users: tested(&|row| !users[row.user as usize]),
            test_ratings_of_unseen_items: tested(&|row| !items[row.item as usize]),
        }
    }
}

/// A time as RFC 3339, or as the number of milliseconds if it is beyond the calendar.
fn written(time: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(time.0).map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

impl Parts {
    fn train(&self, settings: &EvaluateSettings) -> anyhow::Result<(Trained, Chosen)> {
        let started = Instant::now();
        let trained = self.numbered.train(&self.known, settings, settings.stage("training", None))?;
        let metrics = &trained.metrics;
        let chosen = Chosen {
            train_seconds: started.elapsed().as_secs_f64(),
            regularization: metrics.regularization,
            iterations: metrics.iterations,
            prior_scale: metrics.prior_scale,
        };
        Ok((trained, chosen))
    }

    /// Trains a model of `dim` 1: biases of users and items alone.
    fn train_biases(&self, settings: &EvaluateSettings) -> anyhow::Result<Trained> {
        let of_biases = EvaluateSettings { dim: 1, ..*settings };
        Ok(self.numbered.train(&self.known, &of_biases, settings.stage("training biases alone", None))?)
    }
}

/// The report of the protocol, by the loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SplitReport {
    Ratings(Box<ratings::RatingsReport>),
    Clicks(Box<clicks::ClicksReport>),
    Plays(Box<plays::PlaysReport>),
}

/// Runs the protocol on `rows`. `k` is the length of lists, which implicit loss makes.
///
/// # Errors
/// If there are too few rows to hold any out, or the trainer rejects them.
pub fn evaluate_split(
    dataset: &str,
    rows: &[NamedRating],
    holdout: Holdout,
    k: usize,
    settings: &EvaluateSettings,
) -> anyhow::Result<SplitReport> {
    let parts = holdout.parts(rows, settings.seed)?;
    let header = parts.header(dataset, holdout, settings);
    Ok(match settings.loss {
        Loss::Squared => SplitReport::Ratings(Box::new(ratings::evaluate(header, &parts, settings)?)),
        Loss::Logistic => SplitReport::Clicks(Box::new(clicks::evaluate(header, &parts, settings)?)),
        Loss::Implicit => SplitReport::Plays(Box::new(plays::evaluate(header, &parts, k, settings)?)),
    })
}

impl fmt::Display for SplitReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Ratings(report) => report.fmt(out),
            Self::Clicks(report) => report.fmt(out),
            Self::Plays(report) => report.fmt(out),
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, split, dim, seed, train_ratings, test_ratings, .. } = self;
        let loss = match self.loss {
            Loss::Squared => "squared",
            Loss::Logistic => "logistic",
            Loss::Implicit => "implicit",
        };
        writeln!(out, "split of {dataset} ({split}), {loss} loss, dim {dim}, seed {seed}")?;
        let from = self.test_from.as_ref().map_or_else(String::new, |time| format!(", those from {time} on"));
        writeln!(out, "  {train_ratings} rows to train on, {test_ratings} to predict{from}")?;
        let (users, items) = (self.test_ratings_of_unseen_users, self.test_ratings_of_unseen_items);
        if users > 0 {
            writeln!(out, "  {users} of these of users without training rows, {}", of_unseen_users(self.loss))?;
        }
        if items > 0 {
            writeln!(out, "  {items} of these of items without training rows, {}", of_unseen_items(self.loss))?;
        }
        Ok(())
    }
}

/// What users without training rows are scored by.
fn of_unseen_users(loss: Loss) -> &'static str {
    match loss {
        Loss::Squared | Loss::Logistic => "who are scored as the average user",
        Loss::Implicit => "whose scores are all equal: their lists are arbitrary",
    }
}

/// What items without training rows are scored by.
fn of_unseen_items(loss: Loss) -> &'static str {
    match loss {
        Loss::Squared | Loss::Logistic => "which are scored by the version's features for unknown items",
        Loss::Implicit => "which no list can contain",
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { train_seconds, regularization, iterations, prior_scale } = self;
        writeln!(out, "  training took         {train_seconds:.1} s")?;
        write!(
            out,
            "  the trainer chose     regularization {regularization}, {iterations} iterations, prior scale {prior_scale}"
        )
    }
}

#[cfg(test)]
mod tests;
