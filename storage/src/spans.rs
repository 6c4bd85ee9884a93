//! Names of the spans of traces.
//!
//! A span is one of `tracing` with the target [`SPANS`] or [`ROOTS`]. Where nothing collects traces, nobody takes these
//! targets, and a span costs the load of one number. Where traces are collected, a span of [`SPANS`] exists only below
//! another: code that serves requests traced and not does not have to know which it serves.

use tracing::Span;

/// The target of spans that are parts of others.
pub const SPANS: &str = "celeris::spans";

/// The target of spans with which a trace begins on a node: of a request, and of a job.
pub const ROOTS: &str = "celeris::spans::root";

/// The span that encloses the caller, if traces are collected and it is traced.
pub(crate) fn enclosing() -> Option<Span> {
    if !tracing::span_enabled!(target: SPANS, tracing::Level::INFO) {
        return None;
    }
    Some(Span::current()).filter(|span| !span.is_disabled())
}
