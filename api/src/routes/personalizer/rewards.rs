//! Rewards and activations of events.

use std::collections::HashSet;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use celeris_model::{EventId, HeldReward, ModelId, ModelName, Observation, ObservationId, RankingEvent};
use celeris_predictor::PredictorError;
use utoipa::IntoParams;

use crate::asking::Asking;
use crate::error::ApiError;
use crate::extract::{Body, OfPath};
use crate::routing::{WroteNothing, find_event};
use crate::schema::ids::{Id, Name};
use crate::schema::personalizer::{RewardBody, RewardSlotsBody, check_value};
use crate::state::Node;

/// The model and event of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct OfEvent {
    /// The name of the model.
    #[param(value_type = Name)]
    model: ModelName,
    /// The id of the event.
    #[param(value_type = Id)]
    event_id: EventId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfEvent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let OfPath { model, rest } = OfPath::from_request_parts(parts, state).await?;
        Ok(Self { model, event_id: EventId::new(rest)? })
    }
}

/// Learns from the reward of an event, in the form of Azure Personalizer. The first reward of an event counts.
#[utoipa::path(post, path = "/v1/models/{model}/personalizer/events/{event_id}/reward", tag = "personalizer",
    request_body = RewardBody, params(OfEvent), responses((status = 204, description = "The reward is learnt, or there was one")))]
pub(super) async fn personalizer_reward(
    State(node): State<Node>,
    of: OfEvent,
    asking: Asking,
    Body(body): Body<RewardBody>,
) -> Result<Response, ApiError> {
    asking.take_observation(&node)?;
    let label = check_value("value", body.value)?;
    let event = Event::find(&node, of).await?;
    let [slot] = &*event.event.slots else { return Err(event.has_slots()) };
    if !slot.name.is_empty() {
        return Err(event.has_slots());
    }
    event.reward(vec![HeldReward { slot: 0, label }]).await
}

/// Learns from the rewards of slots, in the form of Azure Personalizer. The first reward of a slot counts.
#[utoipa::path(post, path = "/v1/models/{model}/personalizer/multislot/events/{event_id}/reward", tag = "personalizer",
    request_body = RewardSlotsBody, params(OfEvent), responses((status = 204, description = "The rewards are learnt, or there were some")))]
pub(super) async fn personalizer_reward_slots(
    State(node): State<Node>,
    of: OfEvent,
    asking: Asking,
    Body(body): Body<RewardSlotsBody>,
) -> Result<Response, ApiError> {
    asking.take_observation(&node)?;
    let event = Event::find(&node, of).await?;
    let mut rewards = Vec::with_capacity(body.reward.len());
    let mut rewarded = HashSet::new();
    for (index, of_slot) in body.reward.iter().enumerate() {
        let label = check_value(&format!("reward[{index}].value"), of_slot.value)?;
        let wrong = |problem: &str| {
            ApiError::field(&format!("reward[{index}].slotId"), format!("{} {problem}", of_slot.slot_id))
        };
        let slot = event.event.slot_of(of_slot.slot_id.as_str()).ok_or_else(|| wrong("is no slot of the event"))?;
        if event.event.chosen(slot).is_none() {
            return Err(wrong("has no action, and so no reward"));
        }
        if !rewarded.insert(slot) {
            return Err(wrong("is given twice"));
        }
        rewards.push(HeldReward { slot, label });
    }
    if rewards.is_empty() {
        return Err(ApiError::field("reward", "must have the reward of a slot"));
    }
    event.reward(rewards).await
}

/// Has an event count that was ranked with `deferActivation`, and the rewards that it has had since; in the form of Azure
/// Personalizer.
#[utoipa::path(post, path = "/v1/models/{model}/personalizer/events/{event_id}/activate", tag = "personalizer",
    params(OfEvent), responses((status = 204, description = "The event is active")))]
pub(super) async fn personalizer_activate(State(node): State<Node>, of: OfEvent) -> Result<Response, ApiError> {
    Event::find(&node, of).await?.activate().await
}

