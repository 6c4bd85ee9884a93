//! Configuration of a model.

use celeris_bandits::{PolicySpec, PoolShare};
pub use celeris_formats::version_dir::DIM_MAX;
use celeris_model::{HalfLife, LabelRange, Learning, Loss, ModelName, Prior, StreamName};
use celeris_predictor::{LabelRule, LabelsOutside, RankingDefaults, ServingSettings};
use serde::{Deserialize, Serialize};

use super::features::{CANDIDATES_DEFAULT, FeatureParts, check_candidates};
use super::{DefaultReward, GateConfig, GuardConfig, TrainerSettings, Triggers};
use crate::error::ManagerError;

/// Smallest dimension: only the constant feature, whose weight is the user's bias.
pub const DIM_MIN: usize = 1;

/// Default number of versions that a model keeps.
pub const KEEP_VERSIONS_DEFAULT: u32 = 10;

/// Maximum number of versions that a model can keep.
pub const KEEP_VERSIONS_MAX: u32 = 1000;

/// Configuration of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    pub name: ModelName,
    /// The stream that the model learns from.
    pub stream: StreamName,
    /// Length of feature and weight vectors, including the constant.
    pub dim: usize,
    /// The parts of the features; if empty, all are factors. A change takes effect with the next version.
    #[serde(default, skip_serializing_if = "FeatureParts::is_empty")]
    pub features: FeatureParts,
    /// Number of candidates of a recommendation that the parts which depend on the context score.
    #[serde(default = "candidates_default")]
    pub candidates: u32,
    /// The loss that user weights minimise.
    pub loss: Loss,
    /// Time in which an observation loses half of its weight under the versions trained from now on;
    /// if absent, weights do not decay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_life: Option<HalfLife>,
    /// Range of the labels that the model takes; if absent, all labels of its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_range: Option<LabelRange>,
    /// What happens to labels outside of `label_range`.
    #[serde(default)]
    pub labels_outside: LabelsOutside,
    /// Policy of rankings whose request names none.
    pub policy: PolicySpec,
    /// Share of these rankings that are drawn uniformly for the validation pool.
    pub pool_share: PoolShare,
    #[serde(default)]
    pub gate: GateConfig,
    #[serde(default)]
    pub guard: GuardConfig,
    /// Number of versions kept in addition to the required ones.
    #[serde(default = "keep_versions_default")]
    pub keep_versions: u32,
    /// Triggers of automatic retraining.
    #[serde(default)]
    pub triggers: Triggers,
    #[serde(default)]
    pub trainer: TrainerSettings,
    /// Reward of shown slots that received none in time; if absent, such slots have no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_reward: Option<DefaultReward>,
}

fn candidates_default() -> u32 {
    CANDIDATES_DEFAULT
}

fn keep_versions_default() -> u32 {
    KEEP_VERSIONS_DEFAULT
}

impl ModelConfig {
    /// A model with this dimension that learns from the stream of the same name, with defaults for
    /// everything else.
    #[must_use]
    pub fn new(name: ModelName, dim: usize) -> Self {
        Self {
            stream: StreamName::of_model(&name),
            name,
            dim,
            features: FeatureParts::default(),
            candidates: CANDIDATES_DEFAULT,
            loss: Loss::default(),
            half_life: None,
            label_range: None,
            labels_outside: LabelsOutside::default(),
            policy: PolicySpec::default(),
            pool_share: PoolShare::default(),
            gate: GateConfig::default(),
            guard: GuardConfig::default(),
            keep_versions: KEEP_VERSIONS_DEFAULT,
            triggers: Triggers::default(),
            trainer: TrainerSettings::default(),
            default_reward: None,
        }
    }

    /// The learning rule of a version with this prior and half-life, trained on labels of this
    /// range.
    pub(crate) fn learning(&self, prior: Prior, half_life: Option<HalfLife>, trained: Option<(f32, f32)>) -> Learning {
        let trained = trained.and_then(|(low, high)| LabelRange::new(low, high).ok());
        Learning::new(prior, self.loss, half_life).limited_to(trained)
    }

    /// The length of the features without computed parts: the factors and the constant.
    pub(crate) fn table_dim(&self) -> usize {
        self.features.table_dim(self.dim)
    }

    /// Checks the settings with ranges.
    ///
    /// # Errors
    /// `Dim`, `Setting` or `TrainerSetting`.
    pub(crate) fn check(&self) -> Result<(), ManagerError> {
        if !(DIM_MIN..=DIM_MAX).contains(&self.dim) {
            return Err(ManagerError::Dim { min: DIM_MIN, max: DIM_MAX, received: self.dim });
        }
        check_candidates(self.candidates)?;
        self.gate.check()?;
        self.guard.check()?;
        if !(1..=KEEP_VERSIONS_MAX).contains(&self.keep_versions) {
            let received = f64::from(self.keep_versions);
            return Err(ManagerError::Setting { setting: "keep_versions", range: "from 1 to 1000", received });
        }
        if self.loss == Loss::Implicit && self.trainer.prior_scale.is_some() {
            let problem =
                "belongs to graded labels and clicks: under implicit feedback the prior follows from the factors"
                    .to_owned();
            return Err(ManagerError::TrainerSetting { field: "trainer.prior_scale", problem });
        }
        for end in self.label_range.map(<[f32; 2]>::from).into_iter().flatten() {
            self.loss.check_label(end)?;
        }
        if let Some(reward) = &self.default_reward {
            reward.check(self.loss)?;
            let refused = self.labels_outside == LabelsOutside::Refuse
                && self.label_range.is_some_and(|range| !range.contains(reward.label));
            if refused {
                let received = f64::from(reward.label);
                return Err(ManagerError::Setting {
                    setting: "default_reward.label",
                    range: "in label_range",
                    received,
                });
            }
        }
        self.triggers.check()
    }

    pub(crate) fn serving(&self) -> ServingSettings {
        ServingSettings {
            ranking: RankingDefaults { policy: self.policy.clone(), pool_share: self.pool_share },
            labels: LabelRule { range: self.label_range, outside: self.labels_outside },
            candidates: self.candidates as usize,
        }
    }
}
