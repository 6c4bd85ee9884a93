//! Models: creation, change and description.

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_manager::ModelConfig;
use celeris_model::{HalfLife, LabelRange, ModelName, StreamName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::context::ContextFieldOfStream;
use super::features::{PartOfFeatures, parts};
use super::ids::{Name, NameOrInteger};
use super::nullable;
use super::policies::{Policy, PolicyOrName};
use super::selections::{NewSelectionBody, Selection};
use super::settings::{DefaultReward, Gate, Guard, LabelsOutside, Loss, Metric, Trainer};
use super::triggers::{Triggers, TriggersChange};
use super::versions::Comparison;

/// The default dimension of a model.
pub const DIM_DEFAULT: usize = 32;

/// The kind of a model name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A model, which learns from observations.
    #[default]
    Model,
    /// A selection among other models.
    Selection,
}

/// The kind of a model.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    Model,
}

/// The kind of a selection.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SelectionKind {
    Selection,
}

/// The kind of a request body; it determines how the rest of the body is read.
#[derive(Deserialize)]
pub struct OfKind {
    #[serde(default)]
    pub kind: Kind,
}

/// A model or a selection to create.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum NewModelOrSelection {
    Model(Box<NewModel>),
    Selection(Box<NewSelectionBody>),
}

/// A model or a selection.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ModelOrSelection {
    Model(Box<Model>),
    Selection(Box<Selection>),
    Unavailable(Unavailable),
}

/// A model or selection whose documents or files the node cannot read. Requests to it are answered
/// with 503; it can be deleted, or restored from a backup before the next start.
#[derive(Debug, Serialize, ToSchema)]
pub struct Unavailable {
    pub kind: Kind,
    #[schema(value_type = Name)]
    pub name: ModelName,
    /// The error: what cannot be read, and why.
    pub unavailable: String,
}

/// A model to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModel {
    /// `model` by default; a `selection` has other fields.
    #[serde(default)]
    #[schema(value_type = ModelKind)]
    pub kind: Kind,
    /// The name: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = NameOrInteger)]
    pub name: ModelName,
    /// The stream that the model learns from; its own name by default.
    #[schema(value_type = Option<NameOrInteger>)]
    pub stream: Option<StreamName>,
    /// The length of feature and weight vectors, including the constant; 32 by default.
    #[schema(minimum = 1, maximum = 512)]
    pub dim: Option<usize>,
    /// The parts of the features; by default all are factors from the table. Computed parts and the constant count for
    /// `dim`.
    #[schema(max_items = 16)]
    pub features: Option<Vec<PartOfFeatures>>,
    /// Number of candidates of a recommendation that the parts which depend on the context score; 200 by default.
    #[schema(minimum = 1, maximum = 2048)]
    pub candidates: Option<u32>,
    /// The loss that user weights minimise; `squared` by default.
    pub loss: Option<Loss>,
    /// Seconds in which an observation loses half of its weight, relative to the user's latest
    /// observation; observations do not decay by default. Under implicit loss, a preference decays
    /// by the age of the latest observation of its item.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0)]
    pub half_life: Option<HalfLife>,
    /// The smallest and the largest label that the model takes, like `[1, 5]`; without it, all labels
    /// of its loss. Under squared loss, a trained version also limits the influence of labels far
    /// outside of those that it was trained on (`label_range` of the version).
    #[schema(value_type = Option<[f32; 2]>)]
    pub label_range: Option<LabelRange>,
    /// What happens to labels outside of `label_range`; `refuse` by default.
    pub labels_outside: Option<LabelsOutside>,
    /// The policy of requests that name none; `epsilon_greedy` by default.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// The share of rankings without a named policy that are drawn uniformly for the validation
    /// pool; 0.01 by default.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1)]
    pub pool_share: Option<PoolShare>,
    /// How candidates are evaluated before they are activated.
    pub gate: Option<Gate>,
    /// How long the guard compares a new version with the previous one.
    pub guard: Option<Guard>,
    /// Number of versions kept in addition to the active version, pinned versions and the rollback
    /// target; 10 by default.
    #[schema(minimum = 1, maximum = 1000)]
    pub keep_versions: Option<u32>,
    /// When the model is retrained automatically. By default `popularity`, and `volume` with 1000
    /// observations and a growth of 0.5, if the node's configuration has `training.automatic`; `{}`
    /// for never.
    pub triggers: Option<Triggers>,
    /// The trainer and its settings; the built-in trainer by default.
    pub trainer: Option<Trainer>,
    /// The reward of shown slots without a reward in time; none by default.
    pub default_reward: Option<DefaultReward>,
}

