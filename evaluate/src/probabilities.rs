//! Quality of predicted probabilities: log loss, AUC, calibration.
//!
//! A label between 0 and 1 counts as a row of label 1 and a row of label 0, with the label and the
//! rest as their weights.

use serde::Serialize;

/// Probabilities are clipped to this distance from 0 and 1 in the log loss: that of an `f32`.
const CLIP: f64 = f32::EPSILON as f64;

/// Number of parts of the reliability table, of equal size but for equal predictions.
const PARTS: usize = 10;

/// A label from 0 to 1 and the predicted probability of the label 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) label: f64,
    pub(crate) probability: f64,
}

/// Quality of the probabilities of one predictor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quality {
    /// The mean of `-ln` of the probability of the label, in nats.
    pub log_loss: f64,
    /// The probability that a click has a higher prediction than a row without, ties counting one
    /// half; null if the rows are all of one kind.
    pub auc: Option<f64>,
    /// The expected calibration error: the mean distance of predicted and observed rate over the
    /// parts of the reliability table, weighted by their rows.
    pub calibration_error: f64,
}

/// A part of the rows: those whose predictions are next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// The mean predicted probability.
    pub predicted: f64,
    /// The mean label.
    pub observed: f64,
    pub rows: usize,
}

impl Quality {
    /// The quality of these predictions, which are not empty.
    pub(crate) fn of(predicted: &[Predicted]) -> Self {
        let parts = reliability(predicted);
        let errors = parts.iter().map(|part| part.rows as f64 * (part.predicted - part.observed).abs());
        Self {
            log_loss: predicted.iter().map(log_loss).sum::<f64>() / predicted.len() as f64,
            auc: auc(predicted),
            calibration_error: errors.sum::<f64>() / predicted.len() as f64,
        }
    }
}

fn log_loss(predicted: &Predicted) -> f64 {
    let probability = predicted.probability.clamp(CLIP, 1.0 - CLIP);
    -(predicted.label * probability.ln() + (1.0 - predicted.label) * (1.0 - probability).ln())
}

fn sorted(predicted: &[Predicted]) -> Vec<Predicted> {
    let mut sorted = predicted.to_vec();
    sorted.sort_by(|one, other| one.probability.total_cmp(&other.probability));
    sorted
}

/// The area under the curve of true against false positives.
fn auc(predicted: &[Predicted]) -> Option<f64> {
    let sorted = sorted(predicted);
    let (mut ones, mut zeros, mut area) = (0.0, 0.0, 0.0);
    for ties in sorted.chunk_by(|one, other| one.probability == other.probability) {
        let of_ties: f64 = ties.iter().map(|one| one.label).sum();
        let zeros_of_ties = ties.len() as f64 - of_ties;
        area += of_ties * (zeros + zeros_of_ties / 2.0);
        ones += of_ties;
        zeros += zeros_of_ties;
    }
    (ones > 0.0 && zeros > 0.0).then(|| area / (ones * zeros))
}

/// The rows in the order of their predictions, in ten parts of equal size; equal predictions are in
/// one part, so there may be fewer.
pub(crate) fn reliability(predicted: &[Predicted]) -> Vec<Part> {
    let sorted = sorted(predicted);
    let mut parts = Vec::new();
    let mut start = 0;
    for number in 1..=PARTS {
        let mut end = (sorted.len() * number / PARTS).max(start);
        while end > start && end < sorted.len() && sorted[end].probability == sorted[end - 1].probability {
            end += 1;
        }
        let rows = &sorted[start..end];
        if !rows.is_empty() {
            let mean = |value: fn(&Predicted) -> f64| rows.iter().map(value).sum::<f64>() / rows.len() as f64;
            parts.push(Part {
                predicted: mean(|one| one.probability),
                observed: mean(|one| one.label),
                rows: rows.len(),
            });
        }
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests;
