//! Prediction quality of models.

use std::time::SystemTime;

use axum::Json;
use axum::extract::State;
use celeris_manager::{ManagerError, MeanLoss};
use celeris_model::UserId;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{InModel, Params};
use crate::schema::ids::Id;
use crate::schema::quality::{Quality, describe};
use crate::state::Node;

/// Query parameters of a model's quality.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QualityParams {
    /// A user whose own loss is included in the reply.
    #[param(value_type = Option<Id>)]
    user: Option<UserId>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_quality))
}

/// Returns the prediction quality of a model.
///
/// Every observation is predicted before it is learnt. The reply has the loss overall, by user and
/// on the validation pool, and whether it drifts.
#[utoipa::path(get, path = "/v1/models/{model}/quality", tag = "quality", params(InModel, QualityParams),
    responses((status = 200, body = Quality)))]
async fn get_quality(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(QualityParams { user }): Params<QualityParams>,
) -> Result<Json<Quality>, ApiError> {
    let id = node.manager.registry().model(&model)?.id;
    let monitoring = node.manager.monitoring();
    let Some(known) = monitoring.quality(id, SystemTime::now().into()) else {
        return Err(ManagerError::UnknownModel { model }.into());
    };
    let user = user.and_then(|user| monitoring.user_loss(id, &user).map(|loss| (user, loss)));
    Ok(Json(describe(model, known, user)))
}

/// Sets the quality gauges of every model.
///
/// # Errors
/// If the registry cannot be read.
#[expect(clippy::cast_precision_loss, reason = "gauges are f64; counts of observations stay below 2^53")]
pub fn render(node: &Node) -> Result<(), ApiError> {
    for record in node.manager.registry().models()? {
        let model = record.config.name;
        let now = SystemTime::now().into();
        // Deleted meanwhile.
        let Some(known) = node.manager.monitoring().quality(record.id, now) else { continue };
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
            metrics::gauge!("celeris_model_loss_baseline", &labels("")).set(known.metric.value(baseline.mean));
        }
        let model = || [("model", model.to_string())];
        metrics::gauge!("celeris_model_version", &model()).set(known.version.0 as f64);
        metrics::gauge!("celeris_model_drift_statistic", &model()).set(known.drift_statistic);
        metrics::gauge!("celeris_model_drift_threshold", &model()).set(known.drift_settings.threshold);
    }
    Ok(())
}
