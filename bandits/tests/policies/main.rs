//! Tests of policies: determinism, order, and propensities against frequencies.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod chi_square;
mod order;
mod propensities;
mod scene;
mod simulated;
mod spec;
mod thompson;
mod vowpal_wabbit;
