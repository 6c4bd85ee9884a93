//! `--protocol table`: the protocols on ratings in one run, for the figures of a page.

use std::fmt;

use anyhow::bail;
use celeris_datasets::Dataset;
use celeris_model::Loss;
use serde::Serialize;

use crate::EvaluateSettings;
use crate::density::{DensityReport, DensitySettings, evaluate_density};
use crate::page::Tabled;
use crate::prequential::{PrequentialReport, PrequentialSettings, evaluate_prequential};
use crate::ranking::{RankingReport, evaluate_ranking};
use crate::split::ratings::RatingsReport;
use crate::split::{Holdout, SplitReport, evaluate_split};

/// Length of lists that a split of ratings does not make.
const K: usize = 10;

/// The reports of the protocols.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableReport {
    /// `"table"`.
    pub protocol: &'static str,
    pub split: RatingsReport,
    pub density: DensityReport,
    pub prequential: PrequentialReport,
    pub ranking: RankingReport,
}

/// Runs `split`, `density`, `prequential` and `ranking`.
///
/// # Errors
/// As each of them.
pub fn evaluate_table(
    dataset: &Dataset,
    (density, prequential): (&DensitySettings, PrequentialSettings),
    settings: &EvaluateSettings,
) -> anyhow::Result<TableReport> {
    let (name, ratings) = (&dataset.name, &dataset.ratings);
    let settings = &EvaluateSettings { loss: Loss::Squared, ..*settings };
    let SplitReport::Ratings(split) = evaluate_split(name, ratings, Holdout::Random, K, settings)? else {
        bail!("a split by squared loss reports ratings")
    };
    Ok(TableReport {
        protocol: "table",
        split: *split,
        density: evaluate_density(name, ratings, density, settings)?,
        prequential: evaluate_prequential(name, ratings, prequential, settings)?,
        ranking: evaluate_ranking(dataset, settings)?,
    })
}

impl fmt::Display for TableReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { split, density, prequential, ranking, .. } = self;
        write!(out, "{split}\n{density}\n{prequential}\n{ranking}")
    }
}

impl Tabled for TableReport {
    fn parts(&self) -> Vec<(&'static str, String)> {
        let Self { split, density, prequential, ranking, .. } = self;
        [split.parts(), density.parts(), prequential.parts(), ranking.parts()].concat()
    }
}
