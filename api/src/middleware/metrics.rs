//! The scope of each request, and its duration: one histogram for each method, route and status.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use foldhash::fast::RandomState;
use futures_util::FutureExt;
use metrics::Histogram;

use crate::access::Principal;
use crate::error::ApiError;
use crate::middleware::admission::Admission;
use crate::scope::{Arrived, Names, RequestId, Scope};

/// The route label of unknown paths.
const NO_ROUTE: &str = "none";

/// The histograms of one route. There are few, so a linear search is fastest.
type OfRoute = Vec<(&'static str, StatusCode, Histogram)>;

thread_local! {
    /// Histograms that this thread has recorded to. A lookup by labels would hash and copy all of
    /// them at every request; here the lookup is by route only.
    static HISTOGRAMS: RefCell<HashMap<String, OfRoute, RandomState>> = RefCell::default();
}

/// Opens the scope of the request, checks host, origin and key, answers, measures and logs it. The route is the pattern of
/// the path, not the path itself. If the handler panics, the answer is a 500, and the connection
/// stays open. One layer does all this, because axum boxes the rest of the stack for each layer at
/// every request.
pub async fn measure(State(admission): State<Option<Arc<Admission>>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = method_label(request.method());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let route = matched.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    let sampling = admission.as_ref().and_then(|admission| admission.node.sampling.as_ref());
    let arrived = Arrived { method, route, path: request.uri().path(), headers: request.headers() };
    let scope = Scope::of(arrived, sampling);
    let answer = async {
        let response = match admitted(admission.as_deref(), &scope, request).await {
            Ok(request) => AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(panicked),
            Err(rejected) => rejected.into_response(),
        };
        let (status, elapsed) = (response.status(), started.elapsed());
        tracing::debug!(method, route, status = status.as_u16(), elapsed_us = elapsed.as_micros(), "request");
        record(method, route, status, elapsed);
        response
    };
    let mut response = scope.run(answer).await;
    scope.note_status(response.status());
    response.headers_mut().insert(RequestId::HEADER, scope.id().value());
    response
}

async fn admitted(admission: Option<&Admission>, scope: &Scope, request: Request) -> Result<Request, ApiError> {
    let Some(admission) = admission else { return Ok(request) };
    let request = admission.admit(request).await?;
    if let Some(principal) = request.extensions().get::<Principal>() {
        scope.note_principal(Names { full: principal.name(), impersonal: principal.impersonal() });
    }
    Ok(request)
}

fn panicked(_payload: Box<dyn Any + Send>) -> Response {
    ApiError::internal("a handler panicked").into_response()
}

/// The label of a method. Unknown methods share one label, because every label value creates a
/// permanent series.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn record(method: &'static str, route: &str, status: StatusCode, elapsed: Duration) {
    HISTOGRAMS.with_borrow_mut(|histograms| {
        if !histograms.contains_key(route) {
            histograms.insert(route.to_owned(), Vec::new());
        }
        let Some(of_route) = histograms.get_mut(route) else { return };
        let found = of_route.iter().position(|(of, ended, _)| *of == method && *ended == status);
        let index = found.unwrap_or_else(|| {
            of_route.push((method, status, histogram(method, route, status)));
            of_route.len() - 1
        });
        of_route[index].2.record(elapsed.as_secs_f64());
    });
}

fn histogram(method: &str, route: &str, status: StatusCode) -> Histogram {
    let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.as_str().to_owned())];
    metrics::histogram!("celeris_http_request_seconds", &labels)
}
