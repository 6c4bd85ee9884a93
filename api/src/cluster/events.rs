//! What the nodes of a cluster ask each other about events of clients and the actions in them.

use celeris_model::{EventId, ItemId, ModelName};
use celeris_predictor::{ItemChange, ItemEdit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a node looks an event up for another one.
pub const PATH: &str = "/v1/cluster/ranking-events";

/// Where the coordinator describes actions for another node.
pub const ACTIONS_PATH: &str = "/v1/cluster/actions";

/// The event that a node looks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedEvent {
    pub model: u64,
    pub event: EventId,
}

/// An action that becomes an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionItem {
    pub item: ItemId,
    pub features: Option<Vec<f32>>,
    pub attributes: Option<Map<String, Value>>,
}

impl ActionItem {
    #[must_use]
    pub fn edit(self) -> (ItemId, ItemEdit) {
        (self.item, ItemEdit::Put(ItemChange { features: self.features, attributes: self.attributes }))
    }
}

/// The actions that a node wants to have described.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DescribedActions {
    pub model: ModelName,
    pub actions: Vec<ActionItem>,
}
