//! `--protocol folds`: the mean error over given pairs of training and test ratings, such as
//! `u1.base` and `u1.test` of MovieLens-100K.
//!
//! Each fold is a split of its own. The baseline is the library myFM on the same folds.

use std::fmt;

use anyhow::ensure;
use celeris_datasets::Rating as NamedRating;
use serde::Serialize;

use crate::accuracy::{Accuracy, Collected, Squares, clamped_square};
use crate::lists::mean;
use crate::page::{Tabled, percent, table};
use crate::peers::ratings::{Known, RatingPeer};
use crate::progress::Part;
use crate::{EvaluateSettings, Numbered, by_user, predict};

/// Largest number of folds.
pub const FOLDS_MAX: usize = 100;

/// One pair of files.
#[derive(Debug, Clone)]
pub struct Fold {
    /// The name of both files without their endings.
    pub name: String,
    pub train: Vec<NamedRating>,
    pub test: Vec<NamedRating>,
}

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoldsReport {
    /// `"folds"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of the trainers.
    pub seed: u64,
    pub folds: Vec<FoldFigures>,
    /// The RMSE of the served predictions over the folds.
    pub ours: Mean,
    /// The peers; empty if they are not installed.
    pub peers: Vec<Peer>,
}

/// The figures of one fold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoldFigures {
    pub name: String,
    pub train_ratings: usize,
    pub test_ratings: usize,
    /// The served predictions.
    pub ours: Accuracy,
}

/// A mean over folds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mean {
    pub rmse: f64,
    /// Its standard error over folds; 0 for one fold.
    pub std_error: f64,
}

impl Mean {
    fn of(values: &[f64]) -> Self {
        let (rmse, std_error) = mean(values);
        Self { rmse, std_error }
    }
}

/// One peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peer {
    pub name: &'static str,
    /// RMSE of each fold, in their order.
    pub folds: Vec<f64>,
    pub mean: Mean,
    /// The mean over folds of our RMSE less that of the peer: below zero if ours is better.
    pub difference: Mean,
}

/// Runs the protocol.
///
/// # Errors
/// If there are no folds, a part of a fold is empty, or a trainer fails.
pub fn evaluate_folds(dataset: &str, folds: &[Fold], settings: &EvaluateSettings) -> anyhow::Result<FoldsReport> {
    evaluate_beside(RatingPeer::myfm()?.as_ref(), (dataset, folds), settings)
}

/// Runs the protocol, beside myFM if it is given.
fn evaluate_beside(
    myfm: Option<&RatingPeer>,
    (dataset, folds): (&str, &[Fold]),
    settings: &EvaluateSettings,
) -> anyhow::Result<FoldsReport> {
    ensure!(!folds.is_empty(), "no folds; name pairs of files such as u1.base and u1.test");
    settings.stage("training on folds", Some(folds.len()));
    let mut figures = Vec::new();
    let mut of_peers = [Vec::new(), Vec::new()];
    for (number, fold) in folds.iter().enumerate() {
        let part = settings.part(number, folds.len());
        let (of_fold, range) = ours(fold, settings)?;
        figures.push(of_fold);
        for (place, known) in Known::BOTH.into_iter().enumerate() {
            part.at((1.0 + place as f64) / 3.0);
            if let Some(myfm) = myfm {
                of_peers[place].push(rmse_of_peer(myfm, fold, range, (known, settings.seed))?);
            }
        }
        part.at(1.0);
    }
    let ours: Vec<f64> = figures.iter().map(|fold| fold.ours.error.rmse).collect();
    let peer = |(known, folds): (Known, Vec<f64>)| Peer {
        name: known.name(),
        mean: Mean::of(&folds),
        difference: Mean::of(&ours.iter().zip(&folds).map(|(ours, peer)| ours - peer).collect::<Vec<f64>>()),
        folds,
    };
    Ok(FoldsReport {
        protocol: "folds",
        dataset: dataset.to_owned(),
        dim: settings.dim,
        seed: settings.seed,
        folds: figures,
        ours: Mean::of(&ours),
        peers: myfm.map_or_else(Vec::new, |_| Known::BOTH.into_iter().zip(of_peers).map(peer).collect()),
    })
}

/// Our figures of a fold, and the range of its training labels.
fn ours(fold: &Fold, settings: &EvaluateSettings) -> anyhow::Result<(FoldFigures, (f32, f32))> {
    let Fold { name, train, test } = fold;
    ensure!(!train.is_empty() && !test.is_empty(), "fold {name}: a file has no ratings");
    let mut numbered = Numbered::default();
    let (known, tested) = (numbered.number(train), numbered.number(test));
    let mut labels = vec![0; numbered.items.len()];
    known.iter().for_each(|row| labels[row.item as usize] += 1);
    let trained = numbered.train(&known, settings, Part::unreported())?;
    let [learnt, by_tester] = [&known, &tested].map(|rows| by_user(numbered.users.len(), rows));
    let predictions = predict(&trained, settings.loss, Part::unreported(), (&learnt, &by_tester))?;
    let mut collected = Collected::default();
    collected.add(trained.label_range, &predictions, &labels);
    let figures = FoldFigures {
        name: name.clone(),
        train_ratings: known.len(),
        test_ratings: tested.len(),
        ours: collected.accuracy(),
    };
    Ok((figures, trained.label_range))
}

