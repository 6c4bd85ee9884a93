//! The loss of one prediction: the only definition of it. Gate, watch, shadow, quality monitors and evaluation take it from
//! here, so that their figures can be compared.

use crate::learning::Loss;
use crate::preference::preference;

/// The closest to 0 and 1 that a probability is taken for, so that one confident mistake has a bounded loss of 16.1.
const PROBABILITY_MIN: f64 = 1e-7;

/// The largest loss of one prediction, and the loss of a prediction that is no number. Sums, means and squares of as many
/// losses as a node ever sees stay finite, as does one loss in `f32`.
pub const PREDICTION_LOSS_MAX: f64 = 1e30;

impl Loss {
    /// What a label says happened, in the unit of [`Loss::expected_label`]: the label itself under squared loss; under
    /// logistic loss the label cut to `0..=1`; under implicit loss the preference, 1 for a label above 0 and else 0 (Hu,
    /// Koren & Volinsky 2008, eq. 1).
    ///
    /// A model may share its stream with one whose labels have another range, so that labels outside its own do come.
    #[must_use]
    pub fn outcome(self, label: f32) -> f64 {
        match self {
            Self::Squared => f64::from(label),
            Self::Logistic => f64::from(label.clamp(0.0, 1.0)),
            Self::Implicit => preference(label),
        }
    }

    /// The squared difference between a prediction and what happened, at most [`PREDICTION_LOSS_MAX`]. `predicted` is in
    /// the unit of [`Loss::expected_label`].
    #[must_use]
    pub fn squared_error(self, predicted: f32, label: f32) -> f64 {
        bounded((f64::from(predicted) - self.outcome(label)).powi(2))
    }

    /// The loss of a prediction that was made before its label was learnt: from 0 to [`PREDICTION_LOSS_MAX`], never another
    /// number. `predicted` is in the unit of [`Loss::expected_label`].
    ///
    /// - squared: `(predicted - label)^2`;
    /// - logistic: `-y ln p - (1 - y) ln(1 - p)`, where `p` is the predicted probability and `y` the label cut to `0..=1`;
    /// - implicit: `(predicted - preference)^2`, without the confidence of Hu, Koren & Volinsky (2008, eq. 3), which would
    ///   let a few heavy users speak for all.
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

/// `f64::min` answers the bound where the loss is no number.
fn bounded(loss: f64) -> f64 {
    loss.min(PREDICTION_LOSS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: [Loss; 3] = [Loss::Squared, Loss::Logistic, Loss::Implicit];

    #[test]
    fn losses_are_those_that_learning_minimises() {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6; // Predictions are f32.
        assert!(close(Loss::Squared.prediction_loss(3.5, 5.0), 2.25));
        assert!(close(Loss::Logistic.prediction_loss(0.25, 1.0), 4.0_f64.ln()));
        assert!(close(Loss::Logistic.prediction_loss(0.25, 0.0), (4.0_f64 / 3.0).ln()));
        assert!(Loss::Logistic.prediction_loss(0.0, 1.0) < 16.2, "a mistake that was certain has a bounded loss");
        assert!(close(Loss::Implicit.prediction_loss(0.75, 12.0), 0.0625), "how often is no part of the preference");
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
