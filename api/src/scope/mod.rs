//! What a request is known by while the node works on it: its id, and its place in a trace.
//!
//! The layer around all handlers opens a [`Scope`]; the work of the request runs in it, on whichever threads
//! ([`carried`]). Log lines take the ids from it ([`current_ids`]), problems the request id, requests to other nodes both.
//!
//! Spans are those of `tracing` with the targets of [`celeris_storage::SPANS`]. A request that is not recorded has none, so
//! what is below it costs nothing; whether it is recorded is decided once, at the first node that it meets, and by `traceparent`
//! before that. The command line collects and sends the spans.

mod request_id;
mod sampling;
mod spans;
mod trace_parent;

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use celeris_model::UserId;
use celeris_storage::SPANS;
use opentelemetry::trace::TraceContextExt;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

pub use self::request_id::RequestId;
pub use self::sampling::Sampling;
use self::spans::request_span;
pub use self::spans::{note_status, note_unanswered, to_node};
pub use self::trace_parent::TraceParent;

tokio::task_local! {
    static CURRENT: Arc<Scope>;
}

/// The names of who asks.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    pub full: &'a str,
    /// Without the name of a person.
    pub impersonal: &'a str,
}

/// The scope of a request.
#[derive(Debug)]
pub struct Scope {
    id: RequestId,
    /// The place of the request in its trace; `None` if it has none.
    place: Option<TraceParent>,
    /// Whether this node takes part in traces.
    is_tracing: bool,
    /// The span of the request; none if it is not recorded.
    span: Span,
    /// Whether users are named in spans.
    names_users: bool,
}

/// Method, route and headers of a request.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    pub method: &'static str,
    /// The pattern of the path.
    pub route: &'a str,
    pub path: &'a str,
    pub headers: &'a HeaderMap,
}

impl Scope {
    /// The scope of a request that has arrived. Without `sampling`, the node takes part in no trace.
    #[must_use]
    pub fn of(arrived: Arrived<'_>, sampling: Option<&Sampling>) -> Arc<Self> {
        let id = RequestId::of(arrived.headers);
        let given = TraceParent::of(arrived.headers);
        let Some(sampling) = sampling else {
            return Arc::new(Self { id, place: given, is_tracing: false, span: Span::none(), names_users: false });
        };
        let is_recorded = given.map_or_else(|| sampling.draw(), |given| given.is_sampled);
        let span = if is_recorded { request_span(arrived, given, &id) } else { Span::none() };
        let own = TraceParent::of_span(span.context().span().span_context());
        let place = own.or(given).unwrap_or_else(TraceParent::unrecorded);
        let names_users = sampling.names_users();
        Arc::new(Self { id, place: Some(place), is_tracing: true, span, names_users })
    }

    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Whether the request is recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        !self.span.is_disabled()
    }

    /// Notes who asks in the span of the request: by a name that is not that of a person, unless people are to be named.
    pub fn note_principal(&self, Names { full, impersonal }: Names<'_>) {
        if self.is_recorded() {
            self.span.record("celeris.principal", if self.names_users { full } else { impersonal });
        }
    }

    /// Notes the status of the answer in the span of the request.
    pub fn note_status(&self, status: StatusCode) {
        note_status(&self.span, status);
    }

    /// Runs the work of the request in its scope.
    pub async fn run<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(Arc::clone(self), work.instrument(self.span.clone())).await
    }

    /// Gives a request to another node the ids of this one. `span` is that of the forwarding, if this request is recorded.
    pub fn sign(&self, headers: &mut HeaderMap, span: &Span) {
        headers.insert(RequestId::HEADER, self.id.value());
        // A node without traces passes on what it was given.
        let Some(place) = self.place.filter(|_| self.is_tracing) else { return };
        let forwarding = TraceParent::of_span(span.context().span().span_context());
        headers.insert(TraceParent::HEADER, forwarding.unwrap_or(place).value());
    }
}

/// The scope of the request that the caller works on.
#[must_use]
pub fn current() -> Option<Arc<Scope>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// The id of the request that the caller works on.
#[must_use]
pub fn current_id() -> Option<RequestId> {
    CURRENT.try_with(|scope| scope.id.clone()).ok()
}

/// Names the user of the current request in its span, if that is wanted.
pub fn note_user(user: &UserId) {
    // Outside a request there is no span.
    let _ = CURRENT.try_with(|scope| {
        if scope.names_users && scope.is_recorded() {
            scope.span.record("celeris.user", user.as_str());
        }
    });
}

