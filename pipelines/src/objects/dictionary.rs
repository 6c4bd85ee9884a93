//! Strings and their columns.

use std::sync::OnceLock;

use hashbrown::HashSet;

use super::codec::{Decoder, Encoder};
use super::index::Index;
use crate::error::PipelineError;
use crate::keys::{chain, is_exact, key, mix};
use crate::limits::{DICTIONARY_MAX, OBJECT_BYTES_MAX, STRING_BYTES_MAX};

/// Distinct strings; the column of a string is its position. Look-ups are exact.
#[derive(Debug)]
pub struct Dictionary {
    /// The strings, one after the other.
    text: String,
    /// Where each string begins, and where the last one ends.
    starts: Vec<u32>,
    /// By the key of a string.
    by_string: OnceLock<Index>,
    /// By the chained hashes of the words of a string. Each index is built when a plan that needs it is compiled: a
    /// dictionary of words needs one, a dictionary of characters the other.
    by_words: OnceLock<Index>,
}

impl Dictionary {
    /// # Errors
    /// [`PipelineError::Object`] beyond the limits, or for a string that occurs twice.
    pub fn new<S: AsRef<str>>(strings: impl IntoIterator<Item = S>) -> Result<Self, PipelineError> {
        let (mut text, mut starts) = (String::new(), vec![0]);
        for string in strings {
            let string = string.as_ref();
            if string.len() > STRING_BYTES_MAX {
                let problem = format!("has a string of {} bytes, the maximum is {STRING_BYTES_MAX}", string.len());
                return Err(PipelineError::object(problem));
            }
            text.push_str(string);
            if starts.len() > DICTIONARY_MAX || text.len() > OBJECT_BYTES_MAX {
                let problem = format!("has more than {DICTIONARY_MAX} strings or {OBJECT_BYTES_MAX} bytes");
                return Err(PipelineError::object(problem));
            }
            starts.push(text.len() as u32);
        }
        Self::checked(text, starts)
    }

    fn checked(text: String, starts: Vec<u32>) -> Result<Self, PipelineError> {
        let dictionary = Self { text, starts, by_string: OnceLock::new(), by_words: OnceLock::new() };
        let mut seen = HashSet::with_capacity(dictionary.len());
        if let Some(string) = dictionary.strings().find(|string| !seen.insert(*string)) {
            return Err(PipelineError::object(format!("has the string {string:?} twice")));
        }
        drop(seen);
        Ok(dictionary)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The strings in the order of their columns.
    pub fn strings(&self) -> impl Iterator<Item = &str> {
        self.starts.windows(2).map(|range| &self.text[range[0] as usize..range[1] as usize])
    }

    /// The string of a column.
    #[must_use]
    pub fn string(&self, column: u32) -> Option<&str> {
        let range = self.starts.get(column as usize..)?.get(..2)?;
        Some(&self.text[range[0] as usize..range[1] as usize])
    }

    #[inline]
    fn bytes_of(&self, column: u32) -> &[u8] {
        let at = column as usize;
        &self.text.as_bytes()[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// The column of a string.
    #[inline]
    #[must_use]
    pub fn column(&self, string: &[u8]) -> Option<u32> {
        self.strings_index().column(key(string), string)
    }

    /// The index for look-ups of strings.
    #[must_use]
    pub fn strings_index(&self) -> StringsIndex<'_> {
        StringsIndex { dictionary: self, index: self.by_string.get_or_init(|| self.index(Self::key_of_string)) }
    }

    /// The index for look-ups of n-grams of words.
    #[must_use]
    pub fn words_index(&self) -> WordsIndex<'_> {
        WordsIndex { dictionary: self, index: self.by_words.get_or_init(|| self.index(Self::key_of_words)) }
    }

    fn key_of_string(string: &[u8]) -> (u64, bool) {
        let key = key(string);
        (key, is_exact(key))
    }

    fn key_of_words(string: &[u8]) -> (u64, bool) {
        let mut words = string.split(|byte| *byte == b' ').map(key);
        let first = words.next().unwrap_or_default();
        let mut is_short_word = is_exact(first);
        let hash = words.fold(mix(first), |hash, word| {
            is_short_word = false;
            chain(hash, mix(word))
        });
        (hash, is_short_word)
    }

    fn index(&self, key_of: impl Fn(&[u8]) -> (u64, bool)) -> Index {
        let strings = (0..self.len()).map(|column| self.bytes_of(column as u32));
        Index::new(&self.text, strings, key_of)
    }

    pub(super) fn write(&self, encoder: &mut Encoder) {
        encoder.count(self.len());
        for string in self.strings() {
            let length = u16::try_from(string.len()).expect("strings have at most 256 bytes");
            encoder.raw(&length.to_le_bytes());
        }
        encoder.raw(self.text.as_bytes());
    }

    pub(super) fn read(decoder: &mut Decoder) -> Result<Self, PipelineError> {
        let count = decoder.count("strings", DICTIONARY_MAX)?;
        let (lengths, _) = decoder.take(count * size_of::<u16>())?.as_chunks();
        let mut starts = Vec::with_capacity(count + 1);
        let mut end = 0_u32;
        starts.push(end);
        for length in lengths {
            let length = u16::from_le_bytes(*length);
            if usize::from(length) > STRING_BYTES_MAX {
                let problem = format!("has a string of {length} bytes, the maximum is {STRING_BYTES_MAX}");
                return Err(PipelineError::object(problem));
            }
            // At most 2^22 strings of 256 bytes.
            end += u32::from(length);
            starts.push(end);
        }
        let text = decoder.take(end as usize)?;
        let text = std::str::from_utf8(text).map_err(|_| PipelineError::object("has strings that are not UTF-8"))?;
        if starts.iter().any(|start| !text.is_char_boundary(*start as usize)) {
            return Err(PipelineError::object("has strings that are not UTF-8"));
        }
        Self::checked(text.to_owned(), starts)
    }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.starts == other.starts
    }
}

