//! Losses: the distance of an arm from the label, or its missing reward, scaled to 0 to 1.

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::BanditError;

/// The range of labels from the worst to the best, in units of the label. Labels outside are
/// clamped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "[f32; 2]")]
pub struct LabelRange {
    low: f32,
    high: f32,
}

impl LabelRange {
    /// The range from 0 to 1, for probabilities and preferences.
    pub const UNIT: Self = Self { low: 0.0, high: 1.0 };

    /// The labels from `low` to `high`.
    ///
    /// # Errors
    /// [`BanditError::LabelRange`] unless both are finite and `low` is less than `high`.
    pub fn new(low: f32, high: f32) -> Result<Self, BanditError> {
        if !low.is_finite() || !high.is_finite() || low >= high {
            return Err(BanditError::LabelRange { low, high });
        }
        Ok(Self { low, high })
    }

    #[must_use]
    pub fn width(self) -> f64 {
        f64::from(self.high) - f64::from(self.low)
    }

    /// The label, clamped to the range.
    fn nearest(self, label: f32) -> f64 {
        f64::from(label.clamp(self.low, self.high))
    }

    /// The relative position of a label in the range, from 0 to 1.
    #[must_use]
    pub fn share(self, label: f32) -> f64 {
        ((self.nearest(label) - f64::from(self.low)) / self.width()).clamp(0.0, 1.0)
    }
}

impl From<LabelRange> for [f32; 2] {
    fn from(range: LabelRange) -> Self {
        [range.low, range.high]
    }
}

impl<'de> Deserialize<'de> for LabelRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [low, high] = <[f32; 2]>::deserialize(deserializer)?;
        Self::new(low, high).map_err(serde::de::Error::custom)
    }
}

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
                let error = (f64::from(predicted) - self.range.nearest(label)).abs() / self.range.width();
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
