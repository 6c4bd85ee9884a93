//! Losses: the distance of an arm from the label, or its missing reward, scaled to 0 to 1.

use celeris_model::LabelRange;
use serde::{Deserialize, Serialize};

/// The criterion by which arms are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The label after the arm was served: the more the better.
    Reward,
    /// The distance of the arm's prediction from the label: the less the better (Clipper's `L(y,
    /// y')`).
    Error,
}

/// Scales labels to losses from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    pub objective: Objective,
    /// The worst and best label, and so the largest possible error.
    pub range: LabelRange,
}

impl LossScale {
    /// The loss of an arm that predicted `predicted`, given the label; `None` if the objective is
    /// the error and the arm has no prediction.
    #[must_use]
    pub fn loss(&self, predicted: Option<f32>, label: f32) -> Option<f64> {
        match self.objective {
            Objective::Reward => Some(1.0 - self.range.share(label)),
            Objective::Error => {
                let predicted = predicted.filter(|predicted| predicted.is_finite())?;
                let error = (f64::from(predicted) - f64::from(self.range.nearest(label))).abs() / self.range.width();
                Some(error.min(1.0))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn labels_outside_the_range_are_clamped() {
        for objective in [Objective::Error, Objective::Reward] {
            let scale = LossScale { objective, range: LabelRange::UNIT };
            for (beyond, end) in [(7.0, 1.0), (-3.0, 0.0)] {
                for predicted in [0.0, 0.25, 0.9, 1.0] {
                    assert_eq!(scale.loss(Some(predicted), beyond), scale.loss(Some(predicted), end), "{objective:?}");
                }
            }
        }
    }
}
