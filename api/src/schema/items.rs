//! Items: changes by callers, and the state of items.
//!
//! `attributes` are free-form: callers choose the names, and the type of each value determines
//! which filters apply to it.

use celeris_model::{self as model, ItemId};
use celeris_predictor::{Effective as TakesEffect, ItemChange, ItemEdit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::ids::{Id, IdOrInteger};
use crate::error::ApiError;
use crate::line_replies::{LineCounts, LinesSummary, RejectedLine};

/// Features and attributes of an item; absent fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemBody {
    /// Feature vector of the model's dimension; the last entry must be 1.
    pub features: Option<Vec<f32>>,
    /// Attributes by name; they replace all previous attributes.
    pub attributes: Option<Map<String, Value>>,
}

/// When a change of an item takes effect.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemChanged {
    #[schema(value_type = Id)]
    pub item: ItemId,
    pub effective: Effective,
}

/// A line of an item stream: features and attributes of an item, or its deletion.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemLine {
    /// The item to change or delete.
    #[schema(value_type = IdOrInteger)]
    pub item: ItemId,
    /// Feature vector of the model's dimension; the last entry must be 1.
    pub features: Option<Vec<f32>>,
    /// Attributes by name; they replace all previous attributes.
    pub attributes: Option<Map<String, Value>>,
    /// Deletes the item; the line must have no other field.
    #[serde(default)]
    pub delete: bool,
}

impl ItemLine {
    /// # Errors
    /// 422 if the line contains no change, or both a change and a deletion.
    pub fn edit(self) -> Result<(ItemId, ItemEdit), ApiError> {
        let change = change(self.features, self.attributes);
        match (self.delete, is_something(&change)) {
            (true, Ok(())) => Err(ApiError::field("delete", "one line cannot both change and delete an item")),
            (true, Err(_)) => Ok((self.item, ItemEdit::Delete)),
            (false, something) => something.map(|()| (self.item, ItemEdit::Put(change))),
        }
    }
}

/// A change to these features and attributes; an attribute that is null is none.
pub fn change(features: Option<Vec<f32>>, mut attributes: Option<Map<String, Value>>) -> ItemChange {
    attributes.iter_mut().for_each(|attributes| attributes.retain(|_, value| !value.is_null()));
    ItemChange { features, attributes }
}

/// Checks that a change has features or attributes.
///
/// # Errors
/// 422 if it has neither.
pub fn is_something(change: &ItemChange) -> Result<(), ApiError> {
    if change.features.is_none() && change.attributes.is_none() {
        return Err(ApiError::invalid("missing field `features` or `attributes`"));
    }
    Ok(())
}

/// The result of a line of an item stream.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemEdited {
    #[schema(value_type = Id)]
    pub item: ItemId,
    /// When the change takes effect; absent for a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub effective: Option<Effective>,
    /// True if the item was deleted; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deleted: Option<bool>,
}

/// A line of the reply to many items: of an item that was changed, of a rejected line, or the last
/// one, of all.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ItemEditedLine {
    Edited(ItemEdited),
    Rejected(RejectedLine),
    Summary(LinesSummary),
}

/// The reply to an array of items.
#[derive(ToSchema)]
pub struct ItemsEdited {
    /// One for each item, in order.
    pub results: Vec<ItemResult>,
    /// The counts of all.
    pub summary: LineCounts,
}

/// The result of one item of an array.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ItemResult {
    Edited(ItemEdited),
    Rejected(RejectedLine),
}

/// An item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Item {
    #[schema(value_type = Id)]
    pub item: ItemId,
    /// Whether the active version was trained on it.
    pub trained: bool,
    /// The source of the features.
    pub source: FeatureSource,
    /// The features with which the active version scores the item.
    pub features: Vec<f32>,
    /// The expected label for a user with zero weights.
    pub offset: f32,
    /// The features given by a caller.
    pub given_features: Option<Vec<f32>>,
    /// The attributes given by a caller; null if there are none.
    pub attributes: Option<Map<String, Value>>,
}

/// One item of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemSummary {
    #[schema(value_type = Id)]
    pub item: ItemId,
    /// The attributes given by a caller; empty if the item was not described.
    pub attributes: Map<String, Value>,
    /// Whether the active version was trained on it.
    pub trained: bool,
}

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ItemPage)]
pub struct Items {
    pub items: Vec<ItemSummary>,
    /// The value of `after` for the next page; null on the last page.
    #[schema(value_type = Option<Id>)]
    pub next: Option<ItemId>,
    /// The number of items on all pages.
    pub total: usize,
}

mirror_enum! {
    /// When a change of an item takes effect.
    Effective = TakesEffect {
        Now,
        /// With the next version, because the active version was trained with other features of the
        /// item.
        NextVersion,
    }
}

mirror_enum! {
    /// The source of the features with which a version scores an item.
    FeatureSource = model::FeatureOrigin {
        /// Trained: from the version's table.
        Trained,
        /// Given by a caller.
        Given,
        /// Computed from the item's attributes.
        Attributes,
        /// The version's default features for an item of which nothing is known.
        StandIn,
    }
}
