//! What a loss is: how far an arm was from the label, or how much reward it left, from 0 to 1.

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::BanditError;

/// The labels from the worst to the best, in units of the label. What lies outside counts as the end it is nearer to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(into = "[f32; 2]")]
pub struct LabelRange {
    low: f32,
    high: f32,
}

impl LabelRange {
    /// Probabilities and preferences.
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

    /// The distance from end to end.
    #[must_use]
    pub fn width(self) -> f64 {
        f64::from(self.high) - f64::from(self.low)
    }

    /// The label itself, or the end that it lies beyond.
    fn nearest(self, label: f32) -> f64 {
        f64::from(label.clamp(self.low, self.high))
    }

    /// Where a label lies between the ends, from 0 to 1.
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

/// What arms are judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The label that came of what the arm had shown: the more the better.
    Reward,
    /// How far the arm's prediction was from the label: the less the better (Clipper's `L(y, y')`).
    Error,
}

/// How a loss from 0 to 1 is made of a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    /// What arms are judged by.
    pub objective: Objective,
    /// What is worst and best, and how far off a prediction can be.
    pub range: LabelRange,
}

impl LossScale {
    /// The loss of an arm that had expected `predicted` where `label` came; `None` where an error is asked for and the arm
    /// had expected nothing.
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
    fn a_label_beyond_the_range_counts_as_the_end_it_is_nearer_to() {
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
