//! The delimiter of a file, guessed from its first lines.

use csv::ReaderBuilder;

/// What separates the fields of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// One byte; fields may be quoted.
    Byte(u8),
    /// `::`, as in older MovieLens files; there are no quotes.
    DoubleColon,
}

/// Lines that are looked at.
const LINES: usize = 50;

impl Delimiter {
    /// Guessed in this order where the lines leave a choice.
    const CANDIDATES: [Self; 5] =
        [Self::DoubleColon, Self::Byte(b'\t'), Self::Byte(b';'), Self::Byte(b','), Self::Byte(b'|')];

    /// The delimiter for a text of the command line.
    ///
    /// # Errors
    /// What is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        match (text, text.as_bytes()) {
            ("\\t" | "tab", _) => Ok(Self::Byte(b'\t')),
            ("::", _) => Ok(Self::DoubleColon),
            (_, [byte]) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(Self::Byte(*byte)),
            _ => Err(format!("expected one character, \"tab\" or \"::\", got {text:?}")),
        }
    }

    /// The delimiter in quotes, for people.
    #[must_use]
    pub fn shown(self) -> String {
        match self {
            Self::Byte(b'\t') => "tab".to_owned(),
            Self::Byte(byte) => format!("{:?}", char::from(byte).to_string()),
            Self::DoubleColon => "\"::\"".to_owned(),
        }
    }

    /// The delimiter that splits the most lines into as many fields as the first line, of at least
    /// two.
    pub(super) fn guess<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let lines: Vec<&[u8]> = lines.take(LINES).collect();
        let agreement = |delimiter: Self| {
            let widths: Vec<usize> = lines.iter().map(|line| delimiter.width(line)).collect();
            let first = widths.first().copied().filter(|width| *width > 1)?;
            Some((widths.iter().filter(|width| **width == first).count(), delimiter))
        };
        let found: Vec<(usize, Self)> = Self::CANDIDATES.into_iter().filter_map(agreement).collect();
        let most = found.iter().map(|(lines, _)| *lines).max()?;
        found.into_iter().find(|(lines, _)| *lines == most).map(|(_, delimiter)| delimiter)
    }

    /// The number of fields of a line.
    fn width(self, line: &[u8]) -> usize {
        match self {
            Self::DoubleColon => line.windows(2).filter(|pair| *pair == b"::").count() + 1,
            Self::Byte(byte) => {
                let mut reader =
                    ReaderBuilder::new().delimiter(byte).has_headers(false).flexible(true).from_reader(line);
                let mut record = csv::ByteRecord::new();
                match reader.read_byte_record(&mut record) {
                    Ok(true) => record.len(),
                    _ => 0,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(text: &str) -> Option<Delimiter> {
        Delimiter::guess(text.lines().map(str::as_bytes))
    }

    #[test]
    fn delimiters_are_recognised() {
        assert_eq!(guess("user,item,label\n1,2,3\n"), Some(Delimiter::Byte(b',')));
        assert_eq!(guess("customer_id;product_id;qty\nc;p;3,5\n"), Some(Delimiter::Byte(b';')));
        assert_eq!(guess("user\titem\n\"a, b\"\tc, d\n"), Some(Delimiter::Byte(b'\t')));
        assert_eq!(guess("1::1193::5::978300760\n1::661::3::978302109\n"), Some(Delimiter::DoubleColon));
        assert_eq!(guess("user|item|genres\n1|2|x\n"), Some(Delimiter::Byte(b'|')));
        assert_eq!(guess("movieId,title,genres\n1,\"A; B\",Drama|War\n2,C,War\n"), Some(Delimiter::Byte(b',')));
        assert_eq!(guess("user,item,genres|x\n1,2,Drama\n2,3,A|B|C\n"), Some(Delimiter::Byte(b',')));
        assert_eq!(guess("a\n1\n"), None);
    }
}
