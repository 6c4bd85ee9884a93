//! Requests and replies in the form of Azure Personalizer.

use std::collections::HashSet;

use celeris_model::{EventId, ItemId, RankingEvent};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::ids::{Id, IdOrInteger};
use crate::error::ApiError;
use crate::personalizer::Circumstances;

/// The most actions of a request.
pub const ACTIONS_MAX: usize = 256;

/// The most slots of a request, each of which is a ranking.
pub const SLOTS_MAX: usize = 50;

/// Features as Personalizer has them.
type Features = Vec<Map<String, Value>>;

/// The actions to choose from, and the circumstances.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = PersonalizerRankBody)]
pub struct RankBody {
    /// Features of the context: objects of features, or of namespaces with features. They become fields of the context, of
    /// which the configuration may have some name the user.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub context_features: Features,
    /// The actions, each of which becomes an item.
    #[schema(min_items = 1, max_items = 256)]
    pub actions: Vec<Action>,
    /// Ids of actions that are not to be chosen.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<IdOrInteger>>)]
    pub excluded_actions: Vec<ItemId>,
    /// The id by which the event is rewarded; the node makes one by default. The same request with the same id has the
    /// same answer.
    #[schema(value_type = Option<IdOrInteger>)]
    pub event_id: Option<EventId>,
    /// Whether the event counts only once it is activated.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<bool>)]
    pub defer_activation: bool,
    /// What the node makes of the features.
    #[serde(skip)]
    #[schema(ignore)]
    pub circumstances: Circumstances,
}

/// The same for several slots.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = PersonalizerRankSlotsBody)]
pub struct RankSlotsBody {
    /// As of a request with one slot.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub context_features: Features,
    /// The actions, each of which becomes an item; none is chosen for two slots.
    #[schema(min_items = 1, max_items = 256)]
    pub actions: Vec<Action>,
    /// The slots, in the order in which they are filled; at most one for each action.
    #[schema(min_items = 1, max_items = 50)]
    pub slots: Vec<Slot>,
    /// As of a request with one slot.
    #[schema(value_type = Option<IdOrInteger>)]
    pub event_id: Option<EventId>,
    /// As of a request with one slot.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<bool>)]
    pub defer_activation: bool,
    /// What the node makes of the features.
    #[serde(skip)]
    #[schema(ignore)]
    pub circumstances: Circumstances,
}

/// Something to choose.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PersonalizerAction)]
pub struct Action {
    /// The id, which is that of the item.
    #[schema(value_type = IdOrInteger)]
    pub id: ItemId,
    /// Features of the action, which become attributes of the item.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub features: Features,
}

/// A place for which an action is chosen.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = PersonalizerSlot)]
pub struct Slot {
    /// The id of the slot, by which it is rewarded.
    #[schema(value_type = IdOrInteger)]
    pub id: EventId,
    /// Features of the slot, which become fields of the context, after `slot.`.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub features: Features,
    /// Ids of actions that are not to be chosen for the slot.
    #[serde(default, deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<IdOrInteger>>)]
    pub excluded_actions: Vec<ItemId>,
    /// The action that the application would show without a choice; it is checked and not used.
    #[schema(value_type = IdOrInteger)]
    pub baseline_action: ItemId,
}

/// A field that is null is as one that is not given.
fn or_default<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Checks the ids and the number of actions.
fn check_actions(actions: &[Action]) -> Result<HashSet<&ItemId>, ApiError> {
    if actions.is_empty() || actions.len() > ACTIONS_MAX {
        return Err(ApiError::field("actions", format!("must be from 1 to {ACTIONS_MAX}, got {}", actions.len())));
    }
    let mut ids = HashSet::new();
    for (index, action) in actions.iter().enumerate() {
        if !ids.insert(&action.id) {
            return Err(ApiError::field(&format!("actions[{index}].id"), format!("{} is given twice", action.id)));
        }
    }
    Ok(ids)
}

impl RankBody {
    /// # Errors
    /// 422 with the name of the field.
    pub fn check(&self) -> Result<(), ApiError> {
        let ids = check_actions(&self.actions)?;
        let excluded: HashSet<&ItemId> = self.excluded_actions.iter().collect();
        if ids.is_subset(&excluded) {
            return Err(ApiError::field("excludedActions", "all actions are excluded; leave one to choose"));
        }
        Ok(())
    }
}

