//! Sharing of ids: a million ratings name a few thousand users and items. Short ids lie in place, long ones are shared.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::str::FromStr;

use celeris_model::ModelError;

/// What an id must be, for errors.
pub(super) const EXPECTED_ID: &str = "an id of 1 to 256 bytes without control characters";

/// Distinct ids remembered. More than the users of any published MovieLens set; some tens of megabytes.
const IDS_MAX: usize = 1 << 18;

/// Hands out clones of an id instead of fresh copies.
///
/// When [`IDS_MAX`] ids are held it forgets them all, so that a file of any length is read in constant memory; long ids
/// seen again after that are allocated once more, which costs memory and is never wrong.
pub(super) struct SharedIds<T> {
    known: HashSet<T>,
}

impl<T: FromStr<Err = ModelError> + Borrow<str> + Eq + Hash + Clone> SharedIds<T> {
    pub(super) fn new() -> Self {
        Self { known: HashSet::new() }
    }

    /// The id of this text, checked when first seen.
    pub(super) fn get(&mut self, text: &str) -> Result<T, ModelError> {
        if let Some(id) = self.known.get(text) {
            return Ok(id.clone());
        }
        let id: T = text.parse()?;
        if self.known.len() == IDS_MAX {
            self.known.clear();
        }
        self.known.insert(id.clone());
        Ok(id)
    }
}
