//! Loads a stream's catalog from the store.

use std::time::Instant;

use celeris_model::{ItemId, StreamName};
use celeris_retrieval::Catalog;
use celeris_storage::{Storage, StorageError, SweptItem};
use rayon::prelude::*;
use serde_json::{Map, Value};

use super::context_fields;
use crate::error::PredictorError;
use crate::index::StreamCatalog;

/// Items parsed in one batch, on all processors.
const ITEMS_AT_ONCE: usize = 16_384;

type Read = (ItemId, Option<Map<String, Value>>);

/// Reads all items of a stream that were described or observed, including deleted ones, so that no
/// version's table restores a deleted item.
pub(super) fn load(storage: &Storage, stream: &StreamName) -> Result<StreamCatalog, PredictorError> {
    let started = Instant::now();
    let mut catalog = Catalog::new();
    storage.items().sweep(stream, ITEMS_AT_ONCE, |part| {
        let read: Result<Vec<Read>, StorageError> = part.par_iter().map(SweptItem::read).collect();
        for (item, attributes) in read? {
            match attributes {
                Some(attributes) => {
                    catalog.put(&item, &attributes);
                }
                None => {
                    catalog.delete(&item);
                }
            }
        }
        Ok::<_, PredictorError>(())
    })?;
    storage.items().sweep_observed(stream, |item| {
        catalog.observe(&item);
    })?;
    let seconds = started.elapsed().as_secs_f64();
    metrics::gauge!("celeris_catalog_load_seconds", "stream" => stream.to_string()).set(seconds);
    Ok(StreamCatalog::new(stream.clone(), catalog, context_fields::read(storage, stream)?))
}
