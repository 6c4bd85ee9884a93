//! Changes of items that other nodes of a cluster have made.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use celeris_model::{ItemId, ModelId, StreamName};
use celeris_storage::{ChangedItem, ItemRecord};

use super::ItemCatalog;
use crate::error::PredictorError;
use crate::index::{ItemNews, StreamCatalog};

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
        // By stream, in the order of the changes; whether the item was described or deleted.
        let mut by_stream: BTreeMap<&StreamName, Vec<(&ItemId, bool)>> = BTreeMap::new();
        for change in changed {
            let (stream, item, is_described) = match change {
                ChangedItem::Described { stream, item } => (Some(stream), item, true),
                // A model that does not serve reads the features when it begins to.
                ChangedItem::Given { model, item } => (streams.get(model), item, false),
            };
            if let Some(stream) = stream {
                by_stream.entry(stream).or_default().push((item, is_described));
            }
        }
        for (stream, items) in by_stream {
            let Some(catalog) = self.held(stream) else { continue };
            for items in items.chunks(TAKEN_IN_AT_ONCE) {
                self.take_in(&catalog, items)?;
            }
        }
        Ok(())
    }

    /// Lets items be found whose first observation another node has appended and this node's store
    /// has applied.
    ///
    /// # Errors
    /// `Storage`.
    pub(crate) fn take_in_observed<'i>(
        &self,
        observed: impl IntoIterator<Item = (&'i StreamName, &'i ItemId)>,
    ) -> Result<(), PredictorError> {
        for (stream, item) in observed {
            if let Some(catalog) = self.held(stream)
                && !catalog.is_observed(item)
            {
                self.list_observed(&catalog, item)?;
            }
        }
        Ok(())
    }

    /// The catalog of a stream, if it is in memory.
    fn held(&self, stream: &StreamName) -> Option<Arc<StreamCatalog>> {
        self.streams.lock().get(stream).and_then(Weak::upgrade)
    }

    fn take_in(&self, catalog: &StreamCatalog, items: &[(&ItemId, bool)]) -> Result<(), PredictorError> {
        let rows = self.features.change(items.iter().map(|(item, _)| *item), |_| {
            let read = |(item, _): &(&ItemId, bool)| Ok(self.storage.items().get(&catalog.stream, item)?);
            let records: Vec<Option<ItemRecord>> = items.iter().map(read).collect::<Result<_, PredictorError>>()?;
            let news = items.iter().zip(&records).map(|((item, is_described), record)| match record {
                Some(record) if *is_described => ItemNews::Described(item, &record.attributes),
                None if *is_described => ItemNews::Deleted(item),
                _ => ItemNews::Given(item),
            });
            Ok::<_, PredictorError>(catalog.take_in(&news.collect::<Vec<_>>()))
        })?;
        self.refresh(&catalog.stream, &rows)
    }
}
