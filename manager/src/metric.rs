//! Metrics for mean losses. The loss of a single prediction is [`Loss::prediction_loss`].

use celeris_model::Loss;
use celeris_study::StudyError;
use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// Metric in which the mean of a model's losses is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Root mean squared error: in labels, or under implicit loss in preferences from 0 to 1.
    Rmse,
    /// Mean negative log-likelihood of the labels, in nats.
    LogLoss,
    /// Mean share of random items that rank above the observed one.
    Rank,
}

impl Metric {
    /// The metric of [`Loss::prediction_loss`] for models that minimise `loss`.
    #[must_use]
    pub fn of(loss: Loss) -> Self {
        match loss {
            Loss::Squared | Loss::Implicit => Self::Rmse,
            Loss::Logistic => Self::LogLoss,
        }
    }

    /// The metric for comparing versions on histories, where the observed item can be ranked among
    /// other items.
    #[must_use]
    pub fn of_replay(loss: Loss) -> Self {
        match loss {
            Loss::Implicit => Self::Rank,
            Loss::Squared | Loss::Logistic => Self::of(loss),
        }
    }

    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rmse => "rmse",
            Self::LogLoss => "log_loss",
            Self::Rank => "rank",
        }
    }

    /// Checks a loss that a worker on another machine has found.
    ///
    /// # Errors
    /// `Study` if it is out of the metric's range.
    pub(crate) fn check(self, value: f64) -> Result<(), ManagerError> {
        let (most, range) = match self {
            Self::Rmse | Self::LogLoss => (f64::INFINITY, "at least 0"),
            Self::Rank => (1.0, "from 0 to 1"),
        };
        if (0.0..=most).contains(&value) {
            return Ok(());
        }
        let problem = format!("must be {range}, as any {}, got {value}", self.name());
        Err(StudyError::Field { field: "value".to_owned(), problem }.into())
    }

    /// Converts a mean loss to this metric.
    #[must_use]
    pub fn value(self, mean_loss: f64) -> f64 {
        match self {
            Self::Rmse => mean_loss.sqrt(),
            Self::LogLoss | Self::Rank => mean_loss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squared_errors_are_reported_as_their_root() {
        assert_eq!(Metric::of(Loss::Squared).value(2.25), 1.5);
        assert_eq!(Metric::of(Loss::Logistic).value(0.5), 0.5);
        assert_eq!(Metric::of_replay(Loss::Implicit).value(0.25), 0.25);
    }
}
