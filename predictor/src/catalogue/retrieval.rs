//! What is searched of one version: the table of its trained items, and the items that came after.

use std::sync::Arc;

use celeris_features::Theta;
use celeris_retrieval::{Allowed, Fresh, Hit, Likeness, Matrix, Row, Table, best_of};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rayon::prelude::*;

use super::StreamCatalogue;
use crate::error::PredictorError;
use crate::features::FeatureSource;
use crate::version::ServingVersion;

/// Locks that fresh rows share by their number.
const STRIPES: usize = 64;

/// Rows that are resolved under one round of locks when a version is filled.
const FILL_ROWS: usize = 256;

/// A version as it is searched.
pub(crate) struct Retrieval {
    /// Whose rows these are; a version that is prepared keeps it in memory.
    catalogue: Arc<StreamCatalogue>,
    table: Table,
    /// Items that are described and not in the table, with the features that they have under the version.
    fresh: RwLock<Fresh>,
    /// Held from reading an item's features until they are in `fresh`, so that what is read last stays.
    refreshing: [Mutex<()>; STRIPES],
}

/// The matrix that a version's table was built over.
pub(crate) fn matrix(theta: &Theta) -> Matrix<'_> {
    Matrix::new(theta.dim(), theta.features(), theta.offsets())
}

impl Retrieval {
    /// Over the version's table.
    pub(super) fn new(theta: &Theta, catalogue: Arc<StreamCatalogue>) -> Self {
        let rows = catalogue.rows_for(theta.items());
        Self {
            catalogue,
            table: Table::build(matrix(theta), rows),
            fresh: RwLock::new(Fresh::new(theta.dim())),
            refreshing: [const { Mutex::new(()) }; STRIPES],
        }
    }

    /// Whose rows these are.
    pub(crate) fn catalogue(&self) -> &Arc<StreamCatalogue> {
        &self.catalogue
    }

    /// The rows of the table.
    pub(super) fn rows(&self) -> &[Row] {
        self.table.rows()
    }

    /// Whether a search may find the row.
    pub(crate) fn has(&self, row: Row) -> bool {
        self.has_in_table(row) || self.fresh.read().get(row).is_some()
    }

    pub(super) fn has_in_table(&self, row: Row) -> bool {
        self.table.slot(row).is_some()
    }

    /// How many items came after training.
    pub(crate) fn fresh_items(&self) -> usize {
        self.fresh.read().len()
    }

    /// Bytes of what is kept for searching, beside the version's own table.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.fresh.read().bytes()
    }

    /// The best `k` of the allowed rows, best first.
    pub(super) fn search(&self, theta: &Theta, weights: &[f32], k: usize, allowed: &Allowed) -> Vec<Hit> {
        let trained = self.table.search(matrix(theta), weights, k, allowed);
        let fresh = self.fresh.read().search(weights, k, allowed);
        if fresh.is_empty() { trained } else { best_of(k, [trained.as_slice(), fresh.as_slice()]) }
    }

    /// The `k` of the allowed rows that are most alike, the most alike first.
    pub(crate) fn alike(&self, theta: &Theta, wanted: &Likeness<'_>, k: usize, allowed: &Allowed) -> Vec<Hit> {
        let trained = wanted.search(matrix(theta), self.table.rows(), k, allowed);
        let fresh = self.fresh.read().alike(wanted, k, allowed);
        best_of(k, [trained.as_slice(), fresh.as_slice()])
    }

    /// Brings these rows to what their items are now: with the features that they have under `version` where they belong
    /// to its fresh items, and out of them else.
    pub(super) fn refresh(
        &self,
        features: &FeatureSource,
        version: &ServingVersion,
        rows: &[Row],
    ) -> Result<(), PredictorError> {
        let _refreshing = self.hold(rows);
        let items = self.catalogue.fresh_items(self, rows);
        let mut resolved = Vec::with_capacity(rows.len());
        for (row, item) in rows.iter().zip(items) {
            let later = item.map(|item| features.read(version, &self.catalogue.stream, &item)).transpose()?;
            resolved.push((*row, later));
        }
        let mut fresh = self.fresh.write();
        for (row, later) in resolved {
            match later {
                Some(later) => fresh.put(row, later.offset, &later.features),
                None => {
                    fresh.remove(row);
                }
            }
        }
        Ok(())
    }

    /// The locks of these rows, taken in one order, so that two refreshings never wait for one another.
    fn hold(&self, rows: &[Row]) -> Vec<MutexGuard<'_, ()>> {
        let mut stripes: Vec<usize> = rows.iter().map(|row| *row as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|stripe| self.refreshing[stripe].lock()).collect()
    }
}

/// Brings all of `rows` to what their items are now, on all processors.
pub(super) fn fill(features: &FeatureSource, version: &ServingVersion, rows: &[Row]) -> Result<(), PredictorError> {
    let retrieval = version.retrieval();
    let later: Vec<Row> = rows.iter().copied().filter(|row| !retrieval.has_in_table(*row)).collect();
    later.par_chunks(FILL_ROWS).try_for_each(|rows| retrieval.refresh(features, version, rows))
}
