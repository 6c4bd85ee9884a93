//! Tests of the predictor over a store.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cold_items;
mod interleavings;
mod long_after;
mod long_histories;
mod recommending;
mod repeated_plays;
mod rewards_of_others;
mod selections_are_views;
mod states_are_views;