fn rmse_of_peer(myfm: &RatingPeer, fold: &Fold, range: (f32, f32), (known, seed): (Known, u64)) -> anyhow::Result<f64> {
    let mut numbered = Numbered::default();
    let (train, test) = (numbered.number(&fold.train), numbered.number(&fold.test));
    let mut squares = Squares::default();
    for (row, score) in test.iter().zip(myfm.fitted((&train, &test), known, seed)?) {
        squares.add(row.user, clamped_square(range, row.label, score));
    }
    Ok(squares.rmse().rmse)
}

impl fmt::Display for FoldsReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, folds, ours, peers, .. } = self;
        writeln!(out, "folds of {dataset}, dim {dim}, seed {seed}")?;
        write!(out, "  fold          train    test  95 % cover    ours")?;
        for peer in peers {
            write!(out, "  {:>16}", peer.name)?;
        }
        for (number, fold) in folds.iter().enumerate() {
            let FoldFigures { name, train_ratings, test_ratings, ours } = fold;
            let covered = 100.0 * ours.coverage_95;
            write!(
                out,
                "\n  {name:<9}  {train_ratings:>8}{test_ratings:>8}      {covered:>4.1} %  {:.4}",
                ours.error.rmse
            )?;
            for peer in peers {
                write!(out, "  {:>16.4}", peer.folds[number])?;
            }
        }
        write!(out, "\n  mean rmse of ours     {:.4} ± {:.4}", ours.rmse, ours.std_error)?;
        for Peer { name, mean, difference, .. } in peers {
            write!(
                out,
                "\n  {name:<20}  {:.4} ± {:.4}   ours less this: {:+.4} ± {:.4}",
                mean.rmse, mean.std_error, difference.rmse, difference.std_error
            )?;
        }
        if peers.is_empty() {
            write!(out, "\n  myFM is not installed: `cargo xtask peers` installs it")?;
        }
        Ok(())
    }
}

impl Tabled for FoldsReport {
    fn parts(&self) -> Vec<(&'static str, String)> {
        let Self { dataset, dim, seed, folds, ours, peers, .. } = self;
        let names: Vec<&str> = folds.iter().map(|fold| fold.name.as_str()).collect();
        let covered = folds.iter().map(|fold| fold.ours.coverage_95).sum::<f64>() / folds.len() as f64;
        let mean = |mean: &Mean| format!("{:.4} ± {:.4}", mean.rmse, mean.std_error);
        let mut rows = vec![vec!["ours".to_owned(), mean(ours), String::new()]];
        rows.extend(peers.iter().map(|peer| vec![peer.name.to_owned(), mean(&peer.mean), mean(&peer.difference)]));
        let text = format!(
            "`celeris evaluate --protocol folds --dim {dim} --seed {seed}` on {dataset}, folds {}. RMSE with standard errors over \
             folds; the 95 % intervals cover {}.\n\n{}",
            names.join(", "),
            percent(covered),
            table(&["", "RMSE", "ours less this"], &rows)
        );
        vec![("folds", text)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::num::NonZeroUsize;

    use celeris_datasets::synthetic::SyntheticSettings;
    use celeris_model::Loss;

    use super::*;
    use crate::progress::Silent;
    use crate::split::{Holdout, SplitReport, evaluate_split};

    fn folds() -> Vec<Fold> {
        let settings = SyntheticSettings { users: 60, items: 90, ratings: 1800, ..SyntheticSettings::default() };
        let rows = settings.generate().unwrap().dataset.ratings;
        let part = |number: usize, test: bool| {
            let rows = rows.iter().enumerate().filter(|(row, _)| (row % 3 == number) == test);
            rows.map(|(_, rating)| rating.clone()).collect::<Vec<_>>()
        };
        let fold = |number| Fold { name: format!("u{number}"), train: part(number, false), test: part(number, true) };
        (0..3).map(fold).collect()
    }

    #[test]
    fn the_mean_is_that_of_splits_by_the_files() {
        let settings =
            EvaluateSettings { dim: 6, seed: 4, threads: NonZeroUsize::MIN, loss: Loss::Squared, progress: &Silent };
        let folds = folds();
        let report = evaluate_beside(None, ("synthetic", &folds), &settings).unwrap();
        let mut errors = Vec::new();
        for (fold, figures) in folds.iter().zip(&report.folds) {
            let split = evaluate_split("fold", &fold.train, Holdout::File(&fold.test), 10, &settings).unwrap();
            let SplitReport::Ratings(split) = split else { panic!("another report") };
            assert!((figures.ours.error.rmse - split.rmse).abs() < 1e-12, "{} {}", figures.ours.error.rmse, split.rmse);
            assert_eq!((figures.train_ratings, figures.test_ratings), (1200, 600));
            errors.push(split.rmse);
        }
        let mean: f64 = errors.iter().sum::<f64>() / 3.0;
        let deviations: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
        assert!((report.ours.rmse - mean).abs() < 1e-12);
        assert!((report.ours.std_error - (deviations / 2.0 / 3.0).sqrt()).abs() < 1e-12);
        assert!(report.to_string().contains("myFM is not installed"), "{report}");
    }
}
