//! What every source of ratings ends in.

use std::collections::HashMap;

use celeris_model::{ItemId, Timestamp, UserId};
use serde_json::{Map, Value, json};

/// Ratings, and what is known of the items.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// What to call it: the name of the folder it was read from, or `synthetic`.
    pub name: String,
    /// In the order of the file; a user may have rated an item more than once.
    pub ratings: Vec<Rating>,
    /// Titles and genres, in the order of their file; empty where there is none. Rated items may be missing from it,
    /// and it may name items that nobody rated.
    pub items: Vec<ItemInfo>,
}

/// One rating. Ids are shared: many ratings of a user hold one copy of the user's id.
#[derive(Debug, Clone, PartialEq)]
pub struct Rating {
    /// Who rated.
    pub user: UserId,
    /// What was rated.
    pub item: ItemId,
    /// The stars, or whatever the file's scale is.
    pub label: f32,
    /// When; 0 where the file does not say.
    pub timestamp: Timestamp,
}

/// What is known of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemInfo {
    /// The item.
    pub id: ItemId,
    /// Its title, for people to read.
    pub title: String,
    /// Its genres, most telling first where the source ranks them; possibly none.
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
