//! Values in messages for people.

use std::borrow::Cow;

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

/// The beginning of a name in a file, escaped if it would not show as it is.
#[must_use]
pub fn name(name: &str) -> Cow<'_, str> {
    let is_short = name.len() <= QUOTED_CHARS_MAX || name.chars().nth(QUOTED_CHARS_MAX).is_none();
    if is_short && !name.chars().any(char::is_control) { name.into() } else { quoted(name).into() }
}

/// A time in Unix milliseconds as RFC 3339; `None` if it is beyond the calendar.
pub(crate) fn calendar_time(milliseconds: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(milliseconds).ok().map(|time| time.to_string())
}

/// A time in Unix milliseconds as RFC 3339, or in words if it is beyond the calendar.
#[must_use]
pub fn time(milliseconds: i64) -> String {
    let beyond = if milliseconds > 0 { "a time after the year 9999" } else { "a time before the year -9999" };
    calendar_time(milliseconds).unwrap_or_else(|| beyond.to_owned())
}
