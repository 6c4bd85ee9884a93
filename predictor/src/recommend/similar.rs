//! Similar items of the whole catalog, by the cosine of their features.

use std::time::SystemTime;

use celeris_model::{ItemId, ModelName, VersionId};
use celeris_retrieval::{Filter, Similarity};

use super::Recommender;
use crate::error::PredictorError;
use crate::features::FeatureScope;

#[derive(Debug, Clone, PartialEq)]
pub struct SimilarRequest {
    /// The model whose features are compared.
    pub model: ModelName,
    /// The item to compare with.
    pub item: ItemId,
    /// Maximum number of items to return.
    pub k: usize,
    /// Restricts the result; `None` for all available items.
    pub filter: Option<Filter>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SimilarItem {
    pub item: ItemId,
    /// Cosine of both items' features without the constant, from -1 to 1.
    pub similarity: f32,
}

/// The items most similar to one, under one version.
#[derive(Debug, Clone, PartialEq)]
pub struct Similar {
    /// The version whose features were compared.
    pub version: VersionId,
    /// Most similar first, without the item itself. Empty if the item's features carry no
    /// information.
    pub items: Vec<SimilarItem>,
}

impl Recommender {
    /// The `k` items of the catalog most similar to one, by an exact scan.
    ///
    /// # Errors
    /// `UnknownModel`, `IsSelection`, `UnknownItem` if the item is unknown or deleted, or
    /// `Storage`.
    pub fn similar(&self, request: &SimilarRequest) -> Result<Similar, PredictorError> {
        let served = self.models.get(&request.model)?;
        let (version, catalog) = (served.active.load_full(), &served.catalog);
        let resolved = self.features.resolve(&version, FeatureScope::of_catalog(&served.stream), &request.item)?;
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
    }
}
