//! Tests of version directories and of the map from attributes to features.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bounds;
mod cold_maps;
mod user_maps;
mod version_directories;
