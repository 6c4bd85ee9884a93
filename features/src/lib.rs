//! Feature functions `f(x; theta)` and the form in which a version's `theta` is kept.
//!
//! [`Theta`] is the materialised feature function: a table from items to their offset and features, contiguous in
//! memory. [`version_dir`] writes and reads the immutable directory of a model version: `theta` and the
//! prior in Parquet, metrics, and a manifest with checksums that is written last. [`bounds`] says how large the numbers of a
//! version may be. [`cold_map`] gives features to items that came after training, from their attributes.
//!
//! What this crate is not: it trains nothing, caches nothing and knows no running node. Which features an item has that
//! came after training is the predictor's business.

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
