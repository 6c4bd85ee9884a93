//! Log lines as JSON, with the field names that `docs/run/monitoring.md` promises.

use std::fmt::{self, Write as _};

use celeris_api::scope;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Maximum bytes of one field of a log line, in any form; longer fields are truncated.
pub const FIELD_BYTES_MAX: usize = 4 << 10;

/// The target of records of the crate `log`, which have their own in a field.
const BRIDGED: &str = "log";

/// Writes one JSON object for each event.
#[derive(Debug)]
pub struct JsonLines;

/// A line; the order of its fields is that in the log.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'static str,
    target: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: &'a Map<String, Value>,
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut found = Fields::default();
        event.record(&mut found);
        let ids = scope::current_ids();
        let metadata = event.metadata();
        let bridged = found.bridged_target.as_deref().filter(|_| metadata.target() == BRIDGED);
        let line = Line {
            timestamp: format!("{:.6}", Timestamp::now()),
            level: metadata.level().as_str(),
            target: bridged.unwrap_or_else(|| metadata.target()),
            message: &found.message,
            request_id: ids.as_ref().map(|ids| ids.request.as_str()),
            trace_id: ids.as_ref().and_then(|ids| ids.trace.as_deref()),
            span_id: ids.as_ref().and_then(|ids| ids.span.as_deref()),
            fields: &found.others,
        };
        writeln!(writer, "{}", serde_json::to_string(&line).map_err(|_| fmt::Error)?)
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    bridged_target: Option<String>,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("log.target", Value::String(text)) => self.bridged_target = Some(text),
            // Where the code is, of the crate `log`.
            (name, _) if name.starts_with("log.") => {}
            (name, value) => drop(self.others.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Cut::default();
        // Fails when the text is cut.
        let _ = write!(text, "{value:?}");
        self.put(field, Value::String(text.0));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = Cut::default();
        let _ = text.write_str(value);
        self.put(field, Value::String(text.0));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Bool(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let number = serde_json::Number::from_f64(value).map(Value::Number);
        self.put(field, number.unwrap_or_else(|| Value::String(value.to_string())));
    }
}

/// A text of bounded length.
#[derive(Default)]
struct Cut(String);

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = FIELD_BYTES_MAX.saturating_sub(self.0.len());
        if text.len() <= left {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(left)]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Written {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_line_is_one_object_with_the_promised_names() {
        let written = Written::default();
        let subscriber = tracing_subscriber::fmt().with_writer(written.clone()).event_format(JsonLines).finish();
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::other("forged\n{\"level\":\"ERROR\"}");
            let long = "é".repeat(FIELD_BYTES_MAX);
            tracing::warn!(target: "celeris_test", %error, count = 7, share = f64::NAN, done = true, long, "not {}", "read");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "not read");
        assert_eq!((&line["level"], &line["target"]), (&"WARN".into(), &"celeris_test".into()));
        let timestamp = line["timestamp"].as_str().unwrap();
        assert!(timestamp.parse::<Timestamp>().is_ok() && timestamp.len() == 27, "{timestamp}");
        let fields = &line["fields"];
        assert_eq!((&fields["count"], &fields["share"], &fields["done"]), (&7.into(), &"NaN".into(), &true.into()));
        assert_eq!(fields["error"], "forged\n{\"level\":\"ERROR\"}");
        let cut = fields["long"].as_str().unwrap();
        assert!(cut.ends_with("é…") && cut.len() <= FIELD_BYTES_MAX + '…'.len_utf8(), "{}", cut.len());
        assert!(line.get("request_id").is_none() && line.get("trace_id").is_none());
    }
}
