//! Words and n-grams of texts, in one pass and without building strings.

mod chars;
mod words;

use crate::limits::TEXT_BYTES_MAX;
use crate::objects::Dictionary;
use crate::values::Span;

pub use chars::{CharGrams, for_each_char_gram, for_each_window};
pub use words::{WordGrams, for_each_word_gram, hash_words, split_words};

/// The columns of n-grams.
#[derive(Debug, Clone)]
pub enum Columns {
    /// Of those in a dictionary.
    Dictionary(std::sync::Arc<Dictionary>),
    /// Of all, among `2^bits`.
    Hashed(u32),
}

impl Columns {
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            Self::Dictionary(dictionary) => dictionary.len() as u32,
            Self::Hashed(bits) => 1 << bits,
        }
    }
}

/// Buffers of the work on one text.
#[derive(Debug, Clone, Default)]
pub struct TextScratch {
    /// The text in lower case.
    pub lowered: String,
    /// Its words.
    pub words: Vec<Span>,
    /// A hash for each word.
    pub hashes: Vec<u64>,
    /// The text with its white space as character n-grams see it.
    padded: String,
    /// Where its characters begin.
    starts: Vec<u32>,
    /// Columns of n-grams, in the order of the text.
    pub hits: Vec<u32>,
}

/// The beginning of a text, at most [`TEXT_BYTES_MAX`] and whole characters.
#[must_use]
pub fn bounded_text(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Appends the text in lower case.
pub fn lower_into(text: &str, lowered: &mut String) {
    let text = bounded_text(text);
    if text.is_ascii() {
        let begin = lowered.len();
        lowered.push_str(text);
        lowered[begin..].make_ascii_lowercase();
    } else {
        // The lower case of a sigma at the end of a word depends on its neighbours; that of other letters does not.
        if text.contains('Σ') {
            lowered.push_str(&text.to_lowercase());
        } else {
            lowered.extend(text.chars().flat_map(char::to_lowercase));
        }
    }
}

/// White space as Python's `str.split` sees it.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\x1c'..='\x1f').contains(&letter)
}

/// Turns hits into ascending columns with their counts.
pub fn count_hits(hits: &mut [u32], columns: &mut Vec<u32>, counts: &mut Vec<f32>) {
    hits.sort_unstable();
    for run in hits.chunk_by(|one, other| one == other) {
        columns.push(run[0]);
        counts.push(run.len() as f32);
    }
}
