//! Copies of a store as Parquet, for analysis.
//!
//! [`sealing`] runs beside a node: the [`Sealer`] writes the observations of every stream and the
//! decisions of every model as segments into the data directory, and keeps them up to date.
//! [`store`] exports the store of a stopped node into a folder: observations in the same format,
//! decisions and versions. [`dsjson`] exports its decisions for Vowpal Wabbit.
//!
//! The log is authoritative. Nothing here is read back by a node, and all of it may be deleted.
//! This crate does not know models: the names of those that record decisions, and the versions to
//! export, are passed by the caller. The columns are defined in `celeris_formats`; training input
//! is exported by the manager.

pub mod dsjson;
pub mod error;
pub mod sealing;
pub mod store;

pub use dsjson::{ExportedDsjson, export_dsjson};
pub use error::ExportError;
pub use sealing::{ModelNames, Sealer, SealingOptions, SealingStatus};
pub use store::{Contents, Exported, ExportedVersion, export_store};
