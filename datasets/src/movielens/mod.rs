//! Readers for the three published MovieLens formats.
//!
//! | ratings | titles | row of ratings | found in |
//! |---|---|---|---|
//! | `u.data` | `u.item`, `u.genre` | `user ⇥ item ⇥ rating ⇥ seconds` | MovieLens 100K |
//! | `ratings.dat` | `movies.dat` | `user::item::rating::seconds` | 1M, 10M |
//! | `ratings.csv` | `movies.csv` | by its header; the time may be missing | 20M and later |
//!
//! File names are used only to find files in a folder. The format is detected from the first line,
//! and gzip from the first two bytes. Files are read in constant memory, except by
//! [`Dataset::load`], which is bounded.

mod catalog;
mod ids;
mod locate;
mod ratings;

use std::path::Path;

pub use catalog::read_beside;
pub use locate::locate_ratings;
pub use ratings::{RatingReader, read_ratings};

use crate::{Dataset, DatasetError};

/// Maximum number of ratings for [`Dataset::load`]; about 5 GB. [`read_ratings`] has no such limit.
pub const LOADED_RATINGS_MAX: usize = 100_000_000;

/// Maximum number of titles.
pub const ITEMS_MAX: usize = 5_000_000;

impl Dataset {
    /// Loads a data set into memory: a ratings file or a folder that holds one, with the titles
    /// next to it if there are any.
    ///
    /// # Errors
    /// A [`DatasetError`] with the file, and the line and field if known.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, DatasetError> {
        let reader = read_ratings(path)?;
        let file = reader.file().to_owned();
        let mut ratings = Vec::new();
        for rating in reader {
            if ratings.len() == LOADED_RATINGS_MAX {
                return Err(DatasetError::TooMany { file, what: "ratings", max: LOADED_RATINGS_MAX });
            }
            ratings.push(rating?);
        }
        let items = catalog::read_beside(&file)?;
        Ok(Self { name: locate::name_of(&file), ratings, items })
    }
}
