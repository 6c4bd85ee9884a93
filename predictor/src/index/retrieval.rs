//! The search index of one version: the table of its trained items, and a delta index of items
//! added since training.

use std::sync::Arc;

use celeris_features::Theta;
use celeris_model::ItemId;
use celeris_retrieval::{CandidateSet, DeltaIndex, Hit, Matrix, Row, Similarity, Table, best_of};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rayon::prelude::*;

use super::StreamCatalog;
use crate::error::PredictorError;

/// Locks that fresh rows share, by row number.
const STRIPES: usize = 64;

/// Rows resolved under one set of locks when a version is filled.
const FILL_ROWS: usize = 256;

/// The features of an item outside the table.
pub(crate) trait FreshFeatures {
    fn offset(&self) -> f32;
    fn features(&self) -> &[f32];
}

/// The search index of one version.
pub(crate) struct Retrieval {
    /// The catalog that the rows belong to; kept in memory while the version exists.
    catalog: Arc<StreamCatalog>,
    table: Table,
    /// Described items that are not in the table, with their features under the version.
    fresh: RwLock<DeltaIndex>,
    /// Held from reading an item's features until they are in `fresh`, so that the latest read
    /// wins.
    refreshing: [Mutex<()>; STRIPES],
}

/// Figures about a version's search index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetrievalView {
    /// Items that are not in the version's table.
    pub fresh: usize,
    /// Bytes of the index, without the version's own table.
    pub bytes: usize,
}

/// The matrix of a version's table.
fn matrix(theta: &Theta) -> Matrix<'_> {
    Matrix::new(theta.dim(), theta.features(), theta.offsets())
}

impl Retrieval {
    pub(crate) fn new(theta: &Theta, catalog: Arc<StreamCatalog>) -> Self {
        let rows = catalog.rows_for(theta.items());
        Self {
            catalog,
            table: Table::build(matrix(theta), rows),
            fresh: RwLock::new(DeltaIndex::new(theta.dim())),
            refreshing: [const { Mutex::new(()) }; STRIPES],
        }
    }

    pub(crate) fn catalog(&self) -> &Arc<StreamCatalog> {
        &self.catalog
    }

    /// The current figures.
    pub(crate) fn view(&self) -> RetrievalView {
        let fresh = self.fresh.read();
        RetrievalView { fresh: fresh.len(), bytes: self.table.bytes() + fresh.bytes() }
    }

    pub(crate) fn rows(&self) -> &[Row] {
        self.table.rows()
    }

    /// Whether a search may find the row.
    pub(crate) fn has(&self, row: Row) -> bool {
        self.has_in_table(row) || self.fresh.read().get(row).is_some()
    }

    pub(crate) fn has_in_table(&self, row: Row) -> bool {
        self.table.slot(row).is_some()
    }

    /// The best `k` of the allowed items for these weights, best first.
    pub(crate) fn search(&self, theta: &Theta, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        let trained = self.table.search(matrix(theta), weights, k, allowed);
        let fresh = self.fresh.read().search(weights, k, allowed);
        if fresh.is_empty() { trained } else { best_of(k, [trained.as_slice(), fresh.as_slice()]) }
    }

    /// The `k` allowed rows that are most similar, most similar first.
    pub(crate) fn alike(&self, theta: &Theta, wanted: &Similarity<'_>, k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        let trained = wanted.search(matrix(theta), self.table.rows(), k, allowed);
        let fresh = self.fresh.read().alike(wanted, k, allowed);
        best_of(k, [trained.as_slice(), fresh.as_slice()])
    }

    /// Updates these rows to the current state of their items: in the delta index with their
    /// features under the version, which `read` returns, or removed from it.
    pub(crate) fn refresh<F: FreshFeatures>(
        &self,
        rows: &[Row],
        read: impl Fn(&ItemId) -> Result<Arc<F>, PredictorError>,
    ) -> Result<(), PredictorError> {
        let _refreshing = self.hold(rows);
        let items = self.catalog.fresh_items(self, rows);
        let mut resolved = Vec::with_capacity(rows.len());
        for (row, item) in rows.iter().zip(items) {
            resolved.push((*row, item.map(|item| read(&item)).transpose()?));
        }
        let mut fresh = self.fresh.write();
        for (row, features) in resolved {
            match features {
                Some(features) => fresh.put(row, features.offset(), features.features()),
                None => {
                    fresh.remove(row);
                }
            }
        }
        Ok(())
    }

    /// Refreshes those of `rows` that are not in the table, on all processors.
    pub(crate) fn fill<F: FreshFeatures>(
        &self,
        rows: &[Row],
        read: impl Fn(&ItemId) -> Result<Arc<F>, PredictorError> + Sync,
    ) -> Result<(), PredictorError> {
        let fresh: Vec<Row> = rows.iter().copied().filter(|row| !self.has_in_table(*row)).collect();
        fresh.par_chunks(FILL_ROWS).try_for_each(|rows| self.refresh(rows, &read))
    }

    /// Takes the locks of these rows in ascending order, so that two refreshes cannot deadlock.
    fn hold(&self, rows: &[Row]) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = rows.iter().map(|row| *row as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.refreshing[stripe].lock()).collect()
    }
}
