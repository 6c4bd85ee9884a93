//! Feature functions `f(x; theta)` and the contents of a version.
//!
//! [`Theta`] is the materialised feature function: a table from items to their offset and features,
//! contiguous in memory. [`version_dir`] writes and reads the immutable directory of a model
//! version, in the formats that `celeris_formats` defines, and verifies it as a whole. [`bounds`]
//! limits the numbers of a version. [`cold_map`] predicts features of items added after the
//! training from their attributes, [`user_map`] the prior means of users from theirs. [`parts`] computes features by
//! pipelines.
//!
//! This crate does not train, cache or depend on a running node. The features of items added after
//! the training are resolved by the predictor.

pub mod bounds;
pub mod cold_map;
mod encoder_file;
pub mod error;
mod huge;
pub mod parts;
mod slots;
pub mod table;
pub mod user_map;
pub mod version_dir;

pub use celeris_pipelines::AttributeEncoder;
pub use cold_map::{ColdMap, ColdMapParts};
pub use error::FeaturesError;
pub use huge::HugeFloats;
pub use parts::{
    CONTEXTS_MAX, CommonContexts, ContextShare, ItemParts, MissingParts, PartNotes, PartSpec, Parts, PartsFiles,
    WeightMoments,
};
pub use table::{ColdItem, ItemFeatures, Theta};
pub use user_map::UserMap;
pub use version_dir::{
    LoadedVersion, TrainerPart, VersionContents, read_version, read_version_sharing, write_trained_version,
    write_version,
};
