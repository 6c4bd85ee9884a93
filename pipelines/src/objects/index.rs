//! An index of a dictionary: open addressing with linear probing, at most half full.
//!
//! Dictionaries come from clients, who could choose strings whose hashes collide. Positions depend on a hash of the whole
//! dictionary, and a string that finds no place among the first [`PROBES_MAX`] goes into a table with random hashes, so
//! that neither building nor looking up takes long.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Number of places that are tried. At half load, with hashes that do not collide, the longest run among 2^22 strings is
/// shorter.
const PROBES_MAX: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    /// [`NONE`] for an empty place.
    column: u32,
    /// Whether an equal key means the equal string.
    exact: bool,
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Index {
    entries: Box<[Entry]>,
    seed: u64,
    /// Leaves as many bits of a hash as positions have.
    shift: u32,
    /// Strings whose places were taken, and their columns.
    others: HashMap<Box<[u8]>, u32>,
}

impl Index {
    /// Indexes strings by their keys; `key_of` also returns whether an equal key means the equal string.
    pub fn new<'a>(
        text: &str,
        strings: impl ExactSizeIterator<Item = &'a [u8]>,
        key_of: impl Fn(&[u8]) -> (u64, bool),
    ) -> Self {
        let size = (2 * strings.len()).next_power_of_two().max(2);
        let empty = Entry { key: 0, column: NONE, exact: false };
        let mut index = Self {
            entries: vec![empty; size].into(),
            seed: xxh3_64(text.as_bytes()),
            shift: u64::BITS - size.ilog2(),
            others: HashMap::new(),
        };
        for (column, string) in (0..).zip(strings) {
            let (key, exact) = key_of(string);
            match index.probes(key).find(|place| index.entries[*place].column == NONE) {
                Some(place) => index.entries[place] = Entry { key, column, exact },
                None => {
                    index.others.insert(string.into(), column);
                }
            }
        }
        index
    }

    #[inline]
    fn probes(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let first = (key ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        let mask = self.entries.len() - 1;
        (0..PROBES_MAX.min(mask + 1)).map(move |probe| (first as usize + probe) & mask)
    }

    /// The column of a string with this key. `is_it` compares the string of a column with it, unless `is_exact`, and
    /// `string` writes it, which is hardly ever needed.
    #[inline]
    pub fn find(
        &self,
        key: u64,
        is_exact: bool,
        is_it: impl Fn(u32) -> bool,
        string: impl FnOnce() -> Vec<u8>,
    ) -> Option<u32> {
        for place in self.probes(key) {
            let entry = self.entries[place];
            if entry.column == NONE {
                return None;
            }
            if entry.key == key && (entry.exact && is_exact || is_it(entry.column)) {
                return Some(entry.column);
            }
        }
        if self.others.is_empty() { None } else { self.others.get(string().as_slice()).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_strings_are_found() {
        let strings: Vec<String> = (0..5000).map(|number| format!("string {number}")).collect();
        let bytes = || strings.iter().map(String::as_bytes);
        // One key for all.
        let index = Index::new("", bytes(), |_| (7, false));
        assert_eq!(index.others.len(), strings.len() - PROBES_MAX);
        for (column, string) in (0..).zip(bytes()) {
            let is_it = |other: u32| strings[other as usize].as_bytes() == string;
            assert_eq!(index.find(7, false, is_it, || string.to_vec()), Some(column));
        }
        assert_eq!(index.find(7, false, |_| false, || b"another".to_vec()), None);
    }

    #[test]
    fn hashes_that_do_not_collide_find_places() {
        let strings: Vec<[u8; 4]> = (0..1_000_000_u32).map(u32::to_le_bytes).collect();
        let index = Index::new("", strings.iter().map(<[u8; 4]>::as_slice), |string| (crate::keys::key(string), true));
        assert!(index.others.is_empty());
    }
}
