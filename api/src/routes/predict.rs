//! Point predictions.

use axum::extract::State;
use celeris_model::{ItemId, Loss, ModelName, UserEpoch, UserId};
use celeris_predictor::{PredictRequest, Predictions, Scored};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::error::{ApiError, Problem};
use crate::extract::{Body, InModel};
use crate::routes::selections::{Answered, ArmWeight};
use crate::state::Node;

/// Which items to score for which user: `item` or `items`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictBody {
    #[schema(value_type = String)]
    user: UserId,
    /// One item.
    #[schema(value_type = Option<String>)]
    item: Option<ItemId>,
    /// Several items.
    #[schema(value_type = Option<Vec<String>>)]
    items: Option<Vec<ItemId>>,
    /// The answer must reflect at least that many of the user's events.
    #[schema(value_type = Option<u64>)]
    min_epoch: Option<UserEpoch>,
    /// Of a selection that has a state for each context: the context.
    #[schema(value_type = Option<String>)]
    context: Option<ModelName>,
}

/// One score.
#[derive(Debug, Serialize, ToSchema)]
pub struct Score {
    #[schema(value_type = String)]
    item: ItemId,
    /// The expected label; of a model with logistic loss, its log-odds.
    score: f32,
    /// How unsure the score is.
    std_error: f32,
    /// How far a label may fall from what is expected.
    label_std: f32,
    /// Of a model with logistic loss: the probability of the label 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f32>,
    /// Whether anything is known of the item; else it is scored as an average one.
    known: bool,
    /// Of a selection that combines: the share of its arms that agree with the score.
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<f32>,
}

impl Score {
    /// Any score of `item`.
    fn example(item: ItemId) -> Self {
        let (score, std_error, label_std) = (3.870_592_7, 0.271_828_2, 0.757_872_1);
        Self { item, score, std_error, label_std, probability: None, known: true, confidence: None }
    }

    fn new(scored: Scored, loss: Loss) -> Self {
        let Scored { item, estimate, known } = scored;
        Self {
            item,
            score: estimate.score,
            std_error: estimate.std_error,
            label_std: estimate.label_std,
            probability: loss.probability(&estimate),
            known,
            confidence: None,
        }
    }
}

/// The scores, in the order asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct PredictReply {
    #[schema(value_type = String)]
    user: UserId,
    /// The version that scored; where several arms of a selection did, that of the one that weighs most.
    version: u64,
    user_epoch: u64,
    /// Whether nothing is known of the user, so that the prior answers.
    cold: bool,
    scores: Vec<Score>,
    /// Of a selection that chooses: the model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    arm: Option<ModelName>,
    /// The probability with which it was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    arm_propensity: Option<f32>,
    /// Of a selection that combines: the models that answered together.
    #[serde(skip_serializing_if = "Option::is_none")]
    arms: Option<Vec<ArmWeight>>,
}

impl PredictReply {
    /// An answer of the right shape, without any work: what the benches hold a node against.
    pub fn example(body: PredictBody) -> Self {
        let items = body.items.unwrap_or_default().into_iter().chain(body.item);
        let scores = items.map(Score::example).collect();
        Self {
            user: body.user,
            version: 2,
            user_epoch: 20,
            cold: false,
            scores,
            arm: None,
            arm_propensity: None,
            arms: None,
        }
    }
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(predict))
}

/// Refuses what a request may not ask for at once.
///
/// # Errors
/// 422 where there are too many.
pub fn check_count(node: &Node, field: &str, count: usize) -> Result<(), ApiError> {
    let max = node.limits.items_per_request;
    if count > max {
        return Err(ApiError::invalid(format!("{field}: at most {max} at once, got {count}")));
    }
    Ok(())
}

/// Scores one item or several for a user.
#[utoipa::path(post, path = "/v1/models/{model}/predict", tag = "serving", request_body = PredictBody,
    params(("model" = String, Path)),
    responses((status = 200, body = PredictReply), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem)))]
pub async fn predict(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(body): Body<PredictBody>,
) -> Result<Answer<PredictReply>, ApiError> {
    let items = match (body.item, body.items) {
        (Some(item), None) => vec![item],
        (None, Some(items)) => items,
        (Some(_), Some(_)) => return Err(ApiError::invalid("give item or items, not both")),
        (None, None) => return Err(ApiError::invalid("missing field `item` or `items`")),
    };
    check_count(&node, "items", items.len())?;
    let request = PredictRequest { model, user: body.user, items, min_epoch: body.min_epoch };
    let predicted = node.predictor.predict_in(&request, body.context.as_ref()).await?;
    let Predictions { version, loss, user_epoch, cold, scores, selected } = predicted;
    let Answered { arm, arm_propensity, arms, confidence } = selected.into();
    let mut scores: Vec<Score> = scores.into_iter().map(|scored| Score::new(scored, loss)).collect();
    for (score, confidence) in scores.iter_mut().zip(confidence) {
        score.confidence = Some(confidence);
    }
    let (user, version, user_epoch) = (request.user, version.0, user_epoch.0);
    Ok(Answer(PredictReply { user, version, user_epoch, cold, scores, arm, arm_propensity, arms }))
}
