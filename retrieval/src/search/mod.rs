//! Search of the rows with the best scores: exact, by quantized rows, and by a graph.

mod best;
pub mod delta_index;
pub mod graph;
pub mod similarity;
pub mod table;

pub use best::Best;
pub use delta_index::{DeltaIndex, best_of};
pub use graph::GraphIndex;
pub use similarity::Similarity;
pub use table::{Matrix, Table};
