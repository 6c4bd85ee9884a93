//! Quality of predicted probabilities: logistic loss.

use std::fmt;

use anyhow::ensure;
use celeris_model::Loss;
use celeris_retrain::Trained;
use serde::Serialize;

use super::{Chosen, Header, Parts};
use crate::probabilities::{self, Predicted, Quality, reliability};
use crate::{EvaluateSettings, predict};

/// The report of a split of clicks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClicksReport {
    #[serde(flatten)]
    pub header: Header,
    /// The served probabilities.
    pub ours: Quality,
    /// Those of a bias-only model (`dim` 1), trained and served in the same way.
    pub biases: Quality,
    /// The mean label of the training rows, for every row.
    pub base_rate: Quality,
    /// The mean label of the training rows.
    pub train_rate: f64,
    /// The mean label of the predicted rows.
    pub test_rate: f64,
    /// The predicted rows by their served probability, in ten parts of equal size.
    pub reliability: Vec<probabilities::Part>,
    #[serde(flatten)]
    pub chosen: Chosen,
}

pub(super) fn evaluate(header: Header, parts: &Parts, settings: &EvaluateSettings) -> anyhow::Result<ClicksReport> {
    let train_rate = mean(parts.known.iter().map(|row| (row.label, row.weight)));
    ensure!(
        train_rate > 0.0 && train_rate < 1.0,
        "all labels to train on are {train_rate}, and logistic loss needs both kinds: items that were shown and taken (1), and \
         items that were shown and not taken (0); for data of what was taken alone, use --loss implicit"
    );
    let (trained, chosen) = parts.train(settings)?;
    let biases = parts.train_biases(settings)?;

    settings.stage("predicting rows", Some(parts.tested.len()));
    let [learnt, tested] = parts.by_user();
    let predicted = |trained: &Trained, part| -> anyhow::Result<Vec<Predicted>> {
        let predictions = predict(trained, settings.loss, part, (&learnt, &tested))?;
        let predicted = predictions.iter().map(|one| Predicted {
            label: f64::from(one.label),
            probability: Loss::Logistic.probability(&one.served).map_or(f64::NAN, f64::from),
        });
        Ok(predicted.collect())
    };
    let served = predicted(&trained, settings.part(0, 2))?;
    let of_base_rate: Vec<Predicted> = served.iter().map(|one| Predicted { probability: train_rate, ..*one }).collect();
    Ok(ClicksReport {
        header,
        ours: Quality::of(&served),
        biases: Quality::of(&predicted(&biases, settings.part(1, 2))?),
        base_rate: Quality::of(&of_base_rate),
        train_rate,
        test_rate: mean(parts.tested.iter().map(|row| (row.label, 1.0))),
        reliability: reliability(&served),
        chosen,
    })
}

/// The weighted mean of labels.
fn mean(rows: impl Iterator<Item = (f32, f32)>) -> f64 {
    let (sum, total) = rows.fold((0.0, 0.0), |(sum, total), (label, weight)| {
        (sum + f64::from(weight) * f64::from(label), total + f64::from(weight))
    });
    sum / total
}

impl fmt::Display for ClicksReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{}", self.header)?;
        writeln!(out, "                        ours     biases   base rate")?;
        let Self { ours, biases, base_rate, .. } = self;
        let line = |figure: fn(&Quality) -> f64| {
            format!("{:.4}   {:.4}   {:.4}", figure(ours), figure(biases), figure(base_rate))
        };
        writeln!(out, "  log loss              {}", line(|quality| quality.log_loss))?;
        if ours.auc.is_some() {
            writeln!(out, "  AUC                   {}", line(|quality| quality.auc.unwrap_or(f64::NAN)))?;
        } else {
            writeln!(out, "  AUC                   undefined: the rows to predict are all of one kind")?;
        }
        writeln!(out, "  calibration error     {}", line(|quality| quality.calibration_error))?;
        let (train, test) = (self.train_rate, self.test_rate);
        writeln!(out, "  the rate of clicks is {train:.4} in training and {test:.4} in the rows to predict")?;
        writeln!(out, "  rows by their predicted probability:")?;
        writeln!(out, "    predicted  observed      rows")?;
        for part in &self.reliability {
            writeln!(out, "       {:.4}    {:.4}  {:>8}", part.predicted, part.observed, part.rows)?;
        }
        write!(out, "{}", self.chosen)
    }
}
