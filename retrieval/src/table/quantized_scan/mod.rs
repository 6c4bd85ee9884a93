//! The first pass: every row as 8-bit codes, a bound of what its score can be, and a look at its features only where the
//! bound reaches the best so far.
//!
//! What it finds is what computing every score finds, by proof: see [`bound`]. Rows are ordered by how far they lie from
//! the mean, so that a pass ends where no later row can reach the best so far, however it lies to the weights.

mod bound;
mod codes;
mod scan;

pub(crate) use bound::Query;
pub(crate) use codes::Codes;
pub(crate) use scan::Pass;
