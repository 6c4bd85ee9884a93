//! Log output: one line per event, whatever clients and trainers put into names, reasons and
//! errors.

use std::fmt::{self, Write as _};
use std::io::IsTerminal;

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Maximum bytes of one field of a log line; longer fields are truncated.
const FIELD_BYTES_MAX: usize = 4 << 10;

/// Starts logging to standard error, filtered by `RUST_LOG` or else by `level`.
pub fn start(json: bool, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    if json {
        builder.json().init();
    } else {
        builder.fmt_fields(debug_fn(write_field).delimited(" ")).init();
    }
}

/// Writes a field of a log line. Untrusted text enters text logs only here; the JSON format escapes
/// by itself.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    write!(Escaped { writer, left: FIELD_BYTES_MAX }, "{value:?}")
}

/// Escapes control characters, so that no text can end its line or control a terminal.
struct Escaped<'a, W> {
    writer: &'a mut W,
    /// Bytes that may still be written.
    left: usize,
}

impl<W: fmt::Write> fmt::Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.left == 0 {
                return Ok(());
            }
            self.left = self.left.saturating_sub(character.len_utf8());
            if self.left == 0 {
                return self.writer.write_char('…');
            }
            // Some readers treat Unicode line and paragraph separators as line ends.
            if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
                write!(self.writer, "{}", character.escape_default())?;
            } else {
                self.writer.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_fields_are_cut() {
        let mut line = String::new();
        let forged = "done\n2026-01-01 ERROR\r\x1b[31m\u{2028}\u{85}é";
        write!(Escaped { writer: &mut line, left: 100 }, "{forged}").unwrap();
        assert_eq!(line, r"done\n2026-01-01 ERROR\r\u{1b}[31m\u{2028}\u{85}é");
        line.clear();
        let (begun, cut) = ("ab", "cdefgh");
        write!(Escaped { writer: &mut line, left: 4 }, "{begun}{cut}").unwrap();
        assert_eq!(line, "abc…");
    }
}
