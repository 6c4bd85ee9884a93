//! Item descriptions and deletions by callers: attributes for the stream, features for one model.

use std::collections::{BTreeSet, HashMap};

use celeris_features::table::check_features;
use celeris_model::{ItemId, ModelId, ModelName};
use celeris_storage::ItemWrite;
use serde_json::{Map, Value};

use super::ItemCatalog;
use crate::error::PredictorError;
use crate::features::{Changing, Effective};
use crate::index::{ItemNews, StreamCatalog};
use crate::models::Models;

/// Items that [`ItemCatalog::put_attributes`] writes with one sync.
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

/// Edits to be written, and the state of their items after them.
struct Plan<'e> {
    models: &'e Models,
    model: &'e ModelName,
    catalog: &'e StreamCatalog,
    /// The models and selections on the stream.
    on_stream: &'e [ModelId],
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
            let version = self.models.active(self.model)?;
            check_features(features, version.table_dim)
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
        self.writes.push(ItemWrite::Delete(item, self.on_stream));
        self.news.push(ItemNews::Deleted(item));
        Ok(())
    }
}

impl ItemCatalog {
    /// Applies changes of items in their order, with one sync, and returns a result for each: a
    /// failed change has no effect and does not affect the others. Requests that start afterwards
    /// see the changed items. The caller limits their number.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`, for all changes. For one: `Features` for an invalid vector,
    /// `Attributes`, `UnknownItem` for deleting an unknown item, or `IsSelection` for features.
    pub fn edit_items(
        &self,
        model: &ModelName,
        edits: &[(ItemId, ItemEdit)],
    ) -> Result<Vec<Result<Edited, PredictorError>>, PredictorError> {
        // Attributes belong to the stream, features to the model.
        let served = self.models.on_stream_of(model)?;
        let (on_stream, nothing) = (self.models.all_on(&served.stream), Map::new());
        let changed = self.features.change(edits.iter().map(|(item, _)| item), |changing| {
            let mut plan = Plan {
                models: &self.models,
                model,
                catalog: &served.catalog,
                on_stream: &on_stream,
                nothing: &nothing,
                touched: HashMap::new(),
                fields: BTreeSet::new(),
                writes: Vec::with_capacity(edits.len()),
                news: Vec::with_capacity(edits.len()),
            };
            let edited: Vec<_> = edits.iter().map(|(item, edit)| plan.edit(changing, item, edit)).collect();
            if !plan.writes.is_empty() {
                self.storage.items().write(&served.stream, plan.writes)?;
            }
            Ok::<_, PredictorError>((edited, served.catalog.take_in(&plan.news)))
        });
        if changed.is_err() && self.storage.replica().is_some() {
            // Of several commits the first may be applied.
            self.take_in_partly(&served.catalog, edits.iter().map(|(item, _)| item))?;
        }
        let (edited, rows) = changed?;
        self.refresh(&served.stream, &rows)?;
        Ok(edited)
    }

    fn edit_item(&self, model: &ModelName, item: &ItemId, edit: ItemEdit) -> Result<Edited, PredictorError> {
        let mut edited = self.edit_items(model, &[(item.clone(), edit)])?;
        edited.pop().expect("every edit is answered")
    }

    /// Describes an item, and returns when the supplied features take effect.
    ///
    /// # Errors
    /// As [`ItemCatalog::edit_items`].
    pub fn put_item(&self, model: &ModelName, item: &ItemId, change: ItemChange) -> Result<Effective, PredictorError> {
        match self.edit_item(model, item, ItemEdit::Put(change))? {
            Edited::Put(effective) => Ok(effective),
            Edited::Deleted => Ok(Effective::Now),
        }
    }

    /// # Errors
    /// As [`ItemCatalog::edit_items`]; items before the failed one are described.
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

    /// Deletes an item: no model or version of the stream recommends it until it is described
    /// again. Trained versions and user states keep what they learnt from it.
    ///
    /// # Errors
    /// `UnknownModel`, `UnknownItem` or `Storage`.
    pub fn delete_item(&self, model: &ModelName, item: &ItemId) -> Result<(), PredictorError> {
        self.edit_item(model, item, ItemEdit::Delete).map(drop)
    }
}
