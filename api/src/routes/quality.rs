//! How well a model predicts what it then learns.

use axum::Json;
use axum::extract::State;
use celeris_manager::quality::Baseline as AtBirth;
use celeris_manager::quality::drift::observations_between_false_alarms;
use celeris_manager::{MeanLoss, Metric, Quality as Known};
use celeris_model::{Loss, ModelName, UserId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{ApiError, Problem};
use crate::extract::{InModel, Params};
use crate::state::Node;

/// Whose quality is asked for beside the model's.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Whose {
    /// A user, whose own error is told too.
    #[param(value_type = Option<String>)]
    user: Option<UserId>,
}

/// A mean loss in the model's metric.
#[derive(Debug, Serialize, ToSchema)]
pub struct Mean {
    value: f64,
    /// Over how many observations.
    count: u64,
}

/// The mean loss over a window by count.
#[derive(Debug, Serialize, ToSchema)]
pub struct Window {
    /// At most so many of the latest observations.
    observations: usize,
    value: f64,
    /// Over how many it is.
    count: u64,
}

/// The mean loss of a version's first observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct Baseline {
    value: f64,
    count: u64,
    /// When it was complete, in Unix milliseconds.
    at: i64,
}

/// The mean loss of one user's observations.
#[derive(Debug, Serialize, ToSchema)]
pub struct OfUser {
    #[schema(value_type = String)]
    user: UserId,
    value: f64,
    count: u64,
}

/// How errors are spread over users.
#[derive(Debug, Serialize, ToSchema)]
pub struct Users {
    /// Users heard of last that are kept track of, at most 4096.
    tracked: usize,
    /// Those with at least 5 observations, whom the rest is about.
    compared: usize,
    median: Option<f64>,
    /// Nine of ten users are predicted better than this.
    ninth_decile: Option<f64>,
    /// The ten users who are predicted worst, worst first.
    worst: Vec<OfUser>,
}

/// A rise of the loss that the drift test has found.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rise {
    /// Observations before it.
    before: u64,
    value_before: f64,
    /// Observations from there to the alarm.
    after: u64,
    value_after: f64,
}

/// The drift test (Page–Hinkley) on the loss of the version that serves.
#[derive(Debug, Serialize, ToSchema)]
pub struct Drift {
    /// How far the cumulative sum of the loss stands above its minimum, in standard deviations.
    statistic: f64,
    /// Above this there is drift.
    threshold: f64,
    /// A rise up to this, in standard deviations, is none.
    tolerance: f64,
    /// Observations from which mean and deviation are learnt first.
    warm_up: u64,
    /// Observations tested since the version began to serve or was last trained after.
    observations: u64,
    /// The mean number of observations between false alarms, were losses independent and normally distributed.
    observations_between_false_alarms: f64,
    /// The rise that was found; null where none was.
    rise: Option<Rise>,
}

/// The mean loss of consecutive observations under one version.
#[derive(Debug, Serialize, ToSchema)]
pub struct Point {
    /// Records in the stream's log by its end; events have the same count as their detail `observations`.
    position: u64,
    /// When that was, in Unix milliseconds.
    at: i64,
    version: u64,
    count: u64,
    value: f64,
}

/// How well a model predicts what it then learns: every observation is predicted before it is learnt.
#[derive(Debug, Serialize, ToSchema)]
pub struct Quality {
    #[schema(value_type = String)]
    model: ModelName,
    /// What the model minimises.
    #[schema(value_type = String)]
    loss: Loss,
    /// What every `value` is: `rmse`, or `log_loss` for logistic models.
    #[schema(value_type = String)]
    metric: Metric,
    /// The version that serves.
    version: u64,
    /// Observations that it has predicted since it last began to serve, as far as they are remembered.
    observations: u64,
    /// The loss at its birth; null until it has predicted enough.
    baseline: Option<Baseline>,
    /// Observations that a baseline is taken over.
    baseline_observations: u64,
    /// Over the latest observations that it has predicted.
    windows: Vec<Window>,
    /// Over observations whose own time lies within the last hour.
    hour: Option<Mean>,
    /// The same of the last 24 hours.
    day: Option<Mean>,
    /// Over the latest 1000 observations of the validation pool, whose items the model did not choose.
    pool: Option<Mean>,
    /// The loss on the validation pool at the version's birth; null until it has predicted enough of it.
    pool_baseline: Option<Baseline>,
    /// Observations of the validation pool that are remembered.
    pool_observations: u64,
    users: Users,
    /// The user who was asked for; null where none was or nothing is remembered.
    user: Option<OfUser>,
    drift: Drift,
    /// The loss over the model's life, oldest first, at most 240 points.
    curve: Vec<Point>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get))
}

fn describe(model: ModelName, known: Known, user: Option<(UserId, MeanLoss)>) -> Quality {
    let metric = known.metric;
    let value = |mean: f64| metric.value(mean);
    let mean = |loss: MeanLoss| Mean { value: value(loss.mean), count: loss.count };
    let of_user = |user: UserId, loss: MeanLoss| OfUser { user, value: value(loss.mean), count: loss.count };
    let at_birth = |it: AtBirth| Baseline { value: value(it.mean), count: it.count, at: it.at.0 };
    let settings = known.drift_settings;
    Quality {
        model,
        loss: known.loss,
        metric,
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

/// How well a model predicts what it then learns, overall, by user and on the validation pool, and whether that changes.
#[utoipa::path(get, path = "/v1/models/{model}/quality", tag = "quality", params(("model" = String, Path), Whose),
    responses((status = 200, body = Quality), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn get(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(Whose { user }): Params<Whose>,
) -> Result<Json<Quality>, ApiError> {
    let id = node.manager.model(&model)?.id;
    let known = node.manager.quality(&model)?;
    let user = user.and_then(|user| node.manager.user_quality(id, &user).map(|loss| (user, loss)));
    Ok(Json(describe(model, known, user)))
}

/// Sets the gauges of every model's quality.
///
/// # Errors
/// Where the catalog cannot be read.
#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of observations stay below 2^53")]
pub fn render(node: &Node) -> Result<(), ApiError> {
    for record in node.manager.models()? {
        let model = record.config.name;
        // Deleted just now.
        let Ok(known) = node.manager.quality(&model) else { continue };
        let labels = |over: &str| {
            let labels = [("model", model.to_string()), ("metric", known.metric.name().to_owned())];
            labels.into_iter().chain((!over.is_empty()).then(|| ("over", over.to_owned()))).collect::<Vec<_>>()
        };
        let value = |loss: MeanLoss| known.metric.value(loss.mean);
        for (window, loss) in &known.windows {
            metrics::gauge!("celeris_model_loss", &labels(&window.to_string())).set(value(*loss));
        }
        for (over, loss) in [("hour", known.hour), ("day", known.day), ("pool", known.pool)] {
            if let Some(loss) = loss {
                metrics::gauge!("celeris_model_loss", &labels(over)).set(value(loss));
            }
        }
        if let Some(baseline) = known.baseline {
            metrics::gauge!("celeris_model_loss_at_birth", &labels("")).set(known.metric.value(baseline.mean));
        }
        let model = || [("model", model.to_string())];
        metrics::gauge!("celeris_model_version", &model()).set(known.version.0 as f64);
        metrics::gauge!("celeris_model_drift_statistic", &model()).set(known.drift_statistic);
        metrics::gauge!("celeris_model_drift_threshold", &model()).set(known.drift_settings.threshold);
    }
    Ok(())
}
