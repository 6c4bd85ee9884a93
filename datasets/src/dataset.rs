//! The data set type that all sources produce.

use std::collections::HashMap;

use celeris_model::{ItemId, Timestamp, UserId};
use serde_json::{Map, Value, json};

/// Ratings and item descriptions.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its name: that of the folder it was read from, or `synthetic`.
    pub name: String,
    /// In the order of the file; a user may have rated an item more than once.
    pub ratings: Vec<Rating>,
    /// Titles and genres, in the order of their file; may be empty. Rated items may be missing, and
    /// items without ratings included.
    pub items: Vec<ItemInfo>,
}

/// One rating. Ids are shared: many ratings of a user hold one copy of the user's id.
#[derive(Debug, Clone, PartialEq)]
pub struct Rating {
    pub user: UserId,
    pub item: ItemId,
    /// The rating, on the file's scale.
    pub label: f32,
    /// The weight in training, as a number of repetitions; 1 if the source has none.
    pub weight: f32,
    /// Time of the rating; 0 if unknown.
    pub timestamp: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemInfo {
    pub id: ItemId,
    pub title: String,
    /// Its genres, in the source's order; may be empty.
    pub genres: Vec<String>,
}

impl ItemInfo {
    /// Title and genres as attributes of the item.
    #[must_use]
    pub fn attributes(&self) -> Map<String, Value> {
        let mut attributes = Map::new();
        attributes.insert("title".to_owned(), json!(self.title));
        attributes.insert("genres".to_owned(), json!(self.genres));
        attributes
    }
}

impl Dataset {
    /// The items by id, for looking up titles.
    #[must_use]
    pub fn items_by_id(&self) -> HashMap<&ItemId, &ItemInfo> {
        self.items.iter().map(|item| (&item.id, item)).collect()
    }
}
