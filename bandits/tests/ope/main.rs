//! Off-policy evaluation: comparison with a reference, coverage of intervals, and refusals.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod coverage;
mod earns;
mod obp;
mod own_log;
mod refusals;
mod reward_model;
mod weighted;
mod world;
