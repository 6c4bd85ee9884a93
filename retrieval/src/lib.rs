//! Finding the best items of a whole catalog for a user: which items may be shown, and which of these score best.
//!
//! A [`catalog`] gives every item of a stream a [`Row`] for life and knows its attributes; a [`filter`] compiles to the
//! [`CandidateSet`] rows. A table holds what is searched of one version: `offset_i + w · f_i` over all its items, exactly or by
//! an index.
//!
//! What this crate is not: it knows no user, no version's life and no HTTP; weights come in as a plain vector.

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

/// The place of an item in its stream's catalog, from 0; an item keeps it for life, through deletion and return.
pub type Row = u32;

/// An item that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Its row in the catalog.
    pub row: Row,
    /// `offset_i + w · f_i`.
    pub score: f32,
}
