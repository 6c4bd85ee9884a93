//! Quality figures of a model, for reports and for triggers.

use celeris_model::{Loss, Timestamp, VersionId};

use super::baseline::Baseline;
use super::curve::CurvePoint;
use super::drift::Rise;
use super::users::UsersLoss;
use super::windows::MeanLoss;
use crate::metric::Metric;
use crate::settings::{DriftSettings, Triggers};

/// Error of the latest predictions, each made before its observation was learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecentLoss {
    /// The metric of the model's loss.
    pub metric: Metric,
    pub value: f64,
    /// Number of observations, at most [`crate::settings::WINDOW`].
    pub count: u64,
}

/// All quality figures of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// The loss that the model minimises.
    pub loss: Loss,
    /// The metric of all mean losses.
    pub metric: Metric,
    /// The active version.
    pub version: VersionId,
    /// Number of observations predicted by it since it last began to serve, as far as they are in
    /// memory.
    pub observations: u64,
    /// The baseline loss; `None` until there are enough observations.
    pub baseline: Option<Baseline>,
    /// Number of observations in a baseline.
    pub baseline_observations: u64,
    /// Window length and mean loss for each window by count, over the latest observations that this
    /// version predicted.
    pub windows: Vec<(usize, MeanLoss)>,
    /// Mean loss of the observations with a timestamp within the last hour, under any version.
    pub hour: Option<MeanLoss>,
    /// The same for the last day.
    pub day: Option<MeanLoss>,
    /// Mean loss on the validation pool: at most the latest [`crate::settings::WINDOW`]
    /// observations of uniformly drawn rankings.
    pub pool: Option<MeanLoss>,
    /// Baseline loss on the validation pool.
    pub pool_baseline: Option<Baseline>,
    /// Number of observations of the validation pool in memory.
    pub pool_observations: u64,
    pub users: UsersLoss,
    /// Page–Hinkley statistic, in standard deviations of the loss.
    pub drift_statistic: f64,
    /// Number of observations of the drift test since its last restart.
    pub drift_observations: u64,
    pub drift_settings: DriftSettings,
    /// The rise that the drift test has detected, if any.
    pub rise: Option<Rise>,
    /// Loss over the model's lifetime, oldest point first.
    pub curve: Vec<CurvePoint>,
}

/// Quality figures that triggers evaluate.
#[derive(Debug, Clone)]
pub(crate) struct TriggerFacts {
    pub(crate) triggers: Triggers,
    pub(crate) metric: Metric,
    pub(crate) version: VersionId,
    pub(crate) baseline: Option<Baseline>,
    /// Over a full window since the last training.
    pub(crate) recent: Option<MeanLoss>,
    /// Baseline and recent loss of the validation pool.
    pub(crate) pool_baseline: Option<Baseline>,
    pub(crate) pool: Option<MeanLoss>,
    pub(crate) rise: Option<Rise>,
    pub(crate) created: Timestamp,
}
