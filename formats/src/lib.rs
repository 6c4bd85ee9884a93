//! The columnar file formats, each defined once: the schema of every Parquet file that a node
//! writes or reads, and the layout of a version directory.
//!
//! | module | file | written by | read by |
//! |---|---|---|---|
//! | [`observations`] | sealed segments, exports, training input | export, manager | trainers, analysts |
//! | [`decisions`] | sealed segments, exports | export | analysts |
//! | [`versions`] | `versions.parquet` of an export | export | analysts |
//! | [`attributes`], [`pinned_items`] | training input | manager | trainers |
//! | [`item_features`], [`prior`], [`cold_map`], [`user_map`] | version directory | trainers | features |
//! | [`user_weights`] | output of an external engine | engines | retrain |
//! | [`part_moments`] | version directory | retrain | features |
//! | [`trainer_items`] | version directory | retrain | retrain |
//! | [`manifest`], [`version_dir`] | `_SUCCESS`, and the set of files that it lists | trainers | features, manager |
//!
//! [`table`] reads the rows of any Parquet file, for imports, also of one that is read by [`ranges`] of bytes.
//!
//! [`columns`] reads typed columns with errors that name file, row and column, and writes durable
//! files.
//!
//! This crate does not interpret: bounds of numbers and the meaning of a version are checked by
//! `features`, training data by `retrain`. It is the only crate that uses Arrow and Parquet, apart
//! from tests. Columns and files are contracts with programs outside: a column may be added, none
//! may be removed or change its type.

pub mod attributes;
pub mod checksum;
pub mod cold_map;
pub mod columns;
pub mod decisions;
pub mod error;
pub mod item_features;
pub mod manifest;
mod map_rows;
pub mod observations;
pub mod part_moments;
pub mod pinned_items;
pub mod prior;
pub mod ranges;
mod rows;
pub mod table;
pub mod trainer_items;
pub mod user_map;
pub mod user_weights;
pub mod version_dir;
pub mod versions;

/// Rows of a columnar file, in memory.
pub use arrow_array::RecordBatch;
pub use attributes::AttributesWriter;
pub use checksum::sha256_of;
pub use columns::{Batch, Number, ParquetFile, ParquetOut};
pub use decisions::DecisionsWriter;
pub use error::FormatError;
pub use manifest::{FileEntry, MANIFEST_FILE, Manifest, WarmStart};
pub use observations::{ObservationRow, ObservationsWriter};
pub use ranges::Ranges;
pub use table::{Table, TableValue};
pub use version_dir::{VersionDirWriter, checked_file, read_manifest};
