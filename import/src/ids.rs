//! Ids of observations, made of the file's name, the row's content, and a counter for equal rows.
//!
//! The content decides, not the place: a file that grew, at its end or at its beginning, or was
//! sorted differently has the same ids for its old rows. Equal rows are counted, so that they are
//! all kept; how often each content occurs must be remembered for that, but only for contents that
//! occur twice. A first reading of the file finds these, apart from few others ([`repeats`](crate::repeats)).

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use celeris_model::ObservationId;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::occurrences::Occurrences;
use crate::repeats::Repeats;

/// Maximum number of different contents that are counted for one file: some 300 MB.
pub const COUNTED_MAX: usize = 29_000_000;

/// Bytes of the file's name in an id; a longer name is cut, and counts as a whole in the hash.
const NAME_BYTES_MAX: usize = 64;

/// Makes the ids of one file's observations.
pub struct Ids {
    /// A hash of the file's whole name, and of its part.
    name_hash: u128,
    /// The beginning of each id.
    prefix: String,
    /// None if the file is read only once: then every content is counted.
    repeats: Option<Arc<Repeats>>,
    counts: Occurrences,
    counted_max: usize,
}

/// More different contents than are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl Ids {
    #[must_use]
    pub fn new(name: &str, part: Option<&str>, repeats: Option<Arc<Repeats>>) -> Self {
        let name_hash = match part {
            None => xxh3_128(name.as_bytes()),
            Some(part) => xxh3_128(format!("{name}/{part}").as_bytes()),
        };
        let counts = Occurrences::new(repeats.as_ref().map_or(0, |repeats| repeats.contents()));
        Self { name_hash, prefix: prefix(name), repeats, counts, counted_max: COUNTED_MAX }
    }

    /// The id of the next row, with this content.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn of_content(&mut self, content: u128) -> Result<String, TooMany> {
        let occurrence = match &self.repeats {
            Some(repeats) if !repeats.possible(content) => 1,
            _ => self.counts.count(content, self.counted_max).ok_or(TooMany)?,
        };
        let hash = BASE64_URL_SAFE_NO_PAD.encode((self.name_hash ^ content).to_be_bytes());
        let prefix = &self.prefix;
        Ok(if occurrence == 1 { format!("{prefix}:{hash}") } else { format!("{prefix}:{hash}:{occurrence}") })
    }

    /// An id that the node that exported the observation had made. Nodes reserve such ids for
    /// themselves.
    #[must_use]
    pub fn of_other_node(&self, id: &str) -> String {
        format!("{}:{id}", self.prefix)
    }
}

/// The beginning of a file's name, as part of an id: without control characters, and not like an
/// id that only a node assigns.
fn prefix(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
    let end = (0..=NAME_BYTES_MAX.min(clean.len())).rev().find(|end| clean.is_char_boundary(*end)).unwrap_or_default();
    let reserved = ObservationId::new(clean.as_str()).is_ok_and(|id| id.is_reserved());
    format!("{}{}", if reserved { "_" } else { "" }, &clean[..end])
}

/// A hash of bytes.
#[must_use]
pub fn hash(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// A hash of the lines of an import so far.
#[derive(Default)]
pub struct Digest(Xxh3);

impl Digest {
    /// Adds a line, without its break.
    pub fn add(&mut self, line: &[u8]) {
        self.0.update(line);
        self.0.update(b"\n");
    }

    /// The hash of the lines added so far.
    #[must_use]
    pub fn value(&self) -> u128 {
        self.0.digest128()
    }
}

/// The content of a row: a hash of its cells in their order.
#[must_use]
pub fn content<'a>(cells: impl Iterator<Item = Cow<'a, str>>) -> u128 {
    let mut hasher = Xxh3::new();
    for cell in cells {
        hasher.update(cell.as_bytes());
        // No cell of text holds this byte, so that cells cannot run into each other.
        hasher.update(&[0xff]);
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::collections::HashSet;

    use super::*;

    fn ids(name: &str, rows: &[&str]) -> Vec<String> {
        let contents: Vec<u128> = rows.iter().map(|row| content(row.split(',').map(Into::into))).collect();
        let mut repeats = Repeats::new(rows.len() as u64 * 4);
        contents.iter().for_each(|content| repeats.note(*content));
        let mut ids = Ids::new(name, None, Some(repeats.into()));
        contents.iter().map(|content| ids.of_content(*content).unwrap()).collect()
    }

    fn set(ids: Vec<String>) -> HashSet<String> {
        ids.into_iter().collect()
    }

    #[test]
    fn old_rows_of_a_file_that_grew_or_was_sorted_keep_their_ids() {
        let before = set(ids("jan.csv", &["a,1", "b,2", "a,1"]));
        assert_eq!(before.len(), 3, "equal rows are all kept");
        assert_eq!(set(ids("jan.csv", &["b,2", "a,1", "a,1"])), before);
        assert!(set(ids("jan.csv", &["new,1", "a,1", "b,2", "a,1", "new,2"])).is_superset(&before));
        assert!(set(ids("feb.csv", &["a,1", "b,2", "a,1"])).is_disjoint(&before));
        assert!(set(ids("jan.csv", &["a1,", "b2,"])).is_disjoint(&before));
    }

    #[test]
    fn a_file_that_is_read_once_has_the_ids_of_one_that_is_read_twice() {
        let mut once = Ids::new("jan.csv", None, None);
        let rows = ["a,1", "b,2", "a,1"];
        let read: Vec<String> =
            rows.iter().map(|row| once.of_content(content(row.split(',').map(Into::into))).unwrap()).collect();
        assert_eq!(read, ids("jan.csv", &rows));
    }

    #[test]
    fn counted_contents_are_bounded() {
        let mut once = Ids { counted_max: 2, ..Ids::new("x", None, None) };
        assert!(once.of_content(content(["a".into()].into_iter())).is_ok());
        assert!(once.of_content(content(["b".into()].into_iter())).is_ok());
        assert_eq!(once.of_content(content(["c".into()].into_iter())), Err(TooMany));
        assert!(once.of_content(content(["a".into()].into_iter())).is_ok());
    }

    #[test]
    fn ids_are_valid_however_long_the_name_is() {
        let name = "é".repeat(300);
        for id in ids(&name, &["a,1", "a,1"]) {
            assert!(id.len() < 128, "{id}");
            assert!(ObservationId::new(id).is_ok());
        }
        for name in ["~x", "default-reward-x", "a\u{7}b"] {
            assert!(ObservationId::new(ids(name, &["a,1"]).remove(0)).is_ok_and(|id| !id.is_reserved()), "{name:?}");
        }
    }
}
