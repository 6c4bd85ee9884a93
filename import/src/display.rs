//! Values in messages for people.

/// Maximum number of characters of a value in an error.
const QUOTED_CHARS_MAX: usize = 60;

/// The beginning of a text, quoted and escaped to fit in one line of an error message.
#[must_use]
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

/// A time in Unix milliseconds as RFC 3339, or as the number if it is beyond the calendar.
#[must_use]
pub fn time(milliseconds: i64) -> String {
    jiff::Timestamp::from_millisecond(milliseconds).map_or_else(|_| milliseconds.to_string(), |time| time.to_string())
}
