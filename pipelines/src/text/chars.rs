//! N-grams of characters.

use super::{Columns, TextScratch, is_space};
use crate::keys::{EXACT_BYTES_MAX, column, key, mix};
use crate::spec::CharWindow;

/// Which n-grams of characters are counted, and in which columns.
#[derive(Debug, Clone)]
pub struct CharGrams {
    /// Smallest and largest number of characters.
    pub n: [usize; 2],
    pub window: CharWindow,
    pub columns: Columns,
}

/// Calls `hit` with the column of each n-gram of the text in lower case that `scratch` holds.
pub fn for_each_char_gram(grams: &CharGrams, scratch: &mut TextScratch, mut hit: impl FnMut(u32)) {
    match &grams.columns {
        Columns::Hashed(bits) => for_each_window(grams.n, grams.window, scratch, |key, _| hit(column(mix(key), *bits))),
        Columns::Dictionary(dictionary) => {
            let index = dictionary.strings_index();
            for_each_window(grams.n, grams.window, scratch, |key, gram| {
                index.column(key, gram).into_iter().for_each(&mut hit);
            });
        }
    }
}

/// Calls `take` with the key and the bytes of each n-gram of the text in lower case that `scratch` holds.
#[inline]
pub fn for_each_window(n: [usize; 2], window: CharWindow, scratch: &mut TextScratch, mut take: impl FnMut(u64, &[u8])) {
    let TextScratch { lowered, padded, starts, .. } = scratch;
    match window {
        CharWindow::Char => {
            let text = if has_wide_space(lowered) {
                padded.clear();
                shrink_spaces(lowered, padded);
                padded.as_str()
            } else {
                lowered.as_str()
            };
            for n in n[0]..=n[1] {
                windows(text, n, starts, &mut take);
            }
        }
        CharWindow::CharWb => {
            for word in lowered.split(is_space).filter(|word| !word.is_empty()) {
                padded.clear();
                padded.push(' ');
                padded.push_str(word);
                padded.push(' ');
                for n in n[0]..=n[1] {
                    // A word that is no longer than the n-gram counts once, whole, and for no longer n-gram.
                    let count = windows(padded, n, starts, &mut take);
                    if count == 0 {
                        take(key(padded.as_bytes()), padded.as_bytes());
                    }
                    if count <= 1 {
                        break;
                    }
                }
            }
        }
    }
}

/// Calls `take` for each sequence of `n` characters, and returns the number of sequences.
#[inline]
fn windows(text: &str, n: usize, starts: &mut Vec<u32>, take: &mut impl FnMut(u64, &[u8])) -> usize {
    let bytes = text.as_bytes();
    if text.is_ascii() {
        if bytes.len() < n {
            return 0;
        }
        if n <= EXACT_BYTES_MAX {
            ascii_windows(bytes, n, take);
        } else {
            bytes.windows(n).for_each(|window| take(key(window), window));
        }
        return bytes.len() - n + 1;
    }
    starts.clear();
    starts.extend(text.char_indices().map(|(at, _)| at as u32));
    starts.push(bytes.len() as u32);
    let spans = starts.windows(n + 1);
    let count = spans.len();
    for span in spans {
        let window = &bytes[span[0] as usize..span[n] as usize];
        take(key(window), window);
    }
    count
}

/// Sequences of `n` bytes, at most those that a key holds: the next key is the last one shifted by a byte.
#[inline]
fn ascii_windows(bytes: &[u8], n: usize, take: &mut impl FnMut(u64, &[u8])) {
    let length = (n as u64) << 56;
    let last = 8 * (n - 1);
    let mut packed = bytes[..n - 1].iter().rev().fold(0, |packed, byte| packed << 8 | u64::from(*byte)) << 8;
    for window in bytes.windows(n) {
        packed = packed >> 8 | u64::from(window[n - 1]) << last;
        take(packed | length, window);
    }
}

/// Whether two white-space characters are adjacent.
fn has_wide_space(text: &str) -> bool {
    if text.is_ascii() {
        // Without an early end, so that many bytes are compared at once.
        let is_space = |byte: u8| (byte.wrapping_sub(b'\t') < 5) | (byte.wrapping_sub(0x1c) < 5);
        let bytes = text.as_bytes();
        let pairs = bytes.iter().zip(bytes.iter().skip(1));
        return pairs.fold(false, |found, (one, next)| found | (is_space(*one) & is_space(*next)));
    }
    let mut before = false;
    text.chars().any(|letter| {
        let space = is_space(letter);
        std::mem::replace(&mut before, space) && space
    })
}

/// Appends the text with each run of two or more white-space characters as one space.
fn shrink_spaces(text: &str, shrunk: &mut String) {
    let mut spaces = 0;
    for letter in text.chars() {
        if is_space(letter) {
            spaces += 1;
            if spaces == 1 {
                shrunk.push(letter);
            } else if spaces == 2 {
                shrunk.pop();
                shrunk.push(' ');
            }
        } else {
            spaces = 0;
            shrunk.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use std::sync::Arc;

    use super::*;
    use crate::objects::Dictionary;

    /// The n-grams that are counted, by a dictionary of all that could be.
    fn grams(text: &str, n: [usize; 2], window: CharWindow) -> Vec<String> {
        let letters: Vec<char> = format!(" {text} ").chars().collect();
        let mut all: Vec<String> = (1..=letters.len())
            .flat_map(|n| letters.windows(n).map(|window| window.iter().collect()).collect::<Vec<String>>())
            .collect();
        all.extend(text.split(' ').map(|word| format!(" {word} ")));
        all.push("a b".to_owned());
        all.sort();
        all.dedup();
        let dictionary = Arc::new(Dictionary::new(&all).unwrap());
        let grams = CharGrams { n, window, columns: Columns::Dictionary(dictionary.clone()) };
        let mut scratch = TextScratch { lowered: text.to_owned(), ..TextScratch::default() };
        let mut found = Vec::new();
        for_each_char_gram(&grams, &mut scratch, |column| found.push(dictionary.string(column).unwrap().to_owned()));
        found
    }

    #[test]
    fn ascii_white_space_is_that_of_python() {
        for byte in 0..128_u8 {
            let letter = char::from(byte);
            assert_eq!(has_wide_space(&format!("a{letter} b")), is_space(letter), "{byte}");
        }
    }

    #[test]
    fn windows_slide_over_characters() {
        assert_eq!(grams("abcd", [2, 3], CharWindow::Char), ["ab", "bc", "cd", "abc", "bcd"]);
        assert_eq!(grams("aüb", [2, 2], CharWindow::Char), ["aü", "üb"]);
        assert_eq!(grams("ab", [3, 3], CharWindow::Char), Vec::<String>::new());
        assert_eq!(grams("abcdefghi", [8, 8], CharWindow::Char), ["abcdefgh", "bcdefghi"]);
        assert_eq!(grams("a \n b", [3, 3], CharWindow::Char), ["a b"]);
    }

    #[test]
    fn windows_within_words_see_their_ends_and_count_short_words_once() {
        assert_eq!(grams("ab c", [3, 3], CharWindow::CharWb), [" ab", "ab ", " c "]);
        assert_eq!(grams("a", [4, 6], CharWindow::CharWb), [" a "]);
        assert_eq!(grams("ab", [3, 5], CharWindow::CharWb), [" ab", "ab ", " ab "]);
        assert_eq!(grams("ü", [3, 4], CharWindow::CharWb), [" ü "]);
    }
}
