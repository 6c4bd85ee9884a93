//! Collects the spans of a node and sends them to a collector, by OTLP over HTTP.
//!
//! Which requests are recorded is decided by `celeris_api::scope`: every span that arrives here is sent.

mod client;
mod queue;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use celeris_api::config;
use celeris_storage::{ROOTS, SPANS};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::registry::LookupSpan;
use ureq::http::HeaderName;

use self::client::Client;
use self::queue::Queue;

/// How long the end of the process waits for the collector.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of links of a span: of the requests that share a commit.
const LINKS_MAX: u32 = 64;

/// Maximum bytes of the file of headers.
const HEADERS_BYTES_MAX: u64 = 64 << 10;

/// The traces of a process. What waits is sent when it is dropped, within a bounded time.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Prepares the sending of spans; `None` without a collector. It need not answer.
    ///
    /// # Errors
    /// With the name of the setting that cannot be used.
    pub fn open(config: &config::Tracing, node: Option<&str>) -> Result<Option<Self>, String> {
        let Some(endpoint) = &config.endpoint else { return Ok(None) };
        let headers = config.headers_file.as_deref().map(headers_in).transpose()?.unwrap_or_default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(config.timeout, config.ca_file.as_deref())?)
            .with_endpoint(endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(config.timeout)
            .with_headers(headers)
            .build()
            .map_err(|error| format!("tracing: {error}"))?;
        let mut resource = Resource::builder()
            .with_service_name(config.service.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        if let Some(node) = node {
            resource = resource.with_attribute(KeyValue::new("service.instance.id", node.to_owned()));
        }
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_max_links_per_span(LINKS_MAX)
            .with_resource(resource.build())
            .with_span_processor(Queue::new(exporter, config.queue, config.interval))
            .build();
        Ok(Some(Self(provider)))
    }

    /// The layer that takes the spans of traces, and nothing else.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("celeris"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        let filter = dynamic_filter_fn(|metadata: &Metadata<'_>, context| {
            metadata.is_span()
                && match metadata.target() {
                    ROOTS => true,
                    SPANS => context.lookup_current().is_some(),
                    _ => false,
                }
        });
        let of_callsites = |metadata: &'static Metadata<'static>| match metadata.target() {
            ROOTS if metadata.is_span() => Interest::always(),
            SPANS if metadata.is_span() => Interest::sometimes(),
            _ => Interest::never(),
        };
        layer.with_filter(filter.with_callsite_filter(of_callsites).with_max_level_hint(LevelFilter::INFO))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if self.0.shutdown_with_timeout(STOP_TIMEOUT).is_err() {
            tracing::warn!(within = ?STOP_TIMEOUT, "the collector has not taken the last traces");
        }
    }
}

/// The headers in a file, a line `NAME: VALUE` for each.
fn headers_in(file: &Path) -> Result<HashMap<String, String>, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("tracing.headers_file: {}: {problem}", file.display());
    let bytes = fs::metadata(file).map_err(|error| wrong(&error))?.len();
    if bytes > HEADERS_BYTES_MAX {
        return Err(wrong(&format!("has more than {HEADERS_BYTES_MAX} bytes")));
    }
    let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
    let mut headers = HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        // Without the line itself, which is secret.
        let malformed = || wrong(&format!("line {number} is no header; write NAME: VALUE"));
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        let (name, value) = (name.trim(), value.trim());
        if name.parse::<HeaderName>().is_err() || value.is_empty() || value.contains(char::is_control) {
            return Err(malformed());
        }
        headers.insert(name.to_owned(), value.to_owned());
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn read(text: &str) -> Result<HashMap<String, String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("headers");
        fs::write(&file, text).unwrap();
        headers_in(&file)
    }

    #[test]
    fn headers_are_read_line_by_line_and_secrets_are_not_in_errors() {
        let headers = read("# of the collector\nAuthorization: Bearer abc:def\n\nx-tenant:  7 \n").unwrap();
        assert_eq!((&*headers["Authorization"], &*headers["x-tenant"], headers.len()), ("Bearer abc:def", "7", 2));
        for text in ["Bearer abc", "x-tenant:", "a b: secret-abc", ": abc"] {
            let problem = read(&format!("ok: 1\n{text}\n")).unwrap_err();
            assert!(problem.contains("tracing.headers_file") && problem.contains("line 2"), "{problem}");
            assert!(!problem.contains("abc"), "{problem}");
        }
        assert!(headers_in(Path::new("/nowhere/headers")).unwrap_err().contains("/nowhere/headers"));
    }
}
