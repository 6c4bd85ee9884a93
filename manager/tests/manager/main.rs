//! Tests of the life cycle of models over a store.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cluster;
mod damaged_documents;
mod default_rewards;
