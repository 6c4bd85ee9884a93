//! Hashed words and trigrams of a text.

use xxhash_rust::xxh3::Xxh3;

/// Maximum number of bytes read from a text.
const TEXT_BYTES_MAX: usize = 4096;

/// Number of characters of a piece of a word.
const PIECE: usize = 3;

/// The kind of a hashed token, so that equal texts of different kinds have different columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// A boolean or keyword.
    Value = 0,
    /// An element of a list of strings.
    Tag = 1,
    /// A word of a text.
    Word = 2,
    /// A trigram of a word of a text.
    Piece = 3,
}

/// The hash of a token of a field. The columns stored in version directories depend on it, so it
/// must not change.
pub(super) fn hash(field: &str, token: Token, text: &str) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field.as_bytes());
    hasher.update(&[token as u8]);
    hasher.update(text.as_bytes());
    hasher.digest()
}

/// The hashes of a text's words in lower case, and of every trigram of `^word$`: words distinguish
/// texts, trigrams match parts that words share, such as the decade of a year.
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
    fn words_ignore_case_and_punctuation() {
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
    fn a_long_text_is_truncated_between_letters() {
        let long = "ü".repeat(TEXT_BYTES_MAX);
        assert_eq!(text_tokens("plot", &long).len(), 1 + TEXT_BYTES_MAX / 2);
    }

    #[test]
    fn hashes_equal_those_of_existing_versions() {
        assert_eq!(hash("genres", Token::Tag, "Drama"), 0x8d02_3bc0_a50e_cb48);
    }
}
