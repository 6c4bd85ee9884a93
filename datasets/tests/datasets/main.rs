//! Tests of readers, downloads and synthetic data.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bad_rows;
mod clicks;
mod fetch;
mod formats;
mod latest_small;
mod open_bandit;
mod synthetic;
mod temporary_folder;
