//! Lists and describes the items of a catalog.

use celeris_model::{FeatureOrigin, ItemId, ModelName};
use celeris_retrieval::Filter;
use celeris_retrieval::catalog::{AttributeSummary, Page, Search};
use celeris_storage::ItemRecord;
use serde_json::{Map, Value};

use super::ItemCatalog;
use crate::error::PredictorError;
use crate::features::FeatureScope;
use crate::version::ServingVersion;

#[derive(Debug, Clone, PartialEq)]
pub struct ListedItem {
    pub item: ItemId,
    pub attributes: Map<String, Value>,
    /// Whether the active version was trained on it.
    pub trained: bool,
}

/// A search in the catalog.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemSearch {
    /// Text in the id or in a text attribute, ignoring case.
    pub text: Option<String>,
    pub filter: Option<Filter>,
}

/// A page of search results.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundItems {
    /// The page, in the order of the ids.
    pub items: Vec<ListedItem>,
    /// Total number on all pages.
    pub total: usize,
}

/// An item's features and attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemView {
    /// Whether the active version was trained on it.
    pub trained: bool,
    pub source: FeatureOrigin,
    /// The features under the active version, length `dim`.
    pub features: Vec<f32>,
    /// The expected label for a user with zero weights.
    pub offset: f32,
    /// Features supplied by a caller, if any.
    pub given_features: Option<Vec<f32>>,
    /// Attributes supplied by a caller, if any.
    pub attributes: Option<Map<String, Value>>,
}

/// What is known of an item that a request describes.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemDescription {
    pub is_deleted: bool,
    /// Whether the stream knows the item: it was described, observed or trained on.
    pub is_known: bool,
    /// Attributes supplied by a caller, if any.
    pub attributes: Option<Map<String, Value>>,
    /// Features supplied by a caller, if any.
    pub given_features: Option<Vec<f32>>,
    /// Whether nothing but the constant is among its factors under the active version.
    pub is_plain: bool,
    /// The number of factors of the active version, without the constant.
    pub factors: usize,
    /// The number of items of the stream.
    pub items: usize,
}

impl ItemCatalog {
    /// What is known of an item, deleted or not.
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection` or `Storage`.
    pub fn description(&self, model: &ModelName, item: &ItemId) -> Result<ItemDescription, PredictorError> {
        let served = self.models.get(model)?;
        let version = served.active.load_full();
        let resolved = self.features.resolve(&version, FeatureScope::of_catalog(&served.stream), item)?;
        let factors = version.table_dim.saturating_sub(1);
        let given = self.storage.items().given_features(served.id, item)?;
        Ok(ItemDescription {
            is_deleted: served.catalog.is_deleted(item),
            is_known: resolved.known() || served.catalog.is_observed(item),
            attributes: self.storage.items().get(&served.stream, item)?.map(|record| record.attributes),
            given_features: given.map(|given| given.features),
            is_plain: resolved.features().iter().take(factors).all(|factor| *factor == 0.0),
            factors,
            items: served.catalog.size().items,
        })
    }

    /// A page of the catalog's items, described, observed or trained on, that match `search`, in the order of
    /// their ids, after `after`. Includes items that are currently unavailable.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn search_items(
        &self,
        model: &ModelName,
        search: &ItemSearch,
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<FoundItems, PredictorError> {
        let served = self.models.on_stream_of(model)?;
        let version = served.active.load_full();
        let wanted = Search { text: search.text.as_deref(), filter: search.filter.as_ref() };
        let found = served.catalog.search(wanted, Page { after, limit });
        let mut items = Vec::with_capacity(found.items.len());
        for item in found.items {
            let record = self.storage.items().get(&served.stream, &item)?;
            items.push(listed(&version, item, record));
        }
        Ok(FoundItems { items, total: found.total })
    }

    /// The attributes that filters can name, in the order of their names, each with up to
    /// `values_max` of its most frequent values.
    ///
    /// # Errors
    /// `UnknownModel`.
    pub fn attributes(&self, model: &ModelName, values_max: usize) -> Result<Vec<AttributeSummary>, PredictorError> {
        Ok(self.models.on_stream_of(model)?.catalog.attributes(values_max))
    }

    /// An item's view; `None` if it is unknown or deleted.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn item(&self, model: &ModelName, item: &ItemId) -> Result<Option<ItemView>, PredictorError> {
        let served = self.models.get(model)?;
        let version = served.active.load_full();
        let resolved = self.features.resolve(&version, FeatureScope::of_catalog(&served.stream), item)?;
        let is_known = resolved.known() || served.catalog.is_observed(item);
        if !is_known || served.catalog.is_deleted(item) {
            return Ok(None);
        }
        Ok(Some(ItemView {
            trained: version.theta.get(item).is_some(),
            source: resolved.origin(),
            features: resolved.features().to_vec(),
            offset: resolved.offset(),
            given_features: self.storage.items().given_features(served.id, item)?.map(|given| given.features),
            attributes: self.storage.items().get(&served.stream, item)?.map(|record| record.attributes),
        }))
    }
}

fn listed(version: &ServingVersion, item: ItemId, record: Option<ItemRecord>) -> ListedItem {
    let attributes = record.map(|record| record.attributes).unwrap_or_default();
    ListedItem { trained: version.theta.get(&item).is_some(), attributes, item }
}
