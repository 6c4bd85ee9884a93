//! Items: what is said of them, and what is known of them.
//!
//! `attributes` are free-form: callers choose the names, and each value's own type says how it can be filtered by.

use celeris_model::{self as model, ItemId};
use celeris_predictor::{Effective as TakesEffect, ItemChange, ItemEdit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::ApiError;

/// Features and attributes of an item; what is absent stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemBody {
    /// Features of the model's dimension, the last entry 1.
    pub features: Option<Vec<f32>>,
    /// Attributes by name, replacing those before.
    pub attributes: Option<Map<String, Value>>,
}

/// When a change takes effect.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemChanged {
    #[schema(value_type = String)]
    pub item: ItemId,
    pub effective: Effective,
}

/// A line of a stream: features and attributes of an item, or its deletion.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemLine {
    #[schema(value_type = String)]
    pub item: ItemId,
    /// Features of the model's dimension, the last entry 1.
    pub features: Option<Vec<f32>>,
    /// Attributes by name, replacing those before.
    pub attributes: Option<Map<String, Value>>,
    /// Deletes the item; then the line has no other field.
    #[serde(default)]
    pub delete: bool,
}

impl ItemLine {
    /// # Errors
    /// 422 where it says nothing, or describes and deletes.
    pub fn edit(self) -> Result<(ItemId, ItemEdit), ApiError> {
        let change = ItemChange { features: self.features, attributes: self.attributes };
        match (self.delete, is_something(&change)) {
            (true, Ok(())) => Err(ApiError::invalid("delete: an item cannot be described and deleted by one line")),
            (true, Err(_)) => Ok((self.item, ItemEdit::Delete)),
            (false, something) => something.map(|()| (self.item, ItemEdit::Put(change))),
        }
    }
}

/// Refuses a change that says nothing.
///
/// # Errors
/// 422.
pub fn is_something(change: &ItemChange) -> Result<(), ApiError> {
    if change.features.is_none() && change.attributes.is_none() {
        return Err(ApiError::invalid("missing field `features` or `attributes`"));
    }
    Ok(())
}

/// What became of a line.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemEdited {
    #[schema(value_type = String)]
    pub item: ItemId,
    /// When what was said takes effect, as for one item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<Effective>,
    /// True where the item was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
}

/// An item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Item {
    #[schema(value_type = String)]
    pub item: ItemId,
    /// Whether the active version was trained on it.
    pub trained: bool,
    /// Where the features come from.
    pub source: FeatureSource,
    /// The features that the active version scores it with.
    pub features: Vec<f32>,
    /// The expected label for a user with zero weights.
    pub offset: f32,
    /// The features that a caller gave.
    pub given_features: Option<Vec<f32>>,
    pub attributes: Option<Map<String, Value>>,
}

/// One item of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemSummary {
    #[schema(value_type = String)]
    pub item: ItemId,
    pub attributes: Map<String, Value>,
    pub trained: bool,
}

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
pub struct Items {
    pub items: Vec<ItemSummary>,
    /// Pass it as `after` for the next page; null on the last.
    #[schema(value_type = Option<String>)]
    pub next: Option<ItemId>,
    /// With `q` or `filter`: how many items there are on all pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
}

mirror_enum! {
    /// When a change takes effect.
    Effective = TakesEffect {
        Now,
        /// Of features: the active version has learnt from others.
        NextVersion,
    }
}

mirror_enum! {
    /// Where the features come from that a version scores an item with.
    FeatureSource = model::FeatureOrigin {
        /// The version's table.
        Trained,
        /// A caller.
        Given,
        /// The item's attributes.
        Attributes,
        /// The version's features for an item of which nothing is known.
        StandIn,
    }
}
