//! Off-policy evaluation: equal to its reference, honest about its uncertainty, and silent where it knows nothing.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod coverage;
mod earns;
mod obp;
mod own_log;
mod refusals;
mod reward_model;
mod world;
