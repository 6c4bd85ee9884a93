//! Words and pieces of words of a text, hashed.

use xxhash_rust::xxh3::Xxh3;

/// Only so many bytes of a text are read; the first ones tell what a text is about.
const TEXT_BYTES_MAX: usize = 4096;

/// Characters of a piece of a word.
const PIECE: usize = 3;

/// What a hashed token is, so that equal texts of different meaning have different columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// One of few values.
    Value = 0,
    /// One of a list.
    Tag = 1,
    /// A word of a text.
    Word = 2,
    /// Some letters of a word of a text.
    Piece = 3,
}

/// The hash of a token of a field. It is kept in version directories by the columns it leads to, so it must not change.
pub(super) fn hash(field: &str, token: Token, text: &str) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field.as_bytes());
    hasher.update(&[token as u8]);
    hasher.update(text.as_bytes());
    hasher.digest()
}

/// The hashes of a text's words in lower case, and of every three letters in a row of `^word$`: words tell apart, pieces
/// see what words share, such as the decade of a year.
pub(super) fn text_tokens(field: &str, text: &str) -> Vec<u64> {
    let end = text.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= TEXT_BYTES_MAX);
    let text = text[..end.last().unwrap_or(0)].to_lowercase();
    let mut tokens = Vec::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        tokens.push(hash(field, Token::Word, word));
        let framed: Vec<char> = std::iter::once('^').chain(word.chars()).chain(std::iter::once('$')).collect();
        tokens.extend(framed.windows(PIECE).map(|piece| hash(field, Token::Piece, &piece.iter().collect::<String>())));
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whatever_their_case_and_what_stands_between() {
        assert_eq!(text_tokens("title", "Toy Story (1995)"), text_tokens("title", "toy-story 1995!"));
        assert_ne!(text_tokens("title", "toy"), text_tokens("plot", "toy"));
        assert!(text_tokens("title", " -- ").is_empty());
    }

    #[test]
    fn years_of_a_decade_share_pieces() {
        let (first, second) = (text_tokens("title", "1995"), text_tokens("title", "1997"));
        assert_eq!(first.iter().filter(|token| second.contains(token)).count(), 2, "^19 and 199");
    }

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let long = "ü".repeat(TEXT_BYTES_MAX);
        assert_eq!(text_tokens("plot", &long).len(), 1 + TEXT_BYTES_MAX / 2);
    }

    #[test]
    fn hashes_are_what_existing_versions_were_fitted_with() {
        assert_eq!(hash("genres", Token::Tag, "Drama"), 0x8d02_3bc0_a50e_cb48);
    }
}
