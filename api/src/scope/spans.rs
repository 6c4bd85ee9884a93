//! The spans of requests.
//!
//! They have the pattern of the path and never the path: it may name a user.

use axum::http::{HeaderMap, StatusCode};
use celeris_model::ModelName;
use celeris_storage::{ROOTS, SPANS};
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{Arrived, RequestId, TraceParent};

/// The span of a request, below the one that the request names.
pub(super) fn request_span(arrived: Arrived<'_>, given: Option<TraceParent>, id: &RequestId) -> Span {
    let Arrived { method, route, path, headers } = arrived;
    let span = tracing::info_span!(
        target: ROOTS,
        parent: None,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        celeris.request_id = id.as_str(),
        celeris.model = Empty,
        celeris.principal = Empty,
        celeris.user = Empty,
    );
    if let Some(given) = given {
        place_below(&span, given, headers);
    }
    if let Some(model) = model_of(route, path) {
        span.record("celeris.model", model);
    }
    span
}

fn place_below(span: &Span, given: TraceParent, headers: &HeaderMap) {
    let parent = Context::new().with_remote_span_context(given.context(headers));
    // Fails only where nothing collects traces.
    let _ = span.set_parent(parent);
}

/// The model of a path, if it can be the name of one.
fn model_of<'a>(route: &str, path: &'a str) -> Option<&'a str> {
    let mut segments = route.split('/').zip(path.split('/'));
    let (_, name) = segments.find(|(pattern, _)| *pattern == "{model}")?;
    ModelName::new(name).is_ok().then_some(name)
}

/// The span of a request to another node.
#[must_use]
pub fn to_node(node: &str) -> Span {
    tracing::info_span!(
        target: SPANS,
        "forward",
        otel.kind = "client",
        otel.status_code = Empty,
        http.response.status_code = Empty,
        celeris.node = node,
    )
}

/// Marks the span of a request without an answer as failed.
pub fn note_unanswered(span: &Span) {
    span.record("otel.status_code", "ERROR");
}

/// Notes the status of an answer. One that the server is to blame for marks the span as failed.
pub fn note_status(span: &Span, status: StatusCode) {
    if span.is_disabled() {
        return;
    }
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_where_the_route_has_it() {
        let route = "/v1/models/{model}/users/{user}";
        assert_eq!(model_of(route, "/v1/models/films/users/ann"), Some("films"));
        assert_eq!(model_of("/v1/cluster", "/v1/cluster"), None);
        assert_eq!(model_of(route, "/v1/models/no%20name/users/ann"), None);
    }
}
