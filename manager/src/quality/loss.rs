//! How far one prediction was from its label, in the measure that the model's own learning minimises.

use celeris_model::Loss;
use celeris_model::preference::preference;
use serde::{Deserialize, Serialize};

/// The closest to 0 and 1 that a probability is taken for, so that one confident mistake has a bounded loss of 16.1.
const PROBABILITY_MIN: f64 = 1e-7;

/// How the mean of a model's losses is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The root of the mean squared error, in labels.
    Rmse,
    /// The mean negative log-likelihood of the labels, in nats.
    LogLoss,
}

impl Metric {
    /// The metric of models that minimise `loss`.
    #[must_use]
    pub fn of(loss: Loss) -> Self {
        match loss {
            Loss::Squared | Loss::Implicit => Self::Rmse,
            Loss::Logistic => Self::LogLoss,
        }
    }

    /// Its name, as JSON has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rmse => "rmse",
            Self::LogLoss => "log_loss",
        }
    }

    /// What a mean of losses is told as.
    #[must_use]
    pub fn value(self, mean_loss: f64) -> f64 {
        match self {
            Self::Rmse => mean_loss.sqrt(),
            Self::LogLoss => mean_loss,
        }
    }
}

/// The loss of one prediction made before its label was learnt: at least 0.
///
/// - squared: `(predicted - label)^2`;
/// - logistic: `-y ln p - (1 - y) ln(1 - p)`, where `p` is the predicted probability and labels lie in 0 to 1;
/// - implicit: `(predicted - preference)^2`, where the preference is 1 for a label above 0 and else 0 (Hu, Koren &
///   Volinsky 2008, eq. 3, without the confidence, which would let a few heavy users speak for all).
pub(crate) fn loss_of(loss: Loss, predicted: f32, label: f32) -> f64 {
    let (predicted, preference, label) = (f64::from(predicted), preference(label), f64::from(label));
    match loss {
        Loss::Squared => (predicted - label).powi(2),
        Loss::Logistic => {
            let p = predicted.clamp(PROBABILITY_MIN, 1.0 - PROBABILITY_MIN);
            let y = label.clamp(0.0, 1.0);
            -y * p.ln() - (1.0 - y) * (1.0 - p).ln()
        }
        Loss::Implicit => (predicted - preference).powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_that_learning_minimises() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6; // Predictions are f32.
        assert!(close(loss_of(Loss::Squared, 3.5, 5.0), 2.25));
        assert!(close(loss_of(Loss::Logistic, 0.25, 1.0), 4.0_f64.ln()));
        assert!(close(loss_of(Loss::Logistic, 0.25, 0.0), (4.0_f64 / 3.0).ln()));
        assert!(loss_of(Loss::Logistic, 0.0, 1.0) < 16.2, "a mistake that was certain has a bounded loss");
        assert!(close(loss_of(Loss::Implicit, 0.75, 12.0), 0.0625), "how often is no part of the preference");
        assert!(close(Metric::of(Loss::Squared).value(2.25), 1.5));
        assert!(close(Metric::of(Loss::Logistic).value(0.5), 0.5));
    }
}
