//! The recent bias of a user: how far the latest labels deviate, all in one direction, from what the user's weights explain.
//!
//! People rate in sessions, with moods and anchors, and one deviation resembles the last (Koren, "Collaborative
//! filtering with temporal dynamics", KDD 2009, fits a user bias for each day). Here the deviation is the mean residual of the
//! labels so far, each weighted by `retained` to the power of the number of labels after it, shrunk towards 0 as by
//! `precision` further labels without a deviation:
//!
//! `bias = sum_j retained^(n-j) weight_j (y_j - offset_j - x_j·w) / (precision + sum_j retained^(n-j) weight_j)`
//!
//! It is added to the last weight, whose feature is 1, so it is part of every score and changes no order. Age is counted in
//! labels, not in seconds: the bias stays while a user is inactive. `w` are the weights without it, so
//! a state needs the weighted sums of features and targets alone, and an observation costs `O(dim)` more.

use serde::{Deserialize, Deserializer, Serialize};

use super::learning::{Learning, WeightedTarget};
use super::user_model::{Example, History};
use crate::error::ModelError;
use crate::linear::{Real, dot};

/// The largest share that a label keeps, so that the sums stay bounded.
pub const RETAINED_MAX: f64 = 0.999;

/// The bounds of the precision.
pub const PRECISION_MIN: f64 = 1e-3;
/// The bounds of the precision.
pub const PRECISION_MAX: f64 = 1e6;

/// How the recent bias of users is computed, for squared loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RecentBias {
    retained: f64,
    precision: f64,
}

impl RecentBias {
    /// Labels that keep the share `retained` of their weight at each later label, and a bias that is shrunk by
    /// `precision`, as a number of labels.
    ///
    /// # Errors
    /// [`ModelError::OutOfRange`].
    pub fn new(retained: f64, precision: f64) -> Result<Self, ModelError> {
        if !(0.0..=RETAINED_MAX).contains(&retained) {
            return Err(ModelError::OutOfRange {
                what: "recent_bias.retained",
                range: "from 0 to 0.999",
                value: retained,
            });
        }
        if !(PRECISION_MIN..=PRECISION_MAX).contains(&precision) {
            let range = "from 0.001 to 1000000";
            return Err(ModelError::OutOfRange { what: "recent_bias.precision", range, value: precision });
        }
        Ok(Self { retained, precision })
    }

    /// The share of its weight that a label keeps at each later label.
    #[must_use]
    pub fn retained(self) -> f64 {
        self.retained
    }

    /// The number of labels without a deviation that count as observed.
    #[must_use]
    pub fn precision(self) -> f64 {
        self.precision
    }
}

impl<'de> Deserialize<'de> for RecentBias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Numbers {
            retained: f64,
            precision: f64,
        }
        let Numbers { retained, precision } = Numbers::deserialize(deserializer)?;
        Self::new(retained, precision).map_err(serde::de::Error::custom)
    }
}

/// Sums over a user's labels, in which each label keeps a share of its weight at every later one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecentLabels {
    /// `sum weight x`, length `dim`.
    features: Vec<f64>,
    /// `sum weight (label - offset)`.
    target: f64,
    /// `sum weight`.
    weight: f64,
}

impl RecentLabels {
    /// Adds an example to the sums, which begin with the first one; nothing if users have no recent bias under `learning`.
    pub(crate) fn add_to(sums: &mut Option<Self>, learning: &Learning, example: &Example<'_>) {
        if let Some(rule) = learning.recent_bias() {
            let none = || Self { features: vec![0.0; learning.dim()], target: 0.0, weight: 0.0 };
            sums.get_or_insert_with(none).add(rule, example, &learning.weighted_target(example));
        }
    }

    fn add(&mut self, rule: RecentBias, example: &Example<'_>, target: &WeightedTarget) {
        for (sum, x) in self.features.iter_mut().zip(example.features) {
            *sum = rule.retained * *sum + target.weight * f64::from(*x);
        }
        self.target = rule.retained * self.target + target.weight * target.label;
        self.weight = rule.retained * self.weight + target.weight;
    }

    /// The bias under `weights`.
    pub(crate) fn bias<T: Real>(&self, rule: RecentBias, weights: &[T]) -> f64 {
        let explained: f64 = self.features.iter().zip(weights).map(|(sum, weight)| sum * weight.to_f64()).sum();
        (self.target - explained) / (rule.precision + self.weight)
    }

    /// What each of `observations` examples, in the order of the history, adds to the bias under `weights`.
    pub(crate) fn shares<H: History + ?Sized>(
        &self,
        (learning, rule): (&Learning, RecentBias),
        history: &H,
        observations: u64,
        weights: &[f64],
    ) -> Vec<f64> {
        let mut scale = 1.0 / (rule.precision + self.weight);
        let share = |index| {
            let example = history.example(index);
            let target = learning.weighted_target(&example);
            let share = scale * target.weight * (target.label - dot(weights, example.features));
            scale *= rule.retained;
            share
        };
        let mut shares: Vec<f64> = (0..observations).rev().map(share).collect();
        shares.reverse();
        shares
    }

    /// Sum of weights, sum of targets, and the sums of features, for storage.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        [self.weight, self.target].into_iter().chain(self.features.iter().copied())
    }

    /// From the output of [`RecentLabels::numbers`]; `None` if there are none.
    pub(crate) fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let ([weight, target], features) = numbers.split_first_chunk()?;
        Some(Self { features: features.to_vec(), target: *target, weight: *weight })
    }

    /// Size on the heap and inline.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<f64>() * self.features.capacity()
    }
}
