//! The settings of a model as Personalizer names them.

use axum::Json;
use axum::extract::State;
use celeris_bandits::{EpsilonGreedy, PolicySpec};
use celeris_manager::{DefaultReward, ModelConfig, ModelRecord};
use jiff::{SignedDuration, Span, SpanRelativeTo};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::extract::{Body, InModel};
use crate::schema::personalizer::check_value;
use crate::state::Node;

/// The first reward of an event counts.
const EARLIEST: &str = "earliest";

/// Users learn at each reward.
const AT_ONCE: &str = "PT0S";

/// The model learns from what its own choices lead to.
const ONLINE: &str = "Online";

/// Settings of a model in the form of Azure Personalizer.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PersonalizerService)]
pub(super) struct Service {
    /// How long an event waits for a reward, as an ISO 8601 duration; null if it gets no default reward.
    #[schema(example = "PT10M")]
    reward_wait_time: Option<String>,
    /// The reward of an event that has none by then.
    default_reward: Option<f32>,
    /// `earliest`: the first reward of an event counts.
    reward_aggregation: String,
    /// The share of events that are chosen at random; null if the policy of the model has no such share.
    exploration_percentage: Option<f64>,
    /// `PT0S`: rewards are learnt at once.
    model_export_frequency: String,
    /// Always false.
    log_mirror_enabled: bool,
    /// For how many days events can be rewarded.
    log_retention_days: u64,
    /// `Online`: there is no apprentice mode.
    learning_mode: String,
}

/// The settings to change; absent ones stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = PersonalizerServiceChange)]
pub(super) struct ServiceChange {
    /// An ISO 8601 duration from 1 second to 30 days.
    #[schema(example = "PT10M")]
    reward_wait_time: Option<String>,
    /// The label of an event without a reward.
    #[schema(minimum = -1, maximum = 1)]
    default_reward: Option<f32>,
    /// Cannot be changed.
    reward_aggregation: Option<String>,
    /// The share of events that are chosen at random: the model gets the policy `epsilon_greedy` with it.
    #[schema(minimum = 0, maximum = 1)]
    exploration_percentage: Option<f64>,
    /// Cannot be changed.
    model_export_frequency: Option<String>,
    /// Cannot be changed.
    log_mirror_enabled: Option<bool>,
    /// Cannot be changed.
    log_retention_days: Option<u64>,
    /// Cannot be changed.
    learning_mode: Option<String>,
    /// Cannot be changed from false.
    is_auto_optimization_enabled: Option<bool>,
}

fn describe(node: &Node, record: &ModelRecord) -> Service {
    let ModelConfig { default_reward, policy, .. } = &record.config;
    let retention = node.storage.decisions().retention();
    Service {
        reward_wait_time: default_reward.map(|reward| duration_text(reward.after_seconds)),
        default_reward: default_reward.map(|reward| reward.label),
        reward_aggregation: EARLIEST.to_owned(),
        exploration_percentage: match policy {
            PolicySpec::EpsilonGreedy(policy) => Some(policy.epsilon()),
            PolicySpec::Greedy(_) => Some(0.0),
            _ => None,
        },
        model_export_frequency: AT_ONCE.to_owned(),
        log_mirror_enabled: false,
        log_retention_days: retention.as_secs() / (24 * 3600),
        learning_mode: ONLINE.to_owned(),
    }
}

fn duration_text(seconds: f64) -> String {
    SignedDuration::try_from_secs_f64(seconds).map(|duration| duration.to_string()).unwrap_or_default()
}

fn seconds_of(text: &str) -> Result<f64, ApiError> {
    let wrong =
        |error: jiff::Error| ApiError::field("rewardWaitTime", format!("expected a duration such as PT10M: {error}"));
    let span: Span = text.parse().map_err(wrong)?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(wrong)?;
    Ok(duration.as_secs_f64())
}

/// Fails if a setting is to be changed that cannot be.
fn check_same<T: PartialEq + std::fmt::Debug>(field: &str, asked: Option<&T>, is: &T) -> Result<(), ApiError> {
    match asked {
        Some(asked) if asked != is => Err(ApiError::field(field, format!("is {is:?} and cannot be changed here"))),
        _ => Ok(()),
    }
}

impl ServiceChange {
    fn check(&self, now: &Service) -> Result<(), ApiError> {
        check_same("rewardAggregation", self.reward_aggregation.as_ref(), &now.reward_aggregation)?;
        check_same("modelExportFrequency", self.model_export_frequency.as_ref(), &now.model_export_frequency)?;
        check_same("logMirrorEnabled", self.log_mirror_enabled.as_ref(), &now.log_mirror_enabled)?;
        check_same("logRetentionDays", self.log_retention_days.as_ref(), &now.log_retention_days)?;
        check_same("learningMode", self.learning_mode.as_ref(), &now.learning_mode)?;
        check_same("isAutoOptimizationEnabled", self.is_auto_optimization_enabled.as_ref(), &false)
    }

    /// The default reward afterwards.
    fn reward(&self, now: Option<DefaultReward>) -> Result<Option<DefaultReward>, ApiError> {
        let after_seconds = self.reward_wait_time.as_deref().map(seconds_of).transpose()?;
        if after_seconds.is_none() && self.default_reward.is_none() {
            return Ok(now);
        }
        // What is read can be written, also a label that was set by another call.
        if let Some(label) = self.default_reward
            && now.is_none_or(|now| now.label != label)
        {
            check_value("defaultReward", label)?;
        }
        let missing =
            |field: &str, other: &str| ApiError::field(field, format!("is needed with {other}: the model has none"));
        let wait = after_seconds.or(now.map(|reward| reward.after_seconds));
        Ok(Some(DefaultReward {
            after_seconds: wait.ok_or_else(|| missing("rewardWaitTime", "defaultReward"))?,
            label: (self.default_reward.or(now.map(|reward| reward.label)))
                .ok_or_else(|| missing("defaultReward", "rewardWaitTime"))?,
            slots: now.map_or(1, |reward| reward.slots),
        }))
    }
}

/// Returns settings of a model in the form of Azure Personalizer.
#[utoipa::path(get, path = "/v1/models/{model}/personalizer/configurations/service", tag = "personalizer",
    params(InModel), responses((status = 200, body = Service)))]
pub(super) async fn get_personalizer_service(
    State(node): State<Node>,
    InModel(model): InModel,
) -> Result<Json<Service>, ApiError> {
    let record = node.manager.registry().model(&model)?;
    Ok(Json(describe(&node, &record)))
}

/// Changes the default reward and the exploration of a model, in the form of Azure Personalizer. They take effect
/// immediately.
#[utoipa::path(put, path = "/v1/models/{model}/personalizer/configurations/service", tag = "personalizer",
    params(InModel), request_body = ServiceChange, responses((status = 200, body = Service)))]
pub(super) async fn put_personalizer_service(
    State(node): State<Node>,
    InModel(model): InModel,
    Body(change): Body<ServiceChange>,
) -> Result<Json<Service>, ApiError> {
    let now = node.manager.registry().model(&model)?;
    change.check(&describe(&node, &now))?;
    let reward = change.reward(now.config.default_reward)?;
    let epsilon = change.exploration_percentage.map(EpsilonGreedy::new).transpose();
    let epsilon = epsilon.map_err(|error| ApiError::field("explorationPercentage", error))?;
    let record = node.manager.configure(&model, |config| {
        config.default_reward = reward;
        if let Some(epsilon) = epsilon {
            config.policy = PolicySpec::EpsilonGreedy(epsilon);
        }
        Ok(())
    })?;
    Ok(Json(describe(&node, &record)))
}
