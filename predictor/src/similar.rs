//! Items like an item, of the whole catalog: those whose features point the same way.

use std::time::SystemTime;

use celeris_model::{ItemId, ModelName, VersionId};
use celeris_retrieval::{Filter, Similarity};

use crate::error::PredictorError;
use crate::node::{Predictor, compute};

/// What to look for.
#[derive(Debug, Clone, PartialEq)]
pub struct SimilarRequest {
    /// The model whose features are compared.
    pub model: ModelName,
    /// The item that the others shall be like.
    pub item: ItemId,
    /// How many to name.
    pub k: usize,
    /// What may be named; everything available where there is none.
    pub filter: Option<Filter>,
}

/// An item that is like another.
#[derive(Debug, Clone, PartialEq)]
pub struct SimilarItem {
    /// The item.
    pub item: ItemId,
    /// The cosine of both items' features without the constant, from -1 to 1.
    pub similarity: f32,
}

/// What is like an item under one version.
#[derive(Debug, Clone, PartialEq)]
pub struct Similar {
    /// The version whose features were compared.
    pub version: VersionId,
    /// The most alike first; never the item itself. Empty where nothing is known of the item that another could be like.
    pub items: Vec<SimilarItem>,
}

impl Predictor {
    /// The `k` items of the catalog that are most like one, by an exact pass over all of them.
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `UnknownItem` of an item that is not there or has been deleted, or `Storage`.
    pub fn similar(&self, request: &SimilarRequest) -> Result<Similar, PredictorError> {
        let served = self.model(&request.model)?;
        let (version, catalog) = (served.active.load_full(), &served.catalog);
        compute(false, || {
            let resolved = self.features.resolve(&version, &served.stream, &request.item)?;
            if !resolved.known() || catalog.is_deleted(&request.item) {
                return Err(PredictorError::UnknownItem { model: request.model.clone(), item: request.item.clone() });
            }
            let Some(wanted) = Similarity::to(resolved.features(), version.theta.cold_item().features) else {
                return Ok(Similar { version: version.id, items: Vec::new() });
            };
            let mut allowed = catalog.allowed(request.filter.as_ref(), SystemTime::now().into());
            if let Some(row) = catalog.row_of(&request.item) {
                allowed.remove(row);
            }
            let hits = version.retrieval().alike(&version.theta, &wanted, request.k, &allowed);
            let items = catalog.items_of(hits.iter().map(|hit| hit.row)).into_iter().zip(&hits);
            let items = items.map(|(item, hit)| SimilarItem { item, similarity: hit.score }).collect();
            Ok(Similar { version: version.id, items })
        })
    }
}
