//! Facts about pipelines as their users see them.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::needless_pass_by_value, reason = "declarations are literals of JSON")]

mod declarations;
mod engine;
mod equality;
mod fits;
mod hostile;
mod known;
mod networks;
mod objects;
mod optimizer;
mod random;
mod random_networks;
mod scikit_learn;
mod sharing;
