//! Search of the rows with the best scores: by computing scores, and by quantized rows first.

mod best;
pub mod delta_index;
pub mod similarity;
pub mod table;

pub use best::Best;
pub use delta_index::{DeltaIndex, best_of};
pub use similarity::Similarity;
pub use table::{Matrix, Table};