/// The ids by which a log line is found again.
#[derive(Debug, Clone)]
pub struct Ids {
    pub request: RequestId,
    /// The trace, as 32 hexadecimal digits.
    pub trace: Option<String>,
    /// The span of the request on this node, as 16 digits, if it is recorded.
    pub span: Option<String>,
}

/// The ids of the request that the caller works on.
#[must_use]
pub fn current_ids() -> Option<Ids> {
    CURRENT.try_with(|scope| scope.ids()).ok()
}

impl Scope {
    fn ids(&self) -> Ids {
        let trace = self.place.map(|place| format!("{:032x}", place.trace));
        let span = self.place.filter(|_| self.is_recorded()).map(|place| format!("{:016x}", place.span));
        Ids { request: self.id.clone(), trace, span }
    }
}

/// The work of the current request, to be run by another task, in a span of its own if the request is recorded. The span begins
/// now, so that it has the time in the queue.
pub fn carried<T>(name: Task, work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
    let scope = current();
    let span = if scope.as_ref().is_some_and(|scope| scope.is_recorded()) { name.span() } else { Span::none() };
    let queued = (!span.is_disabled()).then(Instant::now);
    async move {
        let Some(scope) = scope else { return work.await };
        if let Some(queued) = queued {
            span.record("celeris.queued_us", u64::try_from(queued.elapsed().as_micros()).unwrap_or(u64::MAX));
        }
        CURRENT.scope(scope, work.instrument(span)).await
    }
}

/// A task of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Computation on the compute pool.
    Compute,
    /// Lines of a stream.
    Lines,
    /// The erasure of a user, which goes on without the client.
    Erase,
}

impl Task {
    fn span(self) -> Span {
        let queued = tracing::field::Empty;
        match self {
            Self::Compute => tracing::info_span!(target: SPANS, "compute", celeris.queued_us = queued),
            Self::Erase => tracing::info_span!(target: SPANS, "erase", celeris.queued_us = queued),
            Self::Lines => tracing::info_span!(target: SPANS, "lines", celeris.queued_us = queued),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

    fn scope(headers: &HeaderMap, sampling: Option<&Sampling>) -> Arc<Scope> {
        let arrived = Arrived { method: "GET", route: "/v1/models/{model}", path: "/v1/models/films", headers };
        Scope::of(arrived, sampling)
    }

    #[test]
    fn a_node_without_traces_passes_the_place_on_unchanged() {
        let headers = HeaderMap::from_iter([(TraceParent::HEADER, GIVEN.parse().unwrap())]);
        let scope = scope(&headers, None);
        let mut next = headers.clone();
        scope.sign(&mut next, &Span::none());
        assert_eq!(next[TraceParent::HEADER], GIVEN);
        assert_eq!(next[RequestId::HEADER], scope.id().as_str());
        assert_eq!(scope.ids().trace.as_deref(), Some(&GIVEN[3..35]));
        assert_eq!(scope.ids().span, None);
    }

    #[test]
    fn the_next_node_does_not_record_what_this_one_does_not() {
        let sampling = Sampling::new(0.0);
        let mut next = HeaderMap::new();
        let unnamed = scope(&HeaderMap::new(), Some(&sampling));
        unnamed.sign(&mut next, &Span::none());
        let first = TraceParent::of(&next).unwrap();
        assert!(!first.is_sampled && unnamed.ids().trace == Some(format!("{:032x}", first.trace)));
        // Nor with a flag of the client against it, at any share.
        let headers = HeaderMap::from_iter([(TraceParent::HEADER, GIVEN.parse().unwrap())]);
        let refused = scope(&headers, Some(&Sampling::new(1.0)));
        refused.sign(&mut next, &Span::none());
        assert_eq!((refused.is_recorded(), next[TraceParent::HEADER].to_str().unwrap()), (false, GIVEN));
    }

    #[tokio::test]
    async fn ids_are_those_of_the_request_also_on_other_threads() {
        assert!(current_ids().is_none());
        let headers = HeaderMap::from_iter([(RequestId::HEADER, "abc".parse().unwrap())]);
        let scope = scope(&headers, None);
        let elsewhere =
            scope.run(async { tokio::spawn(carried(Task::Compute, async { current_ids() })).await.unwrap() });
        assert_eq!(elsewhere.await.unwrap().request.as_str(), "abc");
        assert!(carried(Task::Compute, async { current_id() }).await.is_none());
    }
}
