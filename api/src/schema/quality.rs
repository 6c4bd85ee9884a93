//! Prediction quality of a model.

use celeris_manager::monitoring::Baseline as KnownBaseline;
use celeris_manager::monitoring::drift::observations_between_false_alarms;
use celeris_manager::{MeanLoss, Quality as Known};
use celeris_model::{ModelName, UserId};
use serde::Serialize;
use utoipa::ToSchema;

use super::ids::{Id, Name};
use super::settings::{Loss, Metric};

/// A mean loss in the model's metric.
#[derive(Debug, Serialize, ToSchema)]
pub struct Mean {
    /// The mean loss, in the metric of the model.
    pub value: f64,
    /// Number of observations.
    pub count: u64,
}

/// The mean loss over a window of observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Window {
    /// Length of the window: at most this many of the latest observations.
    pub observations: usize,
    /// The mean loss, in the metric of the model.
    pub value: f64,
    /// Number of observations in the mean.
    pub count: u64,
}

/// The baseline of a version: the mean loss of its first observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Baseline {
    /// The mean loss, in the metric of the model.
    pub value: f64,
    /// Number of observations in the mean.
    pub count: u64,
    /// When the baseline was complete, in Unix milliseconds.
    pub at: i64,
}

/// The mean loss of one user's observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct OfUser {
    /// The user.
    #[schema(value_type = Id)]
    pub user: UserId,
    /// The mean loss, in the metric of the model.
    pub value: f64,
    pub count: u64,
}

/// The distribution of the loss over users.
#[derive(Debug, Serialize, ToSchema)]
pub struct Users {
    /// Number of most recently active users that are tracked, at most 4096.
    pub tracked: usize,
    /// Number of tracked users with at least 5 observations; the other figures are over these
    /// users.
    pub compared: usize,
    /// The median of the users' mean losses.
    pub median: Option<f64>,
    /// The ninth decile: nine of ten users have a lower loss.
    pub ninth_decile: Option<f64>,
    /// The ten users with the highest loss, highest first.
    pub worst: Vec<OfUser>,
}

/// A rise of the loss found by the drift test.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rise {
    /// Number of observations before the rise.
    pub before: u64,
    /// The mean loss before the rise.
    pub value_before: f64,
    /// Number of observations from the rise to the alarm.
    pub after: u64,
    /// The mean loss since the rise.
    pub value_after: f64,
}

/// The drift test (Page–Hinkley) on the loss of the active version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Drift {
    /// The height of the cumulative sum of the loss above its minimum, in standard deviations.
    pub statistic: f64,
    /// The statistic above which drift is reported.
    pub threshold: f64,
    /// The rise that is tolerated, in standard deviations.
    pub tolerance: f64,
    /// Number of observations for estimating mean and deviation before the test starts.
    pub warm_up: u64,
    /// Number of observations tested since the test was last restarted: by the activation of the
    /// version or by a training.
    pub observations: u64,
    /// The expected number of observations between false alarms, if losses were independent and
    /// normally distributed.
    pub observations_between_false_alarms: f64,
    /// The rise that was found; null if there is none.
    pub rise: Option<Rise>,
}

/// A point of the loss curve: the mean loss of consecutive observations under one version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Point {
    /// Number of records in the stream's log at the end of the point; events have the same count in
    /// their detail `observations`.
    pub position: u64,
    /// Time of the end of the point, in Unix milliseconds.
    pub at: i64,
    pub version: u64,
    pub count: u64,
    /// The mean loss, in the metric of the model.
    pub value: f64,
}

/// Prediction quality of a model: every observation is predicted before it is learnt.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quality {
    #[schema(value_type = Name)]
    pub model: ModelName,
    /// The loss that the model minimises.
    pub loss: Loss,
    /// The metric of every `value`.
    pub metric: Metric,
    /// The active version.
    pub version: u64,
    /// Number of observations predicted by the version since it was last activated, as far as they
    /// are remembered.
    pub observations: u64,
    /// The baseline of the version; null until it has predicted enough observations.
    pub baseline: Option<Baseline>,
    /// Number of observations of a baseline.
    pub baseline_observations: u64,
    /// The loss over windows of the latest observations that the version predicted.
    pub windows: Vec<Window>,
    /// The loss of observations with a timestamp within the last hour.
    pub hour: Option<Mean>,
    /// The loss of observations with a timestamp within the last 24 hours.
    pub day: Option<Mean>,
    /// The loss of the latest 1000 observations of the validation pool, whose items were not chosen
    /// by the model.
    pub pool: Option<Mean>,
    /// The baseline of the version on the validation pool; null until it has predicted enough of
    /// it.
    pub pool_baseline: Option<Baseline>,
    /// Number of remembered observations of the validation pool.
    pub pool_observations: u64,
    pub users: Users,
    /// The requested user; null if none was requested or nothing is remembered of the user.
    pub user: Option<OfUser>,
    pub drift: Drift,
    /// The loss curve of the model, oldest first, at most 240 points.
    pub curve: Vec<Point>,
}

/// The quality of a model, and of one of its users if requested.
pub fn describe(model: ModelName, known: Known, user: Option<(UserId, MeanLoss)>) -> Quality {
    let metric = known.metric;
    let value = |mean: f64| metric.value(mean);
    let mean = |loss: MeanLoss| Mean { value: value(loss.mean), count: loss.count };
    let of_user = |user: UserId, loss: MeanLoss| OfUser { user, value: value(loss.mean), count: loss.count };
    let baseline_of = |it: KnownBaseline| Baseline { value: value(it.mean), count: it.count, at: it.at.0 };
    let settings = known.drift_settings;
    Quality {
        model,
        loss: known.loss.into(),
        metric: metric.into(),
        version: known.version.0,
        observations: known.observations,
        baseline: known.baseline.map(baseline_of),
        baseline_observations: known.baseline_observations,
        windows: known
            .windows
            .into_iter()
            .map(|(observations, loss)| Window { observations, value: value(loss.mean), count: loss.count })
            .collect(),
        hour: known.hour.map(mean),
        day: known.day.map(mean),
        pool: known.pool.map(mean),
        pool_baseline: known.pool_baseline.map(baseline_of),
        pool_observations: known.pool_observations,
        users: Users {
            tracked: known.users.tracked,
            compared: known.users.compared,
            median: known.users.median.map(value),
            ninth_decile: known.users.ninth_decile.map(value),
            worst: known.users.worst.into_iter().map(|worst| of_user(worst.user, worst.loss)).collect(),
        },
        user: user.map(|(user, loss)| of_user(user, loss)),
        drift: Drift {
            statistic: known.drift_statistic,
            threshold: settings.threshold,
            tolerance: settings.tolerance,
            warm_up: settings.warm_up,
            observations: known.drift_observations,
            observations_between_false_alarms: observations_between_false_alarms(&settings).min(f64::MAX),
            rise: known.rise.map(|rise| Rise {
                before: rise.before,
                value_before: value(rise.mean_before),
                after: rise.after,
                value_after: value(rise.mean_after),
            }),
        },
        curve: known
            .curve
            .into_iter()
            .map(|point| Point {
                position: point.position,
                at: point.at.0,
                version: point.version.0,
                count: point.count,
                value: value(point.mean),
            })
            .collect(),
    }
}
