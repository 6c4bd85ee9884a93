//! What is searched of one version: the table of its trained items, and the items that came after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use celeris_features::Theta;
use celeris_retrieval::graph::GraphIndex;
use celeris_retrieval::{CandidateSet, DeltaIndex, Hit, Matrix, Row, Similarity, Table, best_of};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rayon::prelude::*;

use super::StreamCatalog;
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
    catalog: Arc<StreamCatalog>,
    table: Table,
    /// Items that are described and not in the table, with the features that they have under the version.
    fresh: RwLock<DeltaIndex>,
    /// Whether the version serves no more, so that nothing need be built for it.
    retired: AtomicBool,
    recall: Mutex<RecallSum>,
    /// Held from reading an item's features until they are in `fresh`, so that what is read last stays.
    refreshing: [Mutex<()>; STRIPES],
}

/// Recalls that were measured.
#[derive(Debug, Clone, Copy, Default)]
struct RecallSum {
    sum: f64,
    samples: u64,
}

/// How a version is searched, in figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetrievalView {
    /// Items that are not in the version's table.
    pub fresh: usize,
    /// Bytes kept for searching, beside the version's own table and what is mapped.
    pub bytes: usize,
    /// Rows in the graph: `None` before there is one, 0 where it was measured not to pay.
    pub graph_rows: Option<usize>,
    /// Bytes of the graph's file, which is mapped.
    pub graph_bytes: u64,
    /// Searches by the graph that were made again exactly.
    pub recall_samples: u64,
    /// The mean share of what these found that the graph had found too.
    pub recall: Option<f64>,
}

/// The matrix that a version's table was built over.
pub(crate) fn matrix(theta: &Theta) -> Matrix<'_> {
    Matrix::new(theta.dim(), theta.features(), theta.offsets())
}

impl Retrieval {
    /// Over the version's table.
    pub(super) fn new(theta: &Theta, catalog: Arc<StreamCatalog>) -> Self {
        let rows = catalog.rows_for(theta.items());
        Self {
            catalog,
            table: Table::build(matrix(theta), rows),
            fresh: RwLock::new(DeltaIndex::new(theta.dim())),
            retired: AtomicBool::new(false),
            recall: Mutex::default(),
            refreshing: [const { Mutex::new(()) }; STRIPES],
        }
    }

    /// Whose rows these are.
    pub(crate) fn catalog(&self) -> &Arc<StreamCatalog> {
        &self.catalog
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// The version serves no more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(super) fn retired(&self) -> &AtomicBool {
        &self.retired
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// The graph has found this share of what an exact search finds.
    pub(super) fn note_recall(&self, share: f64) {
        let mut recall = self.recall.lock();
        recall.sum += share;
        recall.samples += 1;
    }

    /// How the version is searched, as it is now.
    pub(super) fn view(&self) -> RetrievalView {
        let recall = *self.recall.lock();
        let graph = self.table.graph();
        let fresh = self.fresh.read();
        RetrievalView {
            fresh: fresh.len(),
            bytes: self.table.bytes() + fresh.bytes(),
            graph_rows: graph.map(GraphIndex::rows),
            graph_bytes: graph.map_or(0, GraphIndex::bytes),
            recall_samples: recall.samples,
            recall: (recall.samples > 0).then(|| recall.sum / recall.samples as f64),
        }
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

    /// The best `k` of the fresh items that are allowed, best first.
    pub(super) fn search_fresh(&self, weights: &[f32], k: usize, allowed: &CandidateSet) -> Vec<Hit> {
        self.fresh.read().search(weights, k, allowed)
    }

    /// The `k` of the allowed rows that are most alike, the most alike first.
    pub(crate) fn alike(&self, theta: &Theta, wanted: &Similarity<'_>, k: usize, allowed: &CandidateSet) -> Vec<Hit> {
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
        let items = self.catalog.fresh_items(self, rows);
        let mut resolved = Vec::with_capacity(rows.len());
        for (row, item) in rows.iter().zip(items) {
            let later = item.map(|item| features.read(version, &self.catalog.stream, &item)).transpose()?;
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
