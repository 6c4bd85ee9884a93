//! Data for Celeris: readers for the MovieLens files and for the logs of the Open Bandit Dataset, a seeded synthetic
//! generator that knows the truth, and a downloader.
//!
//! What this crate is not: it holds no data, trains nothing and serves nothing. It turns a path, a seed or a name into
//! ratings in the vocabulary of `celeris-model`, and says exactly where a file is wrong.
//!
//! Where to look: [`Dataset`] for what everything ends in, [`movielens`] for reading files (whole with
//! [`Dataset::load`], or one rating at a time with [`read_ratings`]), [`open_bandit`] for logs of a policy,
//! [`synthetic`] for invented films and users whose tastes are known, [`fetch()`] for downloads, [`DatasetError`] for
//! everything that can be wrong.

mod dataset;
mod error;
pub mod fetch;
mod lines;
pub mod movielens;
pub mod open_bandit;
mod rows;
pub mod synthetic;

pub use dataset::{Dataset, ItemInfo, Rating};
pub use error::DatasetError;
pub use fetch::{FetchOptions, Fetched, fetch};
pub use movielens::{RatingReader, read_ratings};
pub use open_bandit::{Impression, OpenBandit};
pub use synthetic::{Synthetic, SyntheticSettings, Truth};
