//! Finding the best items of a whole catalogue for a user: which items may be shown, and which of these score best.
//!
//! A [`catalogue`] gives every item of a stream a [`Row`] for life and knows its attributes; a [`filter`] compiles to the
//! [`Allowed`] rows. A table holds what is searched of one version: `offset_i + w · f_i` over all its items, exactly or by
//! an index.
//!
//! What this crate is not: it knows no user, no version's life and no HTTP; weights come in as a plain vector.

pub mod allowed;
mod best;
pub mod catalogue;
pub mod filter;
pub mod fresh;
pub mod graph;
pub mod likeness;
pub mod table;
mod times;

pub use allowed::Allowed;
pub use best::Best;
pub use catalogue::Catalogue;
pub use filter::{Filter, FilterError};
pub use fresh::{Fresh, best_of};
pub use graph::GraphIndex;
pub use likeness::Likeness;
pub use table::{Matrix, Table};

/// The place of an item in its stream's catalogue, from 0; an item keeps it for life, through deletion and return.
pub type Row = u32;

/// An item that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Its row in the catalogue.
    pub row: Row,
    /// `offset_i + w · f_i`.
    pub score: f32,
}
