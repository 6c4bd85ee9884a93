//! Log output: one line per event, whatever clients and trainers put into names, reasons and
//! errors. A line that is written for a request has its ids.

use std::fmt::{self, Write as _};
use std::io::IsTerminal;

use celeris_api::config::Config;
use celeris_api::scope;
use celeris_storage::{ROOTS, SPANS};
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::{MakeExt, RecordFields};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::Failure;
use crate::json_lines::{FIELD_BYTES_MAX, JsonLines};
use crate::traces::Traces;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
}

/// Starts logging to standard error, filtered by `RUST_LOG` or else by `level`.
pub fn start(form: Form, level: &str) {
    tracing_subscriber::registry().with(lines(form, level)).init();
}

/// Starts logging of a node at level `info`, and its traces if there is a collector for them.
///
/// # Errors
/// If a setting of the traces cannot be used.
pub fn start_node(form: Form, config: &Config) -> Result<Option<Traces>, Failure> {
    let node = config.cluster.node.as_ref().map(|node| node.as_str());
    let traces = Traces::open(&config.tracing, node).map_err(Failure::BadInput)?;
    let lines = lines(form, "info");
    match &traces {
        // A layer that is absent would still be asked about every span.
        None => tracing_subscriber::registry().with(lines).init(),
        Some(traces) => tracing_subscriber::registry().with(lines).with(traces.layer()).init(),
    }
    Ok(traces)
}

/// Writes events as lines. Spans of traces are not for it.
fn lines(form: Form, level: &str) -> Box<dyn Layer<Registry> + Send + Sync> {
    // The client of Kafka says at `info` whenever it connects.
    let default = || EnvFilter::new(format!("{level},rskafka=warn"));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default());
    let of_traces = [ROOTS, SPANS];
    let events = filter_fn(move |metadata| !of_traces.contains(&metadata.target()));
    let filter = events.with_max_level_hint(LevelFilter::TRACE).and(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = layer.with_ansi(std::io::stderr().is_terminal());
    match form {
        Form::Json => layer.event_format(JsonLines).with_filter(filter).boxed(),
        Form::Text => layer.fmt_fields(FieldsAndIds).with_filter(filter).boxed(),
    }
}

/// Writes the fields of an event, and the ids of the request behind them.
struct FieldsAndIds;

impl<'w> FormatFields<'w> for FieldsAndIds {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        debug_fn(write_field).delimited(" ").format_fields(writer.by_ref(), fields)?;
        let Some(ids) = scope::current_ids() else { return Ok(()) };
        write!(writer, " request_id={}", ids.request.as_str())?;
        ids.trace.map_or(Ok(()), |trace| write!(writer, " trace_id={trace}"))
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
