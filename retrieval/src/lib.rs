//! Retrieval of the best items of a whole catalog for a user: filters, and exact and approximate top-k search.
//!
//! A [`catalog`] assigns every item of a stream a [`Row`] for life and stores its attributes; a [`filter`] is evaluated
//! to a [`CandidateSet`] of rows. A [`table`] searches the items of one version by `offset_i + w · f_i`, exactly or
//! with an index.
//!
//! This crate does no I/O except for the files of a graph. It does not depend on users, the life cycle of versions or HTTP; weights are passed as a plain vector.

mod best;
pub mod candidate_set;
pub mod catalog;
pub mod delta_index;
pub mod filter;
pub mod graph;
pub mod similarity;
pub mod table;
mod times;

pub use best::Best;
pub use candidate_set::CandidateSet;
pub use catalog::Catalog;
pub use delta_index::{DeltaIndex, best_of};
pub use filter::{Filter, FilterError};
pub use graph::GraphIndex;
pub use similarity::Similarity;
pub use table::{Matrix, Table};

/// The row of an item in its stream's catalog, from 0; kept for life, also after a deletion and re-creation.
pub type Row = u32;

/// A search result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Row in the catalog.
    pub row: Row,
    /// `offset_i + w · f_i`.
    pub score: f32,
}
