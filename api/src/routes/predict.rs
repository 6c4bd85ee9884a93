//! Point predictions.

use axum::extract::State;
use celeris_predictor::{PredictRequest, Predictions};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::ApiError;
use crate::extract::InModel;
use crate::routing::ForUser;
use crate::schema::consistency::Reading;
use crate::schema::context;
use crate::schema::predictions::{PredictBody, PredictReply, Score};
use crate::schema::selections::Answered;
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(predict))
}

/// Checks the number of items of a request.
///
/// # Errors
/// 422 if there are too many.
pub fn check_count(node: &Node, field: &str, count: usize) -> Result<(), ApiError> {
    let max = node.limits.items_per_request;
    if count > max {
        return Err(ApiError::field(field, format!("at most {max} at once, got {count}")));
    }
    Ok(())
}

/// Predicts the score of one or several items for a user.
#[utoipa::path(post, path = "/v1/models/{model}/predict", tag = "serving", request_body = PredictBody,
    params(InModel, Reading),
    responses((status = 200, body = PredictReply)))]
pub async fn predict(
    State(node): State<Node>,
    InModel(model): InModel,
    ForUser { body, stale_ms }: ForUser<PredictBody>,
) -> Result<Answer<PredictReply>, ApiError> {
    let items = match (body.item, body.items) {
        (Some(item), None) => vec![item],
        (None, Some(items)) => items,
        (Some(_), Some(_)) => return Err(ApiError::invalid("give item or items, not both")),
        (None, None) => return Err(ApiError::invalid("missing field `item` or `items`").at("items")),
    };
    check_count(&node, "items", items.len())?;
    let request = PredictRequest {
        model,
        user: body.user,
        items,
        min_epoch: body.min_epoch,
        segment: body.segment,
        context: context::given(body.context),
    };
    let (user, quick) = (request.user.clone(), node.predictor.is_quick(&request));
    let predicting = node.clone();
    let predict = async move { predicting.predictor.predict(&request).await };
    let predicted = if quick { predict.await } else { node.compute.run(predict).await? };
    let Predictions { version, loss, user_epoch, cold, scores, missing, selected } = predicted?;
    let Answered { arm, arm_propensity, arms, confidence } = selected.into();
    let mut scores: Vec<Score> = scores.into_iter().map(|scored| Score::new(scored, loss)).collect();
    for (score, confidence) in scores.iter_mut().zip(confidence) {
        score.confidence = Some(confidence);
    }
    let (version, user_epoch) = (version.0, user_epoch.0);
    Ok(Answer(PredictReply { user, version, user_epoch, cold, scores, missing, arm, arm_propensity, arms, stale_ms }))
}
