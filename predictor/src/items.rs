//! Item descriptions and deletions by callers: attributes for the stream, features for one model.

use std::collections::{BTreeSet, HashMap};

use celeris_features::table::check_features;
use celeris_model::{FeatureOrigin, ItemId, ModelId, ModelName};
use celeris_retrieval::Filter;
use celeris_retrieval::catalog::{Page, Search};
use celeris_storage::{ItemRecord, ItemWrite};
use serde_json::{Map, Value};

use crate::catalog::{ItemNews, StreamCatalog};
use crate::error::PredictorError;
use crate::features::{Changing, Effective};
use crate::node::{Predictor, compute};
use crate::version::ServingVersion;

/// Items that [`Predictor::put_attributes`] writes with one sync.
const DESCRIBED_AT_ONCE: usize = 4096;

/// A change of an item. Absent fields are unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ItemChange {
    /// Features of the model's dimension, the last entry 1.
    pub features: Option<Vec<f32>>,
    /// Attributes, replacing all earlier ones.
    pub attributes: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ItemEdit {
    /// Describes the item; restores it if it was deleted.
    Put(ItemChange),
    /// Deletes the item until it is described again.
    Delete,
}

/// Result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edited {
    /// The item is described; its features take effect then.
    Put(Effective),
    Deleted,
}

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

/// Edits to be written, and the state of their items after them.
struct Plan<'e> {
    predictor: &'e Predictor,
    model: &'e ModelName,
    catalog: &'e StreamCatalog,
    /// The models on the stream.
    models: &'e [ModelId],
    nothing: &'e Map<String, Value>,
    /// For each item edited so far, whether it is now described.
    touched: HashMap<&'e ItemId, bool>,
    /// Attribute names that these edits add.
    fields: BTreeSet<String>,
    writes: Vec<ItemWrite<'e>>,
    news: Vec<ItemNews<'e>>,
}

impl<'e> Plan<'e> {
    fn edit(
        &mut self,
        changing: &Changing<'_>,
        item: &'e ItemId,
        edit: &'e ItemEdit,
    ) -> Result<Edited, PredictorError> {
        match edit {
            ItemEdit::Put(change) => self.put(changing, item, change).map(Edited::Put),
            ItemEdit::Delete => self.delete(item).map(|()| Edited::Deleted),
        }
    }

    fn put(
        &mut self,
        changing: &Changing<'_>,
        item: &'e ItemId,
        change: &'e ItemChange,
    ) -> Result<Effective, PredictorError> {
        let mut effective = Effective::Now;
        let mut given = None;
        if let Some(features) = &change.features {
            let version = self.predictor.active(self.model)?;
            check_features(features, version.dim())
                .map_err(|source| PredictorError::Features { item: item.clone(), source })?;
            effective = changing.effective(&version, item)?;
            given = Some(ItemWrite::Give(version.model_id, item, features));
        }
        if let Some(attributes) = &change.attributes {
            self.catalog.check(attributes, &mut self.fields)?;
        }
        self.writes.extend(given);
        let was_described = self.touched.insert(item, true).unwrap_or_else(|| self.catalog.is_described(item));
        // An item with features only must exist, too.
        let attributes = change.attributes.as_ref().or_else(|| (!was_described).then_some(self.nothing));
        match attributes {
            Some(attributes) => {
                self.writes.push(ItemWrite::Describe(item, attributes));
                self.news.push(ItemNews::Described(item, attributes));
            }
            None => self.news.push(ItemNews::Given(item)),
        }
        Ok(effective)
    }

    fn delete(&mut self, item: &'e ItemId) -> Result<(), PredictorError> {
        if !self.touched.insert(item, false).unwrap_or_else(|| self.catalog.is_alive(item)) {
            return Err(PredictorError::UnknownItem { model: self.model.clone(), item: item.clone() });
        }
        self.writes.push(ItemWrite::Delete(item, self.models));
        self.news.push(ItemNews::Deleted(item));
        Ok(())
    }
}