/// Looks up strings by their keys.
#[derive(Debug, Clone, Copy)]
pub struct StringsIndex<'a> {
    dictionary: &'a Dictionary,
    index: &'a Index,
}

impl StringsIndex<'_> {
    /// The column of a string with this [`key`].
    #[inline]
    #[must_use]
    pub fn column(self, key: u64, string: &[u8]) -> Option<u32> {
        self.index.find(key, true, |column| self.dictionary.bytes_of(column) == string, || string.to_vec())
    }
}

/// Looks up n-grams of words by the hashes of the words.
#[derive(Debug, Clone, Copy)]
pub struct WordsIndex<'a> {
    dictionary: &'a Dictionary,
    index: &'a Index,
}

impl WordsIndex<'_> {
    /// The column of an n-gram with this [`chain`] of hashes: words at these ranges of a text, of which none contains a
    /// space, with single spaces between them.
    #[inline]
    pub fn column(self, hash: u64, text: &str, words: &[[u32; 2]]) -> Option<u32> {
        let is_it = |column: u32| is_joined(self.dictionary.bytes_of(column), text, words);
        // The hash of one short word is a bijection of its bytes.
        self.index.find(hash, words.len() == 1, is_it, || joined(text, words))
    }
}

fn word(text: &str, [begin, end]: [u32; 2]) -> &[u8] {
    &text.as_bytes()[begin as usize..end as usize]
}

/// Whether these bytes are the words with single spaces between them.
fn is_joined(string: &[u8], text: &str, words: &[[u32; 2]]) -> bool {
    let mut rest = string;
    for (position, range) in words.iter().enumerate() {
        let after_space = if position > 0 { rest.strip_prefix(b" ") } else { Some(rest) };
        let Some(after) = after_space.and_then(|rest| rest.strip_prefix(word(text, *range))) else { return false };
        rest = after;
    }
    rest.is_empty()
}

fn joined(text: &str, words: &[[u32; 2]]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|range| word(text, *range)).collect();
    words.join(&b' ')
}
