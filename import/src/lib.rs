//! Reads tables of feedback as people have them, and maps their columns to observations and to attributes of items and
//! users.
//!
//! Delimited text, JSON lines, Parquet and dumps of Gorse become rows of [`cell`]s ([`source`]); a [`mapping`] of
//! columns to roles turns a row into an observation ([`observations`]) or into the attributes of an
//! item or user ([`described`]), as the [`rules`] of the caller say and the [`layout`]s of other programs' files. [`mod@check`] reads a whole
//! file before anything of it is used: it recognises the
//! unit of its times and the types ([`kinds`]) of its attributes and contexts, and finds its bad rows. [`ids`] derives the
//! id of an observation from the file's name and the row's content, so that a repeated import
//! counts nothing twice. [`inputs`] finds the files behind a path or a URL: a file, a MovieLens folder, an
//! export, the objects below a prefix.
//!
//! This crate sends nothing and prints nothing: the command line does. Memory does not grow with a
//! file beyond 80 MiB ([`repeats`]), except for the rows and items that occur in it more than once ([`ids::COUNTED_MAX`]).

pub mod cell;
pub mod check;
pub mod described;
pub mod display;
pub mod error;
pub mod ids;
pub mod input;
pub mod inputs;
pub mod kinds;
pub mod labels;
pub mod layout;
pub mod mapping;
mod objects;
pub mod observations;
mod occurrences;
pub mod repeats;
pub mod rules;
pub mod source;
pub mod times;

pub use check::{Checked, check};
pub use described::{DescribedRow, DescribedRows};
pub use error::{BadRow, ImportError};
pub use input::{Input, Origin};
pub use inputs::{Finding, find};
pub use mapping::{Mapping, Role};
pub use observations::{Observations, Taken};
pub use rules::Rules;
pub use source::Reading;
pub use times::TimeUnit;
