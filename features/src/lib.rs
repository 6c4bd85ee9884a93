//! Feature functions `f(x; theta)` and the storage format of a version's `theta`.
//!
//! [`Theta`] is the materialised feature function: a table from items to their offset and features, contiguous in
//! memory. [`version_dir`] writes and reads the immutable directory of a model version: `theta` and the prior in
//! Parquet, metrics, and a manifest with checksums that is written last. [`bounds`] limits the numbers of a version.
//! [`cold_map`] predicts features of items added after the training from their attributes.
//!
//! This crate does not train, cache or depend on a running node. The features of items added after the training are
//! resolved by the predictor.

pub mod bounds;
pub mod cold_map;
pub mod columns;
pub mod error;
mod huge;
pub mod manifest;
mod slots;
pub mod table;
pub mod version_dir;

pub use cold_map::{ColdMap, ColdMapParts, Encoder};
pub use error::FeaturesError;
pub use huge::HugeFloats;
pub use manifest::{FileEntry, Manifest, WarmStart};
pub use table::{ColdItem, ItemFeatures, Theta};
pub use version_dir::{
    LoadedVersion, TrainerPart, VersionContents, checked_file, read_manifest, read_version, write_trained_version,
    write_version,
};
