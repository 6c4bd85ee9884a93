//! Data sets for Celeris: readers for MovieLens files and for logs of the Open Bandit Dataset, a
//! seeded synthetic generator with known true parameters, and a downloader.
//!
//! This crate contains no data and does not train or serve. It turns a path, a seed or a name into
//! ratings with the types of `celeris-model`, and errors name the location in the file.
//!
//! Modules: [`Dataset`] is the result type; [`movielens`] reads files (completely with
//! [`Dataset::load`], or one rating at a time with [`read_ratings`]); [`open_bandit`] and [`dsjson`] read logs of
//! a policy; [`synthetic`] generates films and users with known tastes, and clicks in contexts;
//! [`fetch()`] downloads, into a [`TemporaryFolder`] first; [`DatasetError`] is the error type.

mod dataset;
pub mod dsjson;
mod error;
pub mod fetch;
mod lines;
pub mod movielens;
pub mod open_bandit;
mod rows;
pub mod synthetic;
mod temporary_folder;

pub use dataset::{Dataset, ItemInfo, Rating};
pub use error::DatasetError;
pub use fetch::{FetchOptions, Fetched, fetch};
pub use movielens::{RatingReader, read_ratings};
pub use open_bandit::{Impression, OpenBandit};
pub use synthetic::{Synthetic, SyntheticSettings, Truth};
pub use temporary_folder::TemporaryFolder;
