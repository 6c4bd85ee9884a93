//! How well a model predicts what it then learns.

use celeris_manager::quality::Baseline as AtBirth;
use celeris_manager::quality::drift::observations_between_false_alarms;
use celeris_manager::{MeanLoss, Quality as Known};
use celeris_model::{ModelName, UserId};
use serde::Serialize;
use utoipa::ToSchema;

use super::settings::{Loss, Metric};

/// A mean loss in the model's metric.
#[derive(Debug, Serialize, ToSchema)]
pub struct Mean {
    pub value: f64,
    /// Over how many observations.
    pub count: u64,
}

/// The mean loss over a window by count.
#[derive(Debug, Serialize, ToSchema)]
pub struct Window {
    /// At most so many of the latest observations.
    pub observations: usize,
    pub value: f64,
    /// Over how many it is.
    pub count: u64,
}

/// The mean loss of a version's first observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Baseline {
    pub value: f64,
    pub count: u64,
    /// When it was complete, in Unix milliseconds.
    pub at: i64,
}

/// The mean loss of one user's observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct OfUser {
    #[schema(value_type = String)]
    pub user: UserId,
    pub value: f64,
    pub count: u64,
}

/// How errors are spread over users.
#[derive(Debug, Serialize, ToSchema)]
pub struct Users {
    /// Users heard of last that are kept track of, at most 4096.
    pub tracked: usize,
    /// Those with at least 5 observations: the users of the other figures.
    pub compared: usize,
    pub median: Option<f64>,
    /// Nine of ten users are predicted better than this.
    pub ninth_decile: Option<f64>,
    /// The ten users who are predicted worst, worst first.
    pub worst: Vec<OfUser>,
}

/// A rise of the loss that the drift test has found.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rise {
    /// Observations before it.
    pub before: u64,
    pub value_before: f64,
    /// Observations from there to the alarm.
    pub after: u64,
    pub value_after: f64,
}

/// The drift test (Page–Hinkley) on the loss of the version that serves.
#[derive(Debug, Serialize, ToSchema)]
pub struct Drift {
    /// How far the cumulative sum of the loss stands above its minimum, in standard deviations.
    pub statistic: f64,
    /// Above this there is drift.
    pub threshold: f64,
    /// A rise up to this, in standard deviations, is none.
    pub tolerance: f64,
    /// Observations from which mean and deviation are learnt first.
    pub warm_up: u64,
    /// Observations tested since the version began to serve or was last trained after.
    pub observations: u64,
    /// The mean number of observations between false alarms, were losses independent and normally distributed.
    pub observations_between_false_alarms: f64,
    /// The rise that was found; null where none was.
    pub rise: Option<Rise>,
}

/// The mean loss of consecutive observations under one version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Point {
    /// Records in the stream's log by its end; events have the same count as their detail `observations`.
    pub position: u64,
    /// When that was, in Unix milliseconds.
    pub at: i64,
    pub version: u64,
    pub count: u64,
    pub value: f64,
}

/// How well a model predicts what it then learns: every observation is predicted before it is learnt.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quality {
    #[schema(value_type = String)]
    pub model: ModelName,
    /// What the model minimises.
    pub loss: Loss,
    /// What every `value` is.
    pub metric: Metric,
    /// The version that serves.
    pub version: u64,
    /// Observations that it has predicted since it last began to serve, as far as they are remembered.
    pub observations: u64,
    /// The loss at its birth; null until it has predicted enough.
    pub baseline: Option<Baseline>,
    /// Observations that a baseline is taken over.
    pub baseline_observations: u64,
    /// Over the latest observations that it has predicted.
    pub windows: Vec<Window>,
    /// Over observations whose own time lies within the last hour.
    pub hour: Option<Mean>,
    /// The same of the last 24 hours.
    pub day: Option<Mean>,
    /// Over the latest 1000 observations of the validation pool, whose items the model did not choose.
    pub pool: Option<Mean>,
    /// The loss on the validation pool at the version's birth; null until it has predicted enough of it.
    pub pool_baseline: Option<Baseline>,
    /// Observations of the validation pool that are remembered.
    pub pool_observations: u64,
    pub users: Users,
    /// The user who was asked for; null where none was or nothing is remembered.
    pub user: Option<OfUser>,
    pub drift: Drift,
    /// The loss over the model's life, oldest first, at most 240 points.
    pub curve: Vec<Point>,
}

/// The quality of a model, and of one of its users where asked for.
pub fn describe(model: ModelName, known: Known, user: Option<(UserId, MeanLoss)>) -> Quality {
    let metric = known.metric;
    let value = |mean: f64| metric.value(mean);
    let mean = |loss: MeanLoss| Mean { value: value(loss.mean), count: loss.count };
    let of_user = |user: UserId, loss: MeanLoss| OfUser { user, value: value(loss.mean), count: loss.count };
    let at_birth = |it: AtBirth| Baseline { value: value(it.mean), count: it.count, at: it.at.0 };
    let settings = known.drift_settings;
    Quality {
        model,
        loss: known.loss.into(),
        metric: metric.into(),
        version: known.version.0,
        observations: known.observations,
        baseline: known.baseline.map(at_birth),
        baseline_observations: known.baseline_observations,
        windows: known
            .windows
            .into_iter()
            .map(|(observations, loss)| Window { observations, value: value(loss.mean), count: loss.count })
            .collect(),
        hour: known.hour.map(mean),
        day: known.day.map(mean),
        pool: known.pool.map(mean),
        pool_baseline: known.pool_baseline.map(at_birth),
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
