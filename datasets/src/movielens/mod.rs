//! Readers for the three formats that MovieLens has been published in.
//!
//! | ratings | titles | row of ratings | found in |
//! |---|---|---|---|
//! | `u.data` | `u.item`, `u.genre` | `user ⇥ item ⇥ rating ⇥ seconds` | MovieLens 100K |
//! | `ratings.dat` | `movies.dat` | `user::item::rating::seconds` | 1M, 10M |
//! | `ratings.csv` | `movies.csv` | by its header; the time may be missing | 20M and later |
//!
//! The names matter only for finding files in a folder. What a file *is* is decided by its first line, and whether it is
//! gzip by its first two bytes. All reading is in constant memory but for [`Dataset::load`], which is bounded.

mod catalog;
mod ids;
mod locate;
mod ratings;

use std::path::Path;

pub(crate) use locate::locate_ratings;
pub use ratings::{RatingReader, read_ratings};

use crate::{Dataset, DatasetError};

/// The most ratings that [`Dataset::load`] takes; about 5 GB. [`read_ratings`] has no such limit.
pub const LOADED_RATINGS_MAX: usize = 100_000_000;

/// The most titles that are read.
pub const ITEMS_MAX: usize = 5_000_000;

/// The longest row, in bytes. A title with its genres takes a few hundred.
pub const ROW_BYTES_MAX: usize = 16 * 1024;

impl Dataset {
    /// Reads a data set whole: a ratings file, or a folder that holds one, with the titles beside it if there are any.
    ///
    /// # Errors
    /// A [`DatasetError`] that names the file, and the line and field where it has come to them.
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
