//! Changes of items that other nodes of a cluster have made.

use std::collections::{BTreeMap, HashMap};

use celeris_model::{ItemId, ModelId, StreamName};
use celeris_storage::{ChangedItem, ItemRecord};

use super::ItemCatalog;
use crate::error::PredictorError;
use crate::index::{ItemNews, StreamCatalog};

/// What may have changed of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// It was described or deleted.
    Described,
    /// Its features were set or deleted.
    Given,
    /// Nothing, or any of these.
    Unknown,
}

/// Items that are read and taken in under one set of locks.
const TAKEN_IN_AT_ONCE: usize = 1024;

impl ItemCatalog {
    /// Brings the catalogs in memory in line with changes that the store has applied. Items that are
    /// named again are read again, so a call that failed can be repeated.
    ///
    /// # Errors
    /// `Storage`.
    pub fn take_in_applied(&self, changed: &[ChangedItem]) -> Result<(), PredictorError> {
        let streams: HashMap<ModelId, StreamName> =
            self.models.served().iter().map(|served| (served.id, served.stream.clone())).collect();
        // By stream, in the order of the changes.
        let mut by_stream: BTreeMap<&StreamName, Vec<(&ItemId, Extent)>> = BTreeMap::new();
        for change in changed {
            let (stream, item, extent) = match change {
                ChangedItem::Described { stream, item } => (Some(stream), item, Extent::Described),
                // A model that does not serve reads the features when it begins to.
                ChangedItem::Given { model, item } => (streams.get(model), item, Extent::Given),
            };
            if let Some(stream) = stream {
                by_stream.entry(stream).or_default().push((item, extent));
            }
        }
        for (stream, items) in by_stream {
            let Some(catalog) = self.loaded(stream) else { continue };
            self.take_in(&catalog, &items)?;
        }
        Ok(())
    }

    /// Brings a catalog in line with the store after a change of these items that has failed, and of
    /// which a part may be applied.
    pub(super) fn take_in_partly<'i>(
        &self,
        catalog: &StreamCatalog,
        items: impl Iterator<Item = &'i ItemId>,
    ) -> Result<(), PredictorError> {
        self.take_in(catalog, &items.map(|item| (item, Extent::Unknown)).collect::<Vec<_>>())
    }

    fn take_in(&self, catalog: &StreamCatalog, items: &[(&ItemId, Extent)]) -> Result<(), PredictorError> {
        items.chunks(TAKEN_IN_AT_ONCE).try_for_each(|items| self.take_in_some(catalog, items))
    }

    fn take_in_some(&self, catalog: &StreamCatalog, items: &[(&ItemId, Extent)]) -> Result<(), PredictorError> {
        let rows = self.features.change(items.iter().map(|(item, _)| *item), |_| {
            let read = |(item, _): &(&ItemId, Extent)| Ok(self.storage.items().get(&catalog.stream, item)?);
            let records: Vec<Option<ItemRecord>> = items.iter().map(read).collect::<Result<_, PredictorError>>()?;
            let news = items.iter().zip(&records).map(|((item, extent), record)| match (record, extent) {
                (_, Extent::Given) => ItemNews::Given(item),
                (Some(record), _) => ItemNews::Described(item, &record.attributes),
                (None, Extent::Described) => ItemNews::Deleted(item),
                // An item that only observations have noted has no record before and after.
                (None, Extent::Unknown) if catalog.is_described(item) => ItemNews::Deleted(item),
                (None, Extent::Unknown) => ItemNews::Given(item),
            });
            Ok::<_, PredictorError>(catalog.take_in(&news.collect::<Vec<_>>()))
        })?;
        self.refresh(&catalog.stream, &rows)
    }
}
