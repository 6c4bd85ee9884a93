//! Words and their n-grams.

use super::Columns;
use crate::keys::{chain, column, key, mix};
use crate::spec::Words;
use crate::values::Span;

/// Which n-grams of words are counted, and in which columns.
#[derive(Debug, Clone)]
pub struct WordGrams {
    /// Smallest and largest number of words.
    pub n: [usize; 2],
    pub columns: Columns,
}

/// The ASCII characters of words: letters, digits, and underscores if `joins` is one.
const fn ascii_words(joins: u8) -> [bool; 128] {
    let mut belongs = [false; 128];
    let mut byte = 0_u8;
    while byte < 128 {
        belongs[byte as usize] = byte.is_ascii_alphanumeric() || byte == joins;
        byte += 1;
    }
    belongs
}

const LETTERS: [bool; 128] = ascii_words(b'a');
const LETTERS_AND_UNDERSCORES: [bool; 128] = ascii_words(b'_');

/// Appends the ranges of the words of a text in lower case. Python counts combining marks to no word, where this follows
/// Unicode's alphabetic property; otherwise [`Words::TwoOrMore`] finds the same words.
pub fn split_words(lowered: &str, rule: Words, words: &mut Vec<Span>) {
    match rule {
        Words::Unicode => runs(lowered, words, &LETTERS, 1),
        Words::TwoOrMore => runs(lowered, words, &LETTERS_AND_UNDERSCORES, 2),
    }
}

/// Appends runs of at least `min` characters that belong to words.
#[inline]
fn runs(text: &str, words: &mut Vec<Span>, ascii: &[bool; 128], min: usize) {
    let bytes = text.as_bytes();
    let (mut at, mut begin, mut letters) = (0, 0, 0);
    while at < bytes.len() {
        let (belongs, length) = match ascii.get(usize::from(bytes[at])) {
            Some(belongs) => (*belongs, 1),
            None => {
                let letter = text[at..].chars().next().unwrap_or(' ');
                (letter.is_alphanumeric(), letter.len_utf8())
            }
        };
        if belongs {
            letters += 1;
        } else {
            if letters >= min {
                words.push([begin as u32, at as u32]);
            }
            (letters, begin) = (0, at + length);
        }
        at += length;
    }
    if letters >= min {
        words.push([begin as u32, at as u32]);
    }
}

/// Appends the hash of each word.
pub fn hash_words(text: &str, words: &[Span], hashes: &mut Vec<u64>) {
    let bytes = text.as_bytes();
    hashes.extend(words.iter().map(|[begin, end]| mix(key(&bytes[*begin as usize..*end as usize]))));
}

/// Calls `hit` with the column of each n-gram, in the order of their first words, shorter ones first.
#[inline]
pub fn for_each_word_gram(grams: &WordGrams, text: &str, words: &[Span], hashes: &[u64], mut hit: impl FnMut(u32)) {
    match &grams.columns {
        Columns::Hashed(bits) => each(grams.n, hashes, |hash, _, _| hit(column(hash, *bits))),
        Columns::Dictionary(dictionary) => {
            let index = dictionary.words_index();
            each(grams.n, hashes, |hash, first, count| {
                index.column(hash, text, &words[first..first + count]).into_iter().for_each(&mut hit);
            });
        }
    }
}

/// Calls `take` with the hash, the first word and the number of words of each n-gram.
#[inline]
fn each([min, max]: [usize; 2], hashes: &[u64], mut take: impl FnMut(u64, usize, usize)) {
    for first in 0..hashes.len() {
        let mut hash = 0;
        for (count, word) in (1..=max).zip(&hashes[first..]) {
            hash = if count == 1 { *word } else { chain(hash, *word) };
            if count >= min {
                take(hash, first, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use std::sync::Arc;

    use super::*;
    use crate::objects::Dictionary;

    fn words_of(text: &str, rule: Words) -> Vec<&str> {
        let mut words = Vec::new();
        split_words(text, rule, &mut words);
        words.iter().map(|[begin, end]| &text[*begin as usize..*end as usize]).collect()
    }

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        let text = "it's a 21st-century über_film, naïve 東京!";
        assert_eq!(
            words_of(text, Words::Unicode),
            ["it", "s", "a", "21st", "century", "über", "film", "naïve", "東京"]
        );
        assert_eq!(words_of(text, Words::TwoOrMore), ["it", "21st", "century", "über_film", "naïve", "東京"]);
        assert!(words_of("", Words::Unicode).is_empty() && words_of(" - ", Words::TwoOrMore).is_empty());
    }

    #[test]
    fn ngrams_are_found_by_their_words_whatever_stands_between_them() {
        let strings = ["good", "a very extraordinary", "very extraordinary", "extraordinary film", "verygood"];
        let dictionary = Arc::new(Dictionary::new(strings).unwrap());
        let grams = WordGrams { n: [1, 3], columns: Columns::Dictionary(dictionary) };
        let text = "a very, extraordinary -- film: good very good";
        let (mut words, mut hashes, mut hits) = (Vec::new(), Vec::new(), Vec::new());
        split_words(text, Words::Unicode, &mut words);
        hash_words(text, &words, &mut hashes);
        for_each_word_gram(&grams, text, &words, &hashes, |column| hits.push(column));
        assert_eq!(hits, [1, 2, 3, 0, 0]);
    }
}
