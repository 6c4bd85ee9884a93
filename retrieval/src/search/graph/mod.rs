//! An approximate index: a navigable graph over the longest rows of a table, in a memory-mapped file.
//!
//! The graph is usearch's HNSW (Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs", 2018): a maintained library whose index file can be searched in place
//! and whose search takes a predicate. It searches rows of features and offset by inner product with the weights and a
//! 1, without a transformation to distances, which distorts neighbourhoods more than it helps (Morozov and Babenko,
//! "Non-metric similarity graphs for maximum inner product search", 2018).
//!
//! Two aspects differ from plain HNSW. The graph holds only the rows that a search can need: those so long that the
//! bound of the quantized scan reaches the best hits of the sampled queries. Rows beyond them that a query needs
//! according to the bound are scanned as without the graph. And the speed of the graph is measured when it is built,
//! against the quantized scan on the same queries; a graph that is not faster is discarded, but its record is kept, so
//! that it is not built again.

mod build;
mod error;
mod record;
mod search;
#[cfg(test)]
mod tests;

use std::path::Path;

use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

pub use build::Build;
pub use error::GraphError;
pub use record::Plan;

use record::Record;

use crate::search::table::Matrix;

/// Neighbours of a row in the graph: recommended by Malkov and Yashunin, and the default of most libraries.
const CONNECTIVITY: usize = 16;

/// Number of candidates among which a row's neighbours are chosen.
const EXPANSION_ADD: usize = 64;

/// Maximum number of concurrent searches in the graph; further ones use the exact search.
const SEARCHES_MAX: usize = 64;

/// The graph of one version's table, with the plans for its use.
pub struct GraphIndex {
    /// `None` if no graph was worth keeping.
    index: Option<Index>,
    record: Record,
}

impl std::fmt::Debug for GraphIndex {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("GraphIndex").field("record", &self.record).finish_non_exhaustive()
    }
}

impl GraphIndex {
    /// Opens the output of [`Build::run`] at `path`, and maps the graph.
    ///
    /// # Errors
    /// `Io` if a file is missing or cannot be read; `Torn` if a file is damaged; `OtherTable` if it was built from
    /// another matrix.
    pub fn open(path: &Path, matrix: Matrix<'_>) -> Result<Self, GraphError> {
        let record = Record::read(path)?;
        record.check(path, matrix)?;
        let index = if record.rows == 0 { None } else { Some(mapped(path, matrix.dim())?) };
        Ok(Self { index, record })
    }

    /// Number of rows in the graph, the longest ones; 0 if no graph was worth keeping.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.record.rows
    }

    /// The measurements of the build, by ascending `k`.
    #[must_use]
    pub fn plans(&self) -> &[Plan] {
        &self.record.plans
    }

    /// Size of the mapped file, in bytes: memory that the system may reclaim.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.record.file_bytes
    }

    /// The plan of a search for `k`; `None` if it should not use the graph.
    #[must_use]
    pub fn plan(&self, k: usize) -> Option<Plan> {
        let plan = self.record.plans.iter().find(|plan| plan.k >= k)?;
        (self.index.is_some() && plan.pays()).then_some(*plan)
    }
}

fn options(dim: usize) -> IndexOptions {
    IndexOptions {
        dimensions: dim,
        metric: MetricKind::IP,
        quantization: ScalarKind::F32,
        connectivity: CONNECTIVITY,
        expansion_add: EXPANSION_ADD,
        // The number of candidates is passed as the number of results, since this option applies to all searches.
        expansion_search: 1,
        multi: false,
    }
}

fn mapped(path: &Path, dim: usize) -> Result<Index, GraphError> {
    let index = Index::new(&options(dim)).map_err(GraphError::library)?;
    // The library stores this as the maximum number of concurrent searches.
    index.reserve_capacity_and_threads(0, SEARCHES_MAX).map_err(GraphError::library)?;
    index.view(name(path)?).map_err(GraphError::library)?;
    Ok(index)
}

/// The library takes paths as strings.
fn name(path: &Path) -> Result<&str, GraphError> {
    path.to_str().ok_or_else(|| GraphError::Path { path: path.to_owned() })
}

/// The share of the hits in `exact` that are in `found`; 1 if `exact` is empty.
#[must_use]
pub fn recall(found: &[crate::Hit], exact: &[crate::Hit]) -> f64 {
    if exact.is_empty() {
        return 1.0;
    }
    let same = exact.iter().filter(|hit| found.iter().any(|other| other.row == hit.row)).count();
    same as f64 / exact.len() as f64
}
