//! Retrieval of the best items of a whole catalog for a user: filters, and exact top-k search.
//!
//! A [`catalog`] assigns every item of a stream a [`Row`] for life and stores its attributes; a
//! [`filter`] is evaluated to a [`CandidateSet`] of rows. A [`Table`] searches the items of one
//! version by `offset_i + w · f_i`.
//!
//! This crate does no I/O. It does not depend on users, the life cycle of versions or HTTP; weights
//! are passed as a plain vector.

pub mod candidate_set;
pub mod catalog;
pub mod filter;
pub mod search;
mod times;

pub use candidate_set::CandidateSet;
pub use catalog::Catalog;
pub use filter::{Filter, FilterError};
pub use search::{Best, DeltaIndex, Matrix, Similarity, Table, best_of};

/// The row of an item in its stream's catalog, from 0; kept for life, also after a deletion and
/// re-creation.
pub type Row = u32;

/// A search result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Row in the catalog.
    pub row: Row,
    /// `offset_i + w · f_i`.
    pub score: f32,
}
