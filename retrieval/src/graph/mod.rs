//! An approximate index: a navigable graph over the longest rows of a table, in a file that is mapped.
//!
//! The graph is usearch's HNSW (Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs", 2018): a library of one index, kept by a company that lives from it, whose
//! file is searched where it lies and whose search takes a predicate. It searches the rows of features and offset by inner
//! product with the weights and a 1, which no transformation turns into distances: that distorts neighbourhoods more than
//! it helps (Morozov and Babenko, "Non-metric similarity graphs for maximum inner product search", 2018).
//!
//! Two things are our own. The graph holds only the rows that a search can need: those so long that the bound of the first
//! pass reaches the best of the sampled queries. What a query needs beyond them, which the bound tells, is passed through
//! as without the graph. And whether a graph pays is measured at its birth, against the first pass on the same queries; a
//! graph that does not is not kept, but its record is, so that it is not built again.

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

use crate::table::Matrix;

/// Neighbours of a row in the graph: the value that Malkov and Yashunin recommend, and every library's default.
const CONNECTIVITY: usize = 16;

/// Candidates that a row's neighbours are chosen from.
const EXPANSION_ADD: usize = 64;

/// Searches that can be in the graph at once; one more takes the exact way.
const SEARCHES_MAX: usize = 64;

/// The graph of one version's table, and when to ask it.
pub struct GraphIndex {
    /// None where no graph paid.
    index: Option<Index>,
    record: Record,
}

impl std::fmt::Debug for GraphIndex {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("GraphIndex").field("record", &self.record).finish_non_exhaustive()
    }
}

impl GraphIndex {
    /// Opens what [`Build::run`] wrote at `path`, and maps the graph.
    ///
    /// # Errors
    /// `Io` where there is nothing or it cannot be read; `Torn` where a file is not what was written; `OtherTable` where
    /// it was built from another matrix.
    pub fn open(path: &Path, matrix: Matrix<'_>) -> Result<Self, GraphError> {
        let record = Record::read(path)?;
        record.check(path, matrix)?;
        let index = if record.rows == 0 { None } else { Some(mapped(path, matrix.dim())?) };
        Ok(Self { index, record })
    }

    /// How many rows, the longest, are in the graph; 0 where no graph paid.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.record.rows
    }

    /// What was measured at the graph's birth, by ascending `k`.
    #[must_use]
    pub fn plans(&self) -> &[Plan] {
        &self.record.plans
    }

    /// Bytes of the file that is mapped: memory that the system may take back.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.record.file_bytes
    }

    /// How a search for `k` is to be made, if by the graph.
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
        // A search asks for as many results as it wants candidates, since this is one number for all searches.
        expansion_search: 1,
        multi: false,
    }
}

fn mapped(path: &Path, dim: usize) -> Result<Index, GraphError> {
    let index = Index::new(&options(dim)).map_err(GraphError::library)?;
    // Kept by the library as the number of searches at once.
    index.reserve_capacity_and_threads(0, SEARCHES_MAX).map_err(GraphError::library)?;
    index.view(name(path)?).map_err(GraphError::library)?;
    Ok(index)
}

/// The library takes paths as text.
fn name(path: &Path) -> Result<&str, GraphError> {
    path.to_str().ok_or_else(|| GraphError::Path { path: path.to_owned() })
}

/// The share of `exact`'s hits that `found` has; 1 where there are none.
#[must_use]
pub fn recall(found: &[crate::Hit], exact: &[crate::Hit]) -> f64 {
    if exact.is_empty() {
        return 1.0;
    }
    let same = exact.iter().filter(|hit| found.iter().any(|other| other.row == hit.row)).count();
    same as f64 / exact.len() as f64
}
