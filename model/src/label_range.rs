//! The range of the labels of a model.

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::ModelError;
use crate::observation::LABEL_ABS_MAX;

/// The range of labels from the worst to the best, in units of the label.
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
    /// [`ModelError::LabelRange`] unless both are valid labels and `low` is less than `high`.
    pub fn new(low: f32, high: f32) -> Result<Self, ModelError> {
        let valid = |end: f32| end.abs() <= LABEL_ABS_MAX;
        if !valid(low) || !valid(high) || low >= high {
            return Err(ModelError::LabelRange { low, high });
        }
        Ok(Self { low, high })
    }

    #[must_use]
    pub fn width(self) -> f64 {
        f64::from(self.high) - f64::from(self.low)
    }

    /// Whether the label is in the range.
    #[must_use]
    pub fn contains(self, label: f32) -> bool {
        (self.low..=self.high).contains(&label)
    }

    /// The label, clamped to the range.
    #[must_use]
    pub fn nearest(self, label: f32) -> f32 {
        label.clamp(self.low, self.high)
    }

    /// The range with its width added at both ends.
    #[must_use]
    pub fn widened(self) -> Self {
        let width = self.high - self.low;
        Self { low: self.low - width, high: self.high + width }
    }

    /// The relative position of a label in the range, from 0 to 1.
    #[must_use]
    pub fn share(self, label: f32) -> f64 {
        ((f64::from(self.nearest(label)) - f64::from(self.low)) / self.width()).clamp(0.0, 1.0)
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
