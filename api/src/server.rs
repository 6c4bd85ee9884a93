//! The HTTP server: routes, what surrounds every request, and how it ends.

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::error::ApiError;
use crate::routes;
use crate::state::Node;

/// The description of the API, to which every route adds itself.
#[derive(OpenApi)]
#[openapi(info(
    title = "Celeris",
    description = "Online-learning personalization: predictions with uncertainty that learn from every observation."
))]
struct Description;

/// All routes of a node.
pub fn router(node: Node) -> Router {
    let (api, description) = OpenApiRouter::with_openapi(Description::openapi())
        .merge(routes::models::router())
        .merge(routes::predict::router())
        .merge(routes::topk::router())
        .merge(routes::observe::router())
        .merge(routes::observations::router())
        .merge(routes::items::router())
        .merge(routes::users::router())
        .merge(routes::versions::router())
        .merge(routes::jobs::router())
        .split_for_parts();
    let body_max = usize::try_from(node.limits.body.as_u64()).unwrap_or(usize::MAX);
    let limited = api
        .layer(DefaultBodyLimit::max(body_max))
        .layer(middleware::from_fn_with_state(node.clone(), bound))
        .layer(CatchPanicLayer::custom(|_panic: Box<dyn std::any::Any + Send>| {
            ApiError::internal("a handler panicked").into_response()
        }));
    let (health, health_description) = routes::health::router().split_for_parts();
    let mut description = description;
    description.merge(health_description);
    Router::new()
        .merge(limited)
        .merge(health)
        .merge(routes::page::router())
        .merge(SwaggerUi::new("/docs").url("/openapi.json", description))
        .fallback(|| async { ApiError::not_found("no such path; GET /openapi.json lists them") })
        .method_not_allowed_fallback(|| async { ApiError::method("GET /openapi.json lists what each path takes") })
        .layer(middleware::from_fn(measure))
        .with_state(node)
}

/// Bounds how many requests are under way, and how long each may take.
async fn bound(State(node): State<Node>, request: Request, next: Next) -> Response {
    let Ok(_permit) = node.permits.try_acquire() else {
        metrics::counter!("celeris_http_rejected_total").increment(1);
        return ApiError::unavailable("too many requests are under way on this node; try again").into_response();
    };
    match tokio::time::timeout(node.limits.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => {
            let detail = "the request ran into the node's time limit; what it changed may be done or not";
            ApiError::timeout(detail).into_response()
        }
    }
}

/// Counts and times every request by its route.
async fn measure(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().to_string();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let elapsed = started.elapsed();
    let status = response.status();
    tracing::debug!(%method, route, status = status.as_u16(), elapsed_us = elapsed.as_micros(), "request");
    let labels = [("method", method), ("route", route), ("status", status.as_str().to_owned())];
    metrics::histogram!("celeris_http_request_seconds", &labels).record(elapsed.as_secs_f64());
    response
}

/// Serves until `shutdown` is done, then lets requests under way end, for a bounded time. The caller owns the socket.
///
/// # Errors
/// Where the socket fails.
pub async fn serve(
    listener: TcpListener,
    node: Node,
    drain_timeout: Duration,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let graceful = axum::serve(listener, router(node)).with_graceful_shutdown(async move {
        shutdown.await;
        // The receiver lives as long as the server does.
        let _ = stopping.send(());
    });
    let deadline = async {
        // An error means that the server ended by itself.
        let _ = stopped.await;
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        served = graceful.into_future() => served,
        () = deadline => {
            tracing::warn!("requests were still under way at the end of the drain timeout");
            Ok(())
        }
    }
}