/// A running guard.
#[derive(Debug, Serialize, ToSchema)]
pub struct Guarding {
    /// The previously active version, to which the model rolls back if the new version is worse.
    pub against: u64,
    /// When the new version was activated, in Unix milliseconds.
    pub since: i64,
    /// The new version as the candidate and the previous one as the incumbent, on the same
    /// observations since the node started; null before the first comparison.
    pub comparison: Option<Comparison>,
}

/// Settings to change. Missing fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelChange {
    /// Triggers to change: an object sets one, null turns it off, a missing field leaves it
    /// unchanged.
    pub triggers: Option<TriggersChange>,
    /// How candidates are evaluated, from the next one on; replaces all of `gate`, missing fields
    /// by their defaults.
    pub gate: Option<Gate>,
    /// How long new versions are guarded, from the next one on; replaces all of `guard`.
    pub guard: Option<Guard>,
    /// The policy of requests that name none.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// The share of rankings without a named policy that are drawn uniformly for the validation
    /// pool.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1)]
    pub pool_share: Option<PoolShare>,
    /// Seconds in which an observation loses half of its weight, under versions trained from now on:
    /// retrain the model for it to take effect. Null turns the decay off.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<f64>, exclusive_minimum = 0)]
    pub half_life: Option<Option<HalfLife>>,
    /// The smallest and the largest label that the model takes from now on; null for all labels of
    /// its loss. Recorded labels stay.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<[f32; 2]>)]
    pub label_range: Option<Option<LabelRange>>,
    /// What happens to labels outside of `label_range`.
    pub labels_outside: Option<LabelsOutside>,
    /// Number of versions kept, from the next version on.
    #[schema(minimum = 1, maximum = 1000)]
    pub keep_versions: Option<u32>,
    /// The trainer and its settings, from the next training on; replaces all of `trainer`.
    pub trainer: Option<Trainer>,
    /// The reward of shown slots without a reward in time; null turns it off.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<DefaultReward>)]
    pub default_reward: Option<Option<DefaultReward>>,
    /// The parts of the features, from the next version on; an empty list makes all of them factors.
    #[schema(max_items = 16)]
    pub features: Option<Vec<PartOfFeatures>>,
    /// Number of candidates of a recommendation that the parts which depend on the context score.
    #[schema(minimum = 1, maximum = 2048)]
    pub candidates: Option<u32>,
}

