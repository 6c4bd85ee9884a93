//! Operators over texts, each with a value of its own. Stages of texts run chains of them in one pass instead.

use crate::spec::Words;
use crate::text::{
    CharGrams, TextScratch, WordGrams, count_hits, for_each_char_gram, for_each_word_gram, hash_words, lower_into,
    split_words,
};
use crate::values::{Slot, View};

/// Writes the text in lower case and the ranges of its words.
pub(super) fn tokenize(rule: Words, input: View, out: &mut Slot) {
    let (lowered, words) = out.texts();
    if let View::Text(text) = input {
        lower_into(text, lowered);
        split_words(lowered, rule, words);
    }
}

pub(super) fn word_ngrams(grams: &WordGrams, input: View, scratch: &mut TextScratch, out: &mut Slot) {
    scratch.hits.clear();
    if let View::Texts(text, words) = input {
        scratch.hashes.clear();
        hash_words(text, words, &mut scratch.hashes);
        for_each_word_gram(grams, text, words, &scratch.hashes, |column| scratch.hits.push(column));
    }
    let (columns, counts) = out.sparse();
    count_hits(&mut scratch.hits, columns, counts);
}

pub(super) fn char_ngrams(grams: &CharGrams, input: View, scratch: &mut TextScratch, out: &mut Slot) {
    let mut hits = std::mem::take(&mut scratch.hits);
    hits.clear();
    if let View::Text(text) = input {
        scratch.lowered.clear();
        lower_into(text, &mut scratch.lowered);
        for_each_char_gram(grams, scratch, |column| hits.push(column));
    }
    let (columns, counts) = out.sparse();
    count_hits(&mut hits, columns, counts);
    scratch.hits = hits;
}
