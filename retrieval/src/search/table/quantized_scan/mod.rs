//! A scan over 8-bit codes of all rows, with an upper bound of each score; exact scores are
//! computed only for rows whose bound reaches the best so far.
//!
//! Provably returns the same hits as computing every score: see [`bound`]. Rows are ordered by
//! their distance from the mean, so that a scan ends where no later row can reach the best so far,
//! for any direction of the weights.

mod bound;
mod codes;
mod scan;

pub(crate) use bound::Query;
pub(crate) use codes::Codes;
pub(crate) use scan::Pass;
