//! Tests of strategies: sums in any order, known weights, and the figures of Clipper.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod figures;
mod intervals;
mod spec;
mod state;
mod weights;
