//! The features of the reward model: the item, the user's features, and the user's affinity to the
//! item.

use celeris_bandits::ope::RewardFeatures;
use celeris_datasets::OpenBandit;

use super::policy::EvaluatedPolicy;

/// Indicators of item and user features, and the affinity; there is one regression for each
/// position.
pub struct Regression<'a> {
    log: &'a OpenBandit,
    evaluated: &'a EvaluatedPolicy,
    /// The first index of the indicators of each user feature.
    user_features: Vec<usize>,
    dim: usize,
}

impl<'a> Regression<'a> {
    /// The features of the impressions of `evaluated`.
    pub fn new(log: &'a OpenBandit, evaluated: &'a EvaluatedPolicy) -> Self {
        let mut dim = log.items + 1;
        let mut user_features = Vec::with_capacity(log.levels.len());
        for levels in &log.levels {
            user_features.push(dim);
            dim += levels;
        }
        Self { log, evaluated, user_features, dim }
    }
}

impl RewardFeatures for Regression<'_> {
    fn dim(&self) -> usize {
        self.dim
    }

    fn write(&self, slot: usize, shown: &mut [f64], target: &mut [f64]) {
        let index = self.evaluated.rounds.start + slot;
        let item = self.log.impressions[index].item;
        let probabilities = self.evaluated.probabilities(self.log, index);
        shown[item] = 1.0;
        target[..self.log.items].copy_from_slice(probabilities);
        let affinity = self.log.items;
        for (liked, size) in self.log.affinities(index) {
            let (liked, size) = (usize::from(*liked), f64::from(*size));
            target[affinity] += probabilities[liked] * size;
            if liked == item {
                shown[affinity] = size;
            }
        }
        for (start, level) in self.user_features.iter().zip(self.log.user_features(index)) {
            shown[start + usize::from(*level)] = 1.0;
            target[start + usize::from(*level)] = 1.0;
        }
    }
}