impl Predictor {
    /// Applies changes of items in their order, with one sync, and returns a result for each: a failed change has no
    /// effect and does not affect the others. Requests that start afterwards see the changed items. The caller limits
    /// their number.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`, for all changes. For one: `Features` for an invalid vector, `Attributes`,
    /// `UnknownItem` for deleting an unknown item, or `IsSelection` for features.
    pub fn edit_items(
        &self,
        model: &ModelName,
        edits: &[(ItemId, ItemEdit)],
    ) -> Result<Vec<Result<Edited, PredictorError>>, PredictorError> {
        // Attributes belong to the stream, features to the model.
        let served = self.model(&self.of_stream(model))?;
        let (models, nothing) = (self.all_on(&served.stream), Map::new());
        compute(false, || {
            let (edited, rows) = self.features.change(edits.iter().map(|(item, _)| item), |changing| {
                let mut plan = Plan {
                    predictor: self,
                    model,
                    catalog: &served.catalog,
                    models: &models,
                    nothing: &nothing,
                    touched: HashMap::new(),
                    fields: BTreeSet::new(),
                    writes: Vec::with_capacity(edits.len()),
                    news: Vec::with_capacity(edits.len()),
                };
                let edited: Vec<_> = edits.iter().map(|(item, edit)| plan.edit(changing, item, edit)).collect();
                if !plan.writes.is_empty() {
                    self.storage.write_items(&served.stream, plan.writes)?;
                }
                Ok::<_, PredictorError>((edited, served.catalog.take_in(&plan.news)))
            })?;
            self.refresh(&served.catalog, &rows)?;
            Ok(edited)
        })
    }

    fn edit_item(&self, model: &ModelName, item: &ItemId, edit: ItemEdit) -> Result<Edited, PredictorError> {
        let mut edited = self.edit_items(model, &[(item.clone(), edit)])?;
        edited.pop().expect("every edit is answered")
    }

    /// Describes an item, and returns when the supplied features take effect.
    ///
    /// # Errors
    /// As [`Predictor::edit_items`].
    pub fn put_item(&self, model: &ModelName, item: &ItemId, change: ItemChange) -> Result<Effective, PredictorError> {
        match self.edit_item(model, item, ItemEdit::Put(change))? {
            Edited::Put(effective) => Ok(effective),
            Edited::Deleted => Ok(Effective::Now),
        }
    }

    ///
    /// # Errors
    /// As [`Predictor::edit_items`]; items before the failed one are described.
    pub fn put_attributes<'a>(
        &self,
        model: &ModelName,
        items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>,
    ) -> Result<(), PredictorError> {
        let change =
            |attributes: &Map<String, Value>| ItemChange { attributes: Some(attributes.clone()), features: None };
        let mut edits = items.into_iter().map(|(item, attributes)| (item.clone(), ItemEdit::Put(change(attributes))));
        loop {
            let some: Vec<_> = edits.by_ref().take(DESCRIBED_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.edit_items(model, &some)?.into_iter().try_for_each(|edited| edited.map(drop))?;
        }
    }

    /// A page of the items described by callers, in the order of their ids, after `after`.
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
        Ok(page.into_iter().map(|(item, record)| listed(&version, item, Some(record))).collect())
    }

    /// A page of the catalog's items, described or trained on, that match `search`, in the order of their ids, after
    /// `after`. Includes items that are currently unavailable.
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
        let served = self.model(&self.of_stream(model))?;
        let version = served.active.load_full();
        compute(false, || {
            let wanted = Search { text: search.text.as_deref(), filter: search.filter.as_ref() };
            let found = served.catalog.search(wanted, Page { after, limit });
            let mut items = Vec::with_capacity(found.items.len());
            for item in found.items {
                let record = self.storage.item(&served.stream, &item)?;
                items.push(listed(&version, item, record));
            }
            Ok(FoundItems { items, total: found.total })
        })
    }

    /// An item's view; `None` if it is unknown or deleted.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn item(&self, model: &ModelName, item: &ItemId) -> Result<Option<ItemView>, PredictorError> {
        let served = self.model(model)?;
        let version = served.active.load_full();
        compute(false, || {
            let resolved = self.features.resolve(&version, &served.stream, item)?;
            if !resolved.known() || served.catalog.is_deleted(item) {
                return Ok(None);
            }
            Ok(Some(ItemView {
                trained: version.theta.get(item).is_some(),
                source: resolved.origin(),
                features: resolved.features().to_vec(),
                offset: resolved.offset(),
                given_features: self.storage.item_features(served.id, item)?.map(|given| given.features),
                attributes: self.storage.item(&served.stream, item)?.map(|record| record.attributes),
            }))
        })
    }

    /// Deletes an item: no model or version of the stream recommends it until it is described again. Trained versions
    /// and user states keep what they learnt from it.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownItem` or `Storage`.
    pub fn delete_item(&self, model: &ModelName, item: &ItemId) -> Result<(), PredictorError> {
        self.edit_item(model, item, ItemEdit::Delete).map(drop)
    }
}

fn listed(version: &ServingVersion, item: ItemId, record: Option<ItemRecord>) -> ListedItem {
    let attributes = record.map(|record| record.attributes).unwrap_or_default();
    ListedItem { trained: version.theta.get(&item).is_some(), attributes, item }
}