/// Has an event of several slots count, as one of one slot.
#[utoipa::path(post, path = "/v1/models/{model}/personalizer/multislot/events/{event_id}/activate",
    tag = "personalizer", params(OfEvent), responses((status = 204, description = "The event is active")))]
pub(super) async fn personalizer_activate_slots(State(node): State<Node>, of: OfEvent) -> Result<Response, ApiError> {
    Event::find(&node, of).await?.activate().await
}

/// An event that this node has.
struct Event<'n> {
    node: &'n Node,
    model: ModelName,
    model_id: ModelId,
    id: EventId,
    event: RankingEvent,
}

impl<'n> Event<'n> {
    /// # Errors
    /// 404 if there is none.
    async fn find(node: &'n Node, OfEvent { model, event_id: id }: OfEvent) -> Result<Self, ApiError> {
        let model_id = node.predictor.models().decides_as(&model)?;
        let unknown = || {
            ApiError::not_found(format!(
                "no event {id} is known: it was not ranked here, or is older than decisions.retention"
            ))
        };
        let decisions = node.storage.decisions();
        if let Some(event) = decisions.event(model_id, &id)? {
            return Ok(Self { node, model, model_id, id, event });
        }
        let event = find_event(node, model_id, &id).await?.ok_or_else(unknown)?;
        if let Some(cluster) = &node.cluster {
            // The user has moved here since.
            for decision in event.slots.iter().filter_map(|slot| slot.decision.as_ref()) {
                cluster.fetch_decision(&node.storage, (model_id, decision)).await?;
            }
            decisions.add_event(model_id, &id, &event)?;
        }
        Ok(Self { node, model, model_id, id, event })
    }

    fn has_slots(&self) -> ApiError {
        ApiError::conflict(format!("event {} has slots; reward them at multislot/events/{}/reward", self.id, self.id))
    }

    /// Learns from the rewards, or keeps them until the event is activated.
    async fn reward(&self, rewards: Vec<HeldReward>) -> Result<Response, ApiError> {
        // What cannot be learnt later is refused now.
        let loss = self.node.predictor.models().active(&self.model)?.learning.loss();
        rewards.iter().try_for_each(|reward| loss.check_label(reward.label))?;
        let is_active = self.event.is_active
            || self
                .change(|event| {
                    if !event.is_active {
                        rewards.iter().for_each(|reward| event.hold(*reward));
                    }
                })?
                .is_active;
        if is_active { self.learn(&rewards).await } else { Ok(StatusCode::NO_CONTENT.into_response()) }
    }

    async fn activate(&self) -> Result<Response, ApiError> {
        let event = self.change(|event| event.is_active = true)?;
        self.learn(&event.held).await
    }

    fn change(&self, change: impl FnOnce(&mut RankingEvent)) -> Result<RankingEvent, ApiError> {
        let changed = self.node.storage.decisions().change_event(self.model_id, &self.id, change)?;
        changed.ok_or_else(|| ApiError::not_found(format!("event {} was deleted meanwhile", self.id)))
    }

    /// Learns from rewards. The id of an observation is that of its decision, so each slot is rewarded once, and a request
    /// that is sent again changes nothing.
    async fn learn(&self, rewards: &[HeldReward]) -> Result<Response, ApiError> {
        let mut wrote_nothing = true;
        for HeldReward { slot, label } in rewards {
            let of_slot = self.event.slots.get(*slot as usize).and_then(|slot| slot.decision.as_ref());
            let (Some(decision), Some(item)) = (of_slot, self.event.chosen(*slot)) else { continue };
            let observation = Observation {
                user: self.event.user.clone(),
                item: item.clone(),
                label: *label,
                weight: 1.0,
                timestamp: None,
                observation_id: Some(ObservationId::new(format!("reward-{decision}"))?),
                feedback: None,
                decision: Some(decision.clone()),
                context: None,
            };
            match self.node.predictor.ingest().observe(&self.model, observation).await {
                Ok(observed) => wrote_nothing &= observed.duplicate,
                // Another reward was first.
                Err(PredictorError::ObservationConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let response = WroteNothing::mark(StatusCode::NO_CONTENT, wrote_nothing && !rewards.is_empty());
        Ok(response)
    }
}
