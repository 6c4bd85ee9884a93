//! Models: how one is created and changed, and how it is described.

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_manager::ModelConfig;
use celeris_model::{HalfLife, ModelName, StreamName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::nullable;
use super::policies::{Policy, PolicyOrName};
use super::selections::{NewSelectionBody, Selection};
use super::settings::{DefaultReward, Gate, Guard, Loss, Trainer};
use super::triggers::{Triggers, TriggersChange};
use super::versions::Comparison;

/// The dimension of a model that names none.
pub const DIM_DEFAULT: usize = 32;

/// What answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A model, which learns.
    #[default]
    Model,
    /// Other models, among which it selects.
    Selection,
}

/// Which kind a body is about; the rest of it is read by what that kind has.
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

/// A model or selection that exists, and whose documents or files the node cannot read. Requests to it are answered by 503;
/// it can be deleted, or restored from a backup before the next start.
#[derive(Debug, Serialize, ToSchema)]
pub struct Unavailable {
    pub kind: Kind,
    #[schema(value_type = String)]
    pub name: ModelName,
    /// What cannot be read, and why.
    pub unavailable: String,
}

/// A model to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModel {
    /// `model` by default; a `selection` has other fields.
    #[serde(default)]
    pub kind: Kind,
    /// Its name: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = String)]
    pub name: ModelName,
    /// The stream it learns from; its own name by default.
    #[schema(value_type = Option<String>)]
    pub stream: Option<StreamName>,
    /// The length of features and weights, the constant included; 32 by default.
    #[schema(minimum = 1, maximum = 512)]
    pub dim: Option<usize>,
    /// What user weights minimise; `squared` by default.
    pub loss: Option<Loss>,
    /// Seconds in which an observation loses half of its weight, measured to the user's latest one; absent, nothing is
    /// forgotten. Under implicit loss a preference fades by the age of the latest observation of its item.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0)]
    pub half_life: Option<HalfLife>,
    /// How it ranks where a request names no policy; `epsilon_greedy` by default.
    #[schema(value_type = Option<PolicyOrName>)]
    pub policy: Option<PolicySpec>,
    /// The share of such rankings that are drawn uniformly for the validation pool; 0.01 by default.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 1)]
    pub pool_share: Option<PoolShare>,
    /// How its candidates are judged.
    pub gate: Option<Gate>,
    /// How long a new version is guarded.
    pub guard: Option<Guard>,
    /// How many versions are kept beside the active, the pinned and the one that a rollback leads to; 10 by default.
    #[schema(minimum = 1, maximum = 1000)]
    pub keep_versions: Option<u32>,
    /// When it is retrained by itself; never by default.
    pub triggers: Option<Triggers>,
    /// Who trains it and how; the built-in trainer by default.
    pub trainer: Option<Trainer>,
    /// The reward of shown slots for which none has come in time; none by default.
    pub default_reward: Option<DefaultReward>,
}

/// A guard under way.
#[derive(Debug, Serialize, ToSchema)]
pub struct Guarding {
    /// The version that served before, to which the model goes back if the new one is worse.
    pub against: u64,
    /// When the new version began to serve, in Unix milliseconds.
    pub since: i64,
    /// The new version as the candidate and the one before as the incumbent, on the same observations since the start of
    /// the node; null before the first look.
    pub comparison: Option<Comparison>,
}

/// Settings to change. What is missing stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelChange {
    /// Triggers to change: an object sets one, null turns it off, and what is missing stays.
    pub triggers: Option<TriggersChange>,
    /// How candidates are judged, from the next one on; replaces all of `gate`, its missing fields by their defaults.
    pub gate: Option<Gate>,
    /// How long new versions are guarded, from the next one on; replaces all of `guard`.
    pub guard: Option<Guard>,
    /// How many versions are kept, from the next one on.
    #[schema(minimum = 1, maximum = 1000)]
    pub keep_versions: Option<u32>,
    /// Who trains it and how, from the next training on; replaces all of `trainer`.
    pub trainer: Option<Trainer>,
    /// The reward of shown slots for which none has come in time; null turns it off.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<DefaultReward>)]
    pub default_reward: Option<Option<DefaultReward>>,
}

/// How well a model has predicted lately.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecentLoss {
    /// Root of the mean squared error of predictions made before learning.
    pub rmse: f64,
    /// Over how many observations.
    pub count: usize,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub struct Model {
    /// `model`.
    pub kind: Kind,
    /// Its identity, which is never reused: a model that is deleted and created again under its name has another.
    pub id: u64,
    #[schema(value_type = String)]
    pub name: ModelName,
    #[schema(value_type = String)]
    pub stream: StreamName,
    pub dim: usize,
    pub loss: Loss,
    /// Seconds in which an observation loses half of its weight; null where nothing is forgotten.
    #[schema(value_type = Option<f64>, exclusive_minimum = 0)]
    pub half_life: Option<HalfLife>,
    pub policy: Policy,
    #[schema(value_type = f64)]
    pub pool_share: PoolShare,
    pub gate: Gate,
    pub guard: Guard,
    pub keep_versions: u32,
    /// The guard of the active version; null where there is none.
    pub guarding: Option<Guarding>,
    /// When it is retrained by itself.
    pub triggers: Triggers,
    pub trainer: Trainer,
    /// The reward of shown slots for which none has come in time; null where they have none.
    pub default_reward: Option<DefaultReward>,
    /// When it was created, in Unix milliseconds.
    pub created: i64,
    /// The version that serves.
    pub active_version: u64,
    /// How many versions there are.
    pub versions: usize,
    /// Items in the active version's table.
    pub items: usize,
    /// Records in the log of its stream.
    pub observations: u64,
    /// The latest loss; null before the first observation.
    pub recent_loss: Option<RecentLoss>,
}

/// All models.
#[derive(Debug, Serialize, ToSchema)]
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
            loss: new.loss.map_or(usual.loss, Into::into),
            half_life: new.half_life,
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
        let Self { triggers, gate, guard, keep_versions, trainer, default_reward } = self;
        if let Some(triggers) = triggers {
            triggers.apply(&mut config.triggers);
        }
        config.gate = gate.map_or(config.gate, Into::into);
        config.guard = guard.map_or(config.guard, Into::into);
        config.keep_versions = keep_versions.unwrap_or(config.keep_versions);
        if let Some(trainer) = trainer {
            config.trainer = trainer.into();
        }
        config.default_reward = default_reward.map_or(config.default_reward, |set| set.map(Into::into));
    }
}
