//! What a policy ranks by.

use celeris_bandits::Candidates;
use celeris_model::{Estimate, Learning, UserModel};

use crate::features::Resolved;

/// The numbers of `n` candidates that a policy ranks by.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicyInputs {
    /// Length `n`.
    pub scores: Vec<f32>,
    /// Length `n`, or empty if the policy needs only scores.
    pub std_errors: Vec<f32>,
    /// Length `n`, the part of each score that does not depend on the user; empty if the policy
    /// does not compute scores itself.
    pub offsets: Vec<f32>,
    /// Row-major `n x dim`; empty if the policy does not compute scores itself.
    pub features: Vec<f32>,
}

impl PolicyInputs {
    /// Scores with their uncertainty.
    #[must_use]
    pub fn of_estimates<'e>(estimates: impl Iterator<Item = &'e Estimate> + Clone) -> Self {
        Self {
            scores: estimates.clone().map(|estimate| estimate.score).collect(),
            std_errors: estimates.map(|estimate| estimate.std_error).collect(),
            ..Self::default()
        }
    }

    /// Adds the offsets and features of the candidates, for policies that compute scores
    /// themselves.
    pub(crate) fn add_rows(&mut self, resolved: &[Resolved<'_>], dim: usize) {
        self.offsets = resolved.iter().map(Resolved::offset).collect();
        self.features.reserve(resolved.len() * dim);
        resolved.iter().for_each(|item| self.features.extend_from_slice(item.features()));
    }

    /// The inputs in the form that policies and estimators take.
    #[must_use]
    pub fn candidates<'a>(&'a self, posterior: &'a UserModel, learning: &'a Learning) -> Candidates<'a> {
        Candidates {
            scores: &self.scores,
            std_errors: &self.std_errors,
            offsets: &self.offsets,
            features: &self.features,
            posterior,
            learning,
        }
    }

    /// Adds `add` to the score of each candidate.
    pub(crate) fn boost(&mut self, add: impl Fn(usize) -> f32) {
        self.scores.iter_mut().enumerate().for_each(|(candidate, score)| *score += add(candidate));
        self.offsets.iter_mut().enumerate().for_each(|(candidate, offset)| *offset += add(candidate));
    }

    /// Bytes of the numbers.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<f32>() * (self.scores.len() + self.std_errors.len() + self.offsets.len() + self.features.len())
    }
}