impl RankSlotsBody {
    /// # Errors
    /// 422 with the name of the field.
    pub fn check(&self) -> Result<(), ApiError> {
        let ids = check_actions(&self.actions)?;
        let most = self.actions.len().min(SLOTS_MAX);
        if self.slots.is_empty() || self.slots.len() > most {
            let slots = self.slots.len();
            let problem =
                format!("must be from 1 to {most}: one for each action, and at most {SLOTS_MAX}; got {slots}");
            return Err(ApiError::field("slots", problem));
        }
        let (mut names, mut baselines) = (HashSet::new(), HashSet::new());
        for (index, slot) in self.slots.iter().enumerate() {
            let wrong =
                |field: &str, problem: String| Err(ApiError::field(&format!("slots[{index}].{field}"), problem));
            let baseline = &slot.baseline_action;
            if !names.insert(&slot.id) {
                return wrong("id", format!("{} is given twice", slot.id));
            }
            if !ids.contains(baseline) {
                return wrong("baselineAction", format!("{baseline} is none of the actions"));
            }
            if !baselines.insert(baseline) {
                return wrong("baselineAction", format!("{baseline} is that of another slot"));
            }
            if slot.excluded_actions.contains(baseline) {
                return wrong("baselineAction", format!("{baseline} is among the excludedActions of its slot"));
            }
        }
        Ok(())
    }
}

/// The chosen action, and the probabilities of all.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PersonalizerRankReply)]
pub struct RankReply {
    /// The chosen action first, then the others by their scores, then those that were excluded.
    pub ranking: Vec<RankedAction>,
    #[schema(value_type = Id)]
    pub event_id: EventId,
    /// The action to show.
    #[schema(value_type = Id)]
    pub reward_action_id: ItemId,
}

/// An action with its probability.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PersonalizerRankedAction)]
pub struct RankedAction {
    #[schema(value_type = Id)]
    pub id: ItemId,
    /// The probability with which the action was to be chosen; 0 if it was excluded.
    #[schema(minimum = 0, maximum = 1)]
    pub probability: f32,
}

impl RankReply {
    /// `None` for an event with several slots.
    pub fn new(event_id: EventId, event: &RankingEvent, excluded: &[ItemId]) -> Option<Self> {
        let [slot] = &*event.slots else { return None };
        let reward_action_id = slot.chances.first().filter(|_| slot.name.is_empty())?.item.clone();
        let ranked = slot.chances.iter().map(|chance| (chance.item.clone(), chance.probability));
        let excluded = excluded.iter().map(|item| (item.clone(), 0.0));
        let ranking = ranked.chain(excluded).map(|(id, probability)| RankedAction { id, probability }).collect();
        Some(Self { ranking, event_id, reward_action_id })
    }
}

/// The actions that were chosen for the slots.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PersonalizerRankSlotsReply)]
pub struct RankSlotsReply {
    pub slots: Vec<FilledSlot>,
    #[schema(value_type = Id)]
    pub event_id: EventId,
}

/// A slot with its action.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PersonalizerFilledSlot)]
pub struct FilledSlot {
    #[schema(value_type = Id)]
    pub id: String,
    /// The action to show; absent if the slots before and `excludedActions` have left none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Id>)]
    pub reward_action_id: Option<ItemId>,
}

impl RankSlotsReply {
    pub fn new(event_id: EventId, event: &RankingEvent) -> Self {
        let filled = |(slot, of): (u32, &celeris_model::EventSlot)| FilledSlot {
            id: of.name.clone(),
            reward_action_id: event.chosen(slot).cloned(),
        };
        Self { slots: (0..).zip(&event.slots).map(filled).collect(), event_id }
    }
}

/// The reward of an event.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PersonalizerRewardBody)]
pub struct RewardBody {
    /// The label to learn.
    #[schema(minimum = -1, maximum = 1)]
    pub value: f32,
}

/// The rewards of slots.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PersonalizerRewardSlotsBody)]
pub struct RewardSlotsBody {
    #[schema(min_items = 1, max_items = 50)]
    pub reward: Vec<SlotReward>,
}

/// The reward of a slot.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = PersonalizerSlotReward)]
pub struct SlotReward {
    #[schema(value_type = IdOrInteger)]
    pub slot_id: EventId,
    /// The label to learn.
    #[schema(minimum = -1, maximum = 1)]
    pub value: f32,
}

/// Checks the value of a reward.
///
/// # Errors
/// 422 with the name of the field.
pub fn check_value(field: &str, value: f32) -> Result<f32, ApiError> {
    if (-1.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(ApiError::field(field, format!("must be from -1 to 1, got {value}")))
    }
}
