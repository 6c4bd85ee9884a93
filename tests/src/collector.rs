//! A collector of OpenTelemetry: takes spans by OTLP over HTTP, as protobuf.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::wait::eventually;

/// A span as the collector got it.
#[derive(Debug, Clone)]
pub struct Received {
    pub name: String,
    /// As hexadecimal digits, like the next two.
    pub trace: String,
    pub id: String,
    /// Empty if it has none.
    pub parent: String,
    /// `SERVER` is 2, `CLIENT` 3, others are 1.
    pub kind: i32,
    /// Whether it is marked as failed.
    pub is_error: bool,
    pub nanoseconds: u64,
    pub attributes: BTreeMap<String, String>,
    /// Of the service that has sent it.
    pub resource: BTreeMap<String, String>,
    /// The spans that it refers to.
    pub links: Vec<String>,
}

/// What has arrived.
#[derive(Debug, Default)]
struct Arrived {
    spans: Vec<Received>,
    /// Heads of requests and their bodies, as they came.
    raw: Vec<u8>,
}

/// What a collector does with spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Takes,
    /// Takes connections, and answers nothing.
    IsStuck,
}

/// A collector on a free port, until the end of the process.
#[derive(Debug)]
pub struct Collector {
    address: String,
    arrived: Arc<Mutex<Arrived>>,
}

impl Collector {
    /// A collector that takes all spans.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start() -> Self {
        Self::with(Manner::Takes)
    }

    /// A collector that takes connections, and answers nothing.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn stuck() -> Self {
        Self::with(Manner::IsStuck)
    }

    fn with(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let arrived = Arc::<Mutex<Arrived>>::default();
        let shared = Arc::clone(&arrived);
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let arrived = Arc::clone(&shared);
                match manner {
                    Manner::Takes => drop(thread::spawn(move || serve(&stream, &arrived))),
                    Manner::IsStuck => held.push(stream),
                }
            }
        });
        Self { address, arrived }
    }

    /// Where it takes spans, as a line of the section `[tracing]`.
    #[must_use]
    pub fn setting(&self) -> String {
        format!("endpoint = \"http://{}/v1/traces\"\n", self.address)
    }

    /// All spans so far.
    ///
    /// # Panics
    /// If what has arrived was no spans.
    #[must_use]
    pub fn spans(&self) -> Vec<Received> {
        self.arrived.lock().expect("what arrives is spans").spans.clone()
    }

    /// Whether a text is anywhere in what has arrived.
    ///
    /// # Panics
    /// If what has arrived was no spans.
    #[must_use]
    pub fn has_seen(&self, text: &str) -> bool {
        let arrived = self.arrived.lock().expect("what arrives is spans");
        memchr::memmem::find(&arrived.raw, text.as_bytes()).is_some()
    }

    /// Waits for a span.
    ///
    /// # Panics
    /// If it does not arrive by the deadline.
    #[track_caller]
    #[must_use]
    pub fn await_span(&self, what: &str, is_it: impl Fn(&Received) -> bool) -> Received {
        eventually(what, || self.spans().into_iter().find(&is_it))
    }
}

/// Answers the requests of a connection.
fn serve(stream: &TcpStream, arrived: &Mutex<Arrived>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let begun = head.len();
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let line = head[begun..].trim_end().to_ascii_lowercase();
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = bytes.trim().parse().expect("a length is a number");
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let request = ExportTraceServiceRequest::decode(&*body).expect("the body is a request of OTLP");
        {
            let mut arrived = arrived.lock().expect("what arrives is spans");
            arrived.raw.extend_from_slice(head.as_bytes());
            arrived.raw.extend_from_slice(&body);
            arrived.spans.extend(received(request));
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if (&*stream).write_all(answer).is_err() {
            return;
        }
    }
}

fn received(request: ExportTraceServiceRequest) -> Vec<Received> {
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = texts(of_resource.resource.unwrap_or_default().attributes);
        let all = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
        spans.extend(all.map(|span| of_span(span, &resource)));
    }
    spans
}

fn of_span(span: Span, resource: &BTreeMap<String, String>) -> Received {
    Received {
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        is_error: span.status.is_some_and(|status| status.code == 2),
        nanoseconds: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
        attributes: texts(span.attributes),
        resource: resource.clone(),
        links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
