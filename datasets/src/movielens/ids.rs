//! Sharing of ids: a million ratings contain a few thousand users and items. Short ids are stored
//! inline, long ones are shared.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::str::FromStr;

use celeris_model::ModelError;

/// Description of a valid id, for errors.
pub(super) const EXPECTED_ID: &str = "an id of 1 to 256 bytes without control characters";

/// Maximum number of ids in memory: more than the users of any published MovieLens set; some tens
/// of megabytes.
const IDS_MAX: usize = 1 << 18;

/// Returns clones of known ids instead of new copies.
///
/// When [`IDS_MAX`] ids are held, all are dropped, so that a file of any length is read in constant
/// memory; a long id that occurs again later is allocated again, which only costs memory.
pub(super) struct SharedIds<T> {
    known: HashSet<T>,
}

impl<T: FromStr<Err = ModelError> + Borrow<str> + Eq + Hash + Clone> SharedIds<T> {
    pub(super) fn new() -> Self {
        Self { known: HashSet::new() }
    }

    /// The id for this text, validated when it is new.
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
