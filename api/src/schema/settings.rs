//! Settings of a model: loss, gate, guard, trainer and default reward.

use celeris_manager::{self as manager, Engine, GateConfig, GuardConfig, LowerLimits, TrainerSettings};
use celeris_model as model;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mirror_enum! {
    /// What user weights minimise.
    Loss = model::Loss {
        /// The squared difference of score and label: ratings, amounts, any graded reward.
        Squared,
        /// The log loss of `sigmoid(score)` against a label from 0 to 1: clicks. Scores are log-odds.
        Logistic,
        /// For feedback that only says "this, and how often": one preference of 1 for each item taken, with the confidence
        /// `1 + sum weight * label` over its observations.
        Implicit,
    }
}

mirror_enum! {
    /// How a mean of losses is reported.
    Metric = manager::Metric {
        /// The root of the mean squared error: in labels, or under implicit loss in preferences from 0 to 1.
        Rmse,
        /// The mean negative log-likelihood of the labels, in nats.
        LogLoss,
        /// The mean share of drawn items that rank above the observed one.
        Rank,
    }
}

/// How the candidates of a model are judged against the version that serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gate {
    /// The share of the incumbent's loss by which a candidate must be better; below 0, by which it may be worse.
    #[schema(minimum = -1, exclusive_maximum = 1)]
    pub margin: f64,
    /// The share of the log that candidates are not trained on and are judged by.
    #[schema(minimum = 0, maximum = 0.5)]
    pub holdout_share: f64,
    /// The observations of the validation pool in the holdout from which on they are judged by themselves.
    pub pool_min: u64,
    /// Lets every candidate pass; the report says what the verdict would have been.
    pub force: bool,
    /// Seconds of live traffic that a candidate predicts beside the incumbent before it may serve.
    #[schema(maximum = 3600)]
    pub shadow_seconds: u64,
}

/// How long a new version is compared with the one before, which serves again if it is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Guard {
    /// Observations after which the guard ends, from 10; 0 is no guard.
    #[schema(maximum = 100_000)]
    pub observations: u64,
    /// Seconds after which it ends at the latest; 0 is no guard.
    #[schema(maximum = 31_536_000)]
    pub seconds: u64,
    /// The share of the loss of the version before by which the new one may be worse.
    #[schema(minimum = 0, maximum = 10)]
    pub margin: f64,
}

/// Who trains a model and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"engine": "als", "limits": {"seconds": 3600}}))]
pub struct Trainer {
    /// `als`, the built-in trainer, or the name of one that the node's configuration holds the command line of.
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Iterations, for the job file of a trainer that is not built in; likewise the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub iterations: Option<u32>,
    /// The factor of the penalty on the size of factors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub regularization: Option<f64>,
    /// How much an observation adds to the confidence under implicit feedback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub alpha: Option<f64>,
    pub limits: TrainerLimits,
}

/// What one training may take, all of its processes together; the node's limits where a figure is missing, which none may
/// exceed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerLimits {
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 134_217_728)]
    pub memory: Option<u64>,
    /// Seconds from its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub seconds: Option<u64>,
    /// Seconds without a line of output or a change in its output folder, after which it is taken for dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub heartbeat_seconds: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8)]
    pub processes: Option<u64>,
    /// Bytes that it may write into the folder of its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1_048_576)]
    pub disk: Option<u64>,
}

/// The reward of a shown slot for which none has come in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"label": 0, "after_seconds": 1800, "slots": 10}))]
pub struct DefaultReward {
    /// The label that such a slot is observed with.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    pub label: f32,
    /// How long after the ranking a reward may come before that, in seconds.
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub after_seconds: f64,
    /// Only so many of the first slots of a ranking get one.
    #[serde(default = "slots_default")]
    #[schema(minimum = 1, maximum = 100, default = slots_default)]
    pub slots: u32,
}

fn slots_default() -> u32 {
    10
}

same_fields!(Gate = GateConfig { margin, holdout_share, pool_min, force, shadow_seconds });
same_fields!(Guard = GuardConfig { observations, seconds, margin });
same_fields!(Trainer = TrainerSettings { engine, iterations, regularization, alpha, limits });
same_fields!(TrainerLimits = LowerLimits { memory, seconds, heartbeat_seconds, processes, disk });
same_fields!(DefaultReward = manager::DefaultReward { label, after_seconds, slots });

impl Default for Gate {
    fn default() -> Self {
        GateConfig::default().into()
    }
}

impl Default for Guard {
    fn default() -> Self {
        GuardConfig::default().into()
    }
}
