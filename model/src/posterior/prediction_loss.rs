//! The loss of one prediction. The gate, the guard, shadow models, quality monitors and the
//! evaluation all use this definition, so that their figures are comparable.

use super::learning::Loss;
use super::preference::preference;

/// Predicted probabilities are clamped to this distance from 0 and 1, so that one confident mistake
/// has a loss of at most 16.1.
const PROBABILITY_MIN: f64 = 1e-7;

/// The largest loss of one prediction, and the loss of a prediction that is NaN. Sums, means and
/// squares of realistic numbers of losses stay finite, as does one loss in `f32`.
pub const PREDICTION_LOSS_MAX: f64 = 1e30;

impl Loss {
    /// The outcome that a label stands for, in the unit of [`Loss::expected_label`]: the label
    /// itself under squared loss; under logistic loss the label clamped to `0..=1`; under implicit
    /// loss the preference, 1 for a label above 0 and otherwise 0 (Hu, Koren & Volinsky 2008, eq.
    /// 1).
    ///
    /// Models of one stream may have different losses, so labels outside the range do occur.
    #[must_use]
    pub fn outcome(self, label: f32) -> f64 {
        match self {
            Self::Squared => f64::from(label),
            Self::Logistic => f64::from(label.clamp(0.0, 1.0)),
            Self::Implicit => preference(label),
        }
    }

    /// The squared difference between prediction and outcome, at most [`PREDICTION_LOSS_MAX`].
    /// `predicted` is in the unit of [`Loss::expected_label`].
    #[must_use]
    pub fn squared_error(self, predicted: f32, label: f32) -> f64 {
        bounded((f64::from(predicted) - self.outcome(label)).powi(2))
    }

    /// The loss of a prediction that was made before its label was learnt: from 0 to
    /// [`PREDICTION_LOSS_MAX`], never NaN. `predicted` is in the unit of [`Loss::expected_label`].
    ///
    /// - squared: `(predicted - label)^2`;
    /// - logistic: `-y ln p - (1 - y) ln(1 - p)`, where `p` is the predicted probability and `y`
    ///   the label clamped to `0..=1`;
    /// - implicit: `(predicted - preference)^2`, without the confidence of Hu, Koren & Volinsky
    ///   (2008, eq. 3), with which a few heavy users would dominate.
    #[must_use]
    pub fn prediction_loss(self, predicted: f32, label: f32) -> f64 {
        match self {
            Self::Squared | Self::Implicit => self.squared_error(predicted, label),
            Self::Logistic => {
                let (p, y) = (f64::from(predicted).clamp(PROBABILITY_MIN, 1.0 - PROBABILITY_MIN), self.outcome(label));
                bounded(-y * p.ln() - (1.0 - y) * (1.0 - p).ln())
            }
        }
    }
}

/// `f64::min` returns the bound for NaN.
fn bounded(loss: f64) -> f64 {
    loss.min(PREDICTION_LOSS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: [Loss; 3] = [Loss::Squared, Loss::Logistic, Loss::Implicit];

    #[test]
    fn prediction_losses_equal_the_losses_of_learning() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6; // Predictions are f32.
        assert!(close(Loss::Squared.prediction_loss(3.5, 5.0), 2.25));
        assert!(close(Loss::Logistic.prediction_loss(0.25, 1.0), 4.0_f64.ln()));
        assert!(close(Loss::Logistic.prediction_loss(0.25, 0.0), (4.0_f64 / 3.0).ln()));
        assert!(Loss::Logistic.prediction_loss(0.0, 1.0) < 16.2, "a confident mistake has a bounded loss");
        assert!(close(Loss::Implicit.prediction_loss(0.75, 12.0), 0.0625), "the count is not part of the preference");
    }

    #[test]
    fn labels_outside_the_range_of_a_loss_count_as_the_nearest_inside() {
        for predicted in [0.0, 0.2, 0.9, 1.0] {
            for (outside, inside) in [(7.0, 1.0), (-3.0, 0.0), (1.000_1, 1.0)] {
                let [outside, inside] = [outside, inside].map(|label| Loss::Logistic.prediction_loss(predicted, label));
                assert!(outside == inside && outside >= 0.0, "{predicted}: {outside} and {inside}");
            }
        }
        assert_eq!(Loss::Implicit.prediction_loss(0.25, -4.0), Loss::Implicit.prediction_loss(0.25, 0.0));
    }

    #[test]
    fn every_loss_is_a_number_from_zero_to_the_bound() {
        let numbers = [0.0, -0.0, 0.5, 1.0, -1.0, 1e6, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for loss in LOSSES {
            for predicted in numbers {
                for label in numbers.into_iter().filter(|label| label.is_finite()) {
                    let value = loss.prediction_loss(predicted, label);
                    assert!((0.0..=PREDICTION_LOSS_MAX).contains(&value), "{loss:?} {predicted} {label}: {value}");
                }
            }
            assert_eq!(loss.prediction_loss(f32::NAN, 1.0), PREDICTION_LOSS_MAX);
        }
    }
}
