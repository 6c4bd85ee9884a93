//! Settings of a model: loss, gate, guard, trainer and default reward.

use celeris_manager::{self as manager, Engine, GateConfig, GuardConfig, LowerLimits, TrainerSettings};
use celeris_model as model;
use celeris_predictor as predictor;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mirror_enum! {
    /// The loss that user weights minimise.
    Loss = model::Loss {
        /// The squared difference of score and label, for ratings, amounts or any graded reward.
        Squared,
        /// The log loss of `sigmoid(score)` against a label from 0 to 1, for clicks. Scores are
        /// log-odds.
        Logistic,
        /// For implicit feedback, which has only positive observations: a preference of 1 for each
        /// item taken, with the confidence `1 + sum weight * label` over its observations.
        Implicit,
    }
}

mirror_enum! {
    /// The metric in which a mean loss is reported.
    Metric = manager::Metric {
        /// The root mean squared error: in units of labels, or under implicit loss of preferences
        /// from 0 to 1.
        Rmse,
        /// The mean negative log-likelihood of the labels, in nats.
        LogLoss,
        /// The mean share of sampled items that rank above the observed one.
        Rank,
    }
}

mirror_enum! {
    /// What happens to labels outside of `label_range`.
    LabelsOutside = predictor::LabelsOutside {
        /// The observation is rejected with 422.
        Refuse,
        /// The nearest label of the range is recorded, and returned as `clipped`.
        Clip,
    }
}

/// How candidates are evaluated against the active version before they are activated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Gate {
    /// The share of the incumbent's loss by which a candidate must be better; if negative, by which
    /// it may be worse.
    #[schema(minimum = -1, exclusive_maximum = 1)]
    pub margin: f64,
    /// The share of the log that is held out of training and on which candidates are evaluated.
    #[schema(minimum = 0, maximum = 0.5)]
    pub holdout_share: f64,
    /// The number of validation pool observations in the holdout from which on they are also
    /// evaluated separately.
    #[schema(format = "uint64")]
    pub pool_min: u64,
    /// Lets every candidate pass; the report contains what the verdict would have been.
    pub force: bool,
    /// Seconds of live traffic that a candidate predicts as a shadow of the incumbent before it is
    /// activated; not under implicit loss.
    #[schema(maximum = 3600)]
    pub shadow_seconds: u64,
}

/// The guard after a promotion: how long a new version is compared with the previous one. If the
/// previous one is better, the model rolls back to it. Models of implicit feedback have no guard:
/// their live observations are all of items that were taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields, default)]
pub struct Guard {
    /// Number of observations after which the guard ends, at least 10; 0 disables the guard.
    #[schema(maximum = 100_000)]
    pub observations: u64,
    /// Seconds after which the guard ends at the latest; 0 disables the guard.
    #[schema(maximum = 31_536_000)]
    pub seconds: u64,
    /// The share of the previous version's loss by which the new version may be worse.
    #[schema(minimum = 0, maximum = 10)]
    pub margin: f64,
}

/// The trainer of a model and its settings.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", default, deny_unknown_fields)]
#[schema(example = json!({"engine": "als", "limits": {"seconds": 3600}}))]
pub struct Trainer {
    /// `als` or `popularity`, which are built in, or the name of a trainer whose command line is in the node's
    /// configuration.
    #[schema(value_type = String)]
    pub engine: Engine,
    /// Number of iterations; of the built-in trainer, the largest. A trainer that is not built in gets this,
    /// `regularization` and `alpha` in its job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub iterations: Option<u32>,
    /// Regularization: the factor of the penalty on the size of factors. Without it, the built-in trainer chooses
    /// it on held-out labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub regularization: Option<f64>,
    /// The confidence that an observation adds under implicit feedback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub alpha: Option<f64>,
    /// Strength of the users' prior relative to the fitted one. Without it, the built-in trainer chooses it on held-out
    /// labels. Not for implicit feedback, nor for trainers that are not built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.01, maximum = 100)]
    pub prior_scale: Option<f64>,
    /// Whether attributes make the features of items that were not trained; they do by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<bool>,
    pub limits: TrainerLimits,
}

/// Limits of one training, all of its processes together. Missing figures default to the node's
/// limits, which no figure may exceed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct TrainerLimits {
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 134_217_728)]
    pub memory: Option<u64>,
    /// Seconds from the start of the training.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub seconds: Option<u64>,
    /// Seconds without a line of output or a change in the output folder, after which the training
    /// is considered hung.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub heartbeat_seconds: Option<u64>,
    /// Number of processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 8)]
    pub processes: Option<u64>,
    /// Bytes that the training may write into its job folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1_048_576)]
    pub disk: Option<u64>,
}

/// The reward of a shown slot without a reward in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
#[schema(example = json!({"label": 0, "after_seconds": 1800, "slots": 10}))]
pub struct DefaultReward {
    /// The label of the default reward.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    pub label: f32,
    /// How long after the ranking a reward may arrive before the default is given, in seconds.
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub after_seconds: f64,
    /// The number of first slots of a ranking that get a default reward.
    #[serde(default = "slots_default")]
    #[schema(minimum = 1, maximum = 100, default = slots_default)]
    pub slots: u32,
}

fn slots_default() -> u32 {
    10
}

objects!(Gate, Guard, Trainer, TrainerLimits, DefaultReward);
serialized_objects!(Gate, Guard, Trainer, TrainerLimits, DefaultReward);

same_fields!(Gate = GateConfig { margin, holdout_share, pool_min, force, shadow_seconds });
same_fields!(Guard = GuardConfig { observations, seconds, margin });
same_fields!(Trainer = TrainerSettings { engine, iterations, regularization, alpha, prior_scale, attributes, limits });
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
