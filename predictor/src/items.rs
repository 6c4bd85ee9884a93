//! Items that callers describe: attributes for the stream, features for one model.

use celeris_model::{FeatureOrigin, ItemId, ModelName};
use celeris_storage::ItemRecord;
use serde_json::{Map, Value};

use crate::error::PredictorError;
use crate::features::Effective;
use crate::node::{Predictor, compute};

/// What a caller says of an item. What is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemChange {
    /// Features of the model's dimension, the last entry 1.
    pub features: Option<Vec<f32>>,
    /// Attributes, replacing those before.
    pub attributes: Option<Map<String, Value>>,
}

/// An item of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedItem {
    /// The item.
    pub item: ItemId,
    /// Its attributes.
    pub attributes: Map<String, Value>,
    /// Whether the active version was trained on it.
    pub trained: bool,
}

/// What is known of an item.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemView {
    /// Whether the active version was trained on it.
    pub trained: bool,
    /// Where the features come from.
    pub source: FeatureOrigin,
    /// The features that the active version scores it with, length `dim`.
    pub features: Vec<f32>,
    /// The expected label for a user with zero weights.
    pub offset: f32,
    /// The features that a caller gave, if any.
    pub given_features: Option<Vec<f32>>,
    /// Its attributes, if anybody gave any.
    pub attributes: Option<Map<String, Value>>,
}

impl Predictor {
    /// Describes an item, and says when given features take effect.
    ///
    /// # Errors
    /// `UnknownModel`, `Features` for a vector that does not fit, or `Storage`.
    pub fn put_item(&self, model: &ModelName, item: &ItemId, change: ItemChange) -> Result<Effective, PredictorError> {
        // Attributes are the stream's, features the model's own.
        let served = if change.features.is_none() { self.model(&self.of_stream(model))? } else { self.model(model)? };
        let version = served.active.load_full();
        compute(false, || {
            let mut effective = Effective::Now;
            if let Some(features) = change.features {
                effective = self.features.give(&version, item, features)?;
            }
            let attributes = match change.attributes {
                Some(attributes) => Some(attributes),
                // An item that is only given features exists all the same.
                None if self.storage.item(&served.stream, item)?.is_none() => Some(Map::new()),
                None => None,
            };
            if let Some(attributes) = attributes {
                self.features.describe(&served.stream, item, &attributes)?;
            }
            Ok(effective)
        })
    }

    /// Describes many items of a stream with one write, attributes only.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn put_attributes<'a>(
        &self,
        model: &ModelName,
        items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>,
    ) -> Result<(), PredictorError> {
        let served = self.model(&self.of_stream(model))?;
        compute(false, || self.features.describe_all(&served.stream, items))
    }

    /// A page of the items that callers described, in the order of their ids, after `after`.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn items(
        &self,
        model: &ModelName,
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<ListedItem>, PredictorError> {
        let served = self.model(&self.of_stream(model))?;
        let version = served.active.load_full();
        let page = compute(false, || self.storage.items(&served.stream, after, limit))?;
        let listed = |(item, record): (ItemId, ItemRecord)| ListedItem {
            trained: version.theta.get(&item).is_some(),
            attributes: record.attributes,
            item,
        };
        Ok(page.into_iter().map(listed).collect())
    }

    /// What is known of an item; `None` where nothing is.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn item(&self, model: &ModelName, item: &ItemId) -> Result<Option<ItemView>, PredictorError> {
        let served = self.model(model)?;
        let version = served.active.load_full();
        compute(false, || {
            let resolved = self.features.resolve(&version, &served.stream, item)?;
            if !resolved.known() {
                return Ok(None);
            }
            Ok(Some(ItemView {
                trained: version.theta.get(item).is_some(),
                source: resolved.origin(),
                features: resolved.features().to_vec(),
                offset: resolved.offset(),
                given_features: self.storage.item_features(model, item)?.map(|given| given.features),
                attributes: self.storage.item(&served.stream, item)?.map(|record| record.attributes),
            }))
        })
    }

    /// Forgets what callers said of an item. What the version learnt and users were taught of it stays.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn delete_item(&self, model: &ModelName, item: &ItemId) -> Result<bool, PredictorError> {
        let served = self.model(model)?;
        compute(false, || self.features.forget(model, &served.stream, item))
    }
}