/// The recent loss of a model.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentLoss {
    /// The metric of the model's loss: `rmse` in labels under squared loss, in preferences from 0 to 1
    /// under implicit loss; `log_loss` under logistic loss.
    pub metric: Metric,
    /// Of the predictions made before learning.
    pub value: f64,
    /// Number of observations, at most the latest 1000.
    pub count: u64,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub struct Model {
    #[schema(value_type = ModelKind)]
    pub kind: Kind,
    /// The id, which is never reused: a model that is deleted and created again under the same name
    /// has another id.
    pub id: u64,
    #[schema(value_type = Name)]
    pub name: ModelName,
    #[schema(value_type = Name)]
    pub stream: StreamName,
    /// The length of feature and weight vectors, including the constant.
    pub dim: usize,
    /// The parts of the features; absent if all are factors from the table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<PartOfFeatures>,
    /// Number of candidates of a recommendation that the parts which depend on the context score.
    pub candidates: u32,
    /// The loss that user weights minimise.
    pub loss: Loss,
    /// Seconds in which an observation loses half of its weight, under versions trained since it was
    /// set; null if observations do not decay.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0)]
    pub half_life: Option<HalfLife>,
    /// The smallest and the largest label that the model takes, like `[1, 5]`; without it, all labels
    /// of its loss. Under squared loss, a trained version also limits the influence of labels far
    /// outside of those that it was trained on (`label_range` of the version).
    #[schema(value_type = Option<[f32; 2]>)]
    pub label_range: Option<LabelRange>,
    /// What happens to labels outside of `label_range`.
    pub labels_outside: LabelsOutside,
    /// The policy of requests that name none.
    pub policy: Policy,
    /// The share of rankings without a named policy that are drawn uniformly for the validation
    /// pool.
    #[schema(value_type = f64)]
    pub pool_share: PoolShare,
    /// How candidates are evaluated before they are activated.
    pub gate: Gate,
    /// How long a new version is compared with the previous one.
    pub guard: Guard,
    /// Number of versions kept in addition to the active version, pinned versions and the rollback
    /// target.
    pub keep_versions: u32,
    /// The running guard of the active version; null if there is none.
    pub guarding: Option<Guarding>,
    /// When the model is retrained automatically.
    pub triggers: Triggers,
    /// The trainer and its settings.
    pub trainer: Trainer,
    /// The reward of shown slots without a reward in time; null if there is none.
    pub default_reward: Option<DefaultReward>,
    /// The fields that the contexts on the model's stream have had, with their types, in the order in which they came.
    pub context_fields: Vec<ContextFieldOfStream>,
    /// Creation time, in Unix milliseconds.
    pub created: i64,
    /// The active version.
    pub active_version: u64,
    /// Number of versions.
    pub versions: usize,
    /// Number of items in the active version's table.
    pub items: usize,
    /// Number of records in the log of the stream.
    pub observations: u64,
    /// The recent loss; null before the first observation.
    pub recent_loss: Option<RecentLoss>,
}

/// All models.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelList)]
pub struct Models {
    pub models: Vec<ModelOrSelection>,
}

impl From<NewModel> for ModelConfig {
    fn from(new: NewModel) -> Self {
        let usual = Self::new(new.name, new.dim.unwrap_or(DIM_DEFAULT));
        Self {
            stream: new.stream.unwrap_or(usual.stream),
            name: usual.name,
            dim: usual.dim,
            features: new.features.map_or(usual.features, parts),
            candidates: new.candidates.unwrap_or(usual.candidates),
            loss: new.loss.map_or(usual.loss, Into::into),
            half_life: new.half_life,
            label_range: new.label_range,
            labels_outside: new.labels_outside.map_or(usual.labels_outside, Into::into),
            policy: new.policy.unwrap_or(usual.policy),
            pool_share: new.pool_share.unwrap_or(usual.pool_share),
            gate: new.gate.map_or(usual.gate, Into::into),
            guard: new.guard.map_or(usual.guard, Into::into),
            keep_versions: new.keep_versions.unwrap_or(usual.keep_versions),
            triggers: new.triggers.map_or(usual.triggers, Into::into),
            trainer: new.trainer.map_or(usual.trainer, Into::into),
            default_reward: new.default_reward.map(Into::into),
        }
    }
}

impl ModelChange {
    pub fn apply(self, config: &mut ModelConfig) {
        let Self {
            triggers,
            policy,
            pool_share,
            half_life,
            label_range,
            labels_outside,
            gate,
            guard,
            keep_versions,
            trainer,
            default_reward,
            features,
            candidates,
        } = self;
        config.features = features.map_or_else(|| std::mem::take(&mut config.features), parts);
        config.candidates = candidates.unwrap_or(config.candidates);
        if let Some(triggers) = triggers {
            triggers.apply(&mut config.triggers);
        }
        if let Some(policy) = policy {
            config.policy = policy;
        }
        config.pool_share = pool_share.unwrap_or(config.pool_share);
        config.half_life = half_life.unwrap_or(config.half_life);
        config.label_range = label_range.unwrap_or(config.label_range);
        config.labels_outside = labels_outside.map_or(config.labels_outside, Into::into);
        config.gate = gate.map_or(config.gate, Into::into);
        config.guard = guard.map_or(config.guard, Into::into);
        config.keep_versions = keep_versions.unwrap_or(config.keep_versions);
        if let Some(trainer) = trainer {
            config.trainer = trainer.into();
        }
        config.default_reward = default_reward.map_or(config.default_reward, |set| set.map(Into::into));
    }
}
