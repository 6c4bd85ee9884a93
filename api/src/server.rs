//! The HTTP server: routes, what surrounds every request, and how it ends.

use std::convert::Infallible;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::Route;
use futures_util::FutureExt;
use futures_util::future::Either;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tower::layer::layer_fn;
use tower::{Service, service_fn};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::arriving;
use crate::config;
use crate::connections::{self, Bounds, Connection};
use crate::error::ApiError;
use crate::hot_routes::HotRoute;
use crate::media_types;
use crate::origins::{self, Asker, Origins};
use crate::routes;
use crate::state::Node;
use crate::times;

/// Where the paths begin that are bounded.
pub const API: &str = "/v1/";

/// What is answered however much is under way.
const HEALTH: [&str; 2] = ["/healthz", "/readyz"];

/// The description of the API, to which every route adds itself.
#[derive(OpenApi)]
#[openapi(info(
    title = "Celeris",
    description = "Online-learning personalization: predictions with uncertainty that learn from every observation."
))]
struct Description;

/// All routes of a node.
fn router(node: Node) -> Router {
    let (api, description) = OpenApiRouter::with_openapi(Description::openapi())
        .merge(routes::models::router())
        .merge(routes::selections::router())
        .merge(routes::predict::router())
        .merge(routes::topk::router())
        .merge(routes::recommend::router())
        .merge(routes::observe::router())
        .merge(routes::observations::router())
        .merge(routes::items::router())
        .merge(routes::users::router())
        .merge(routes::similar::router())
        .merge(routes::why::router())
        .merge(routes::versions::router())
        .merge(routes::jobs::router())
        .merge(routes::events::router())
        .merge(routes::quality::router())
        .merge(routes::evaluate_policy::router())
        .merge(routes::decisions::router())
        .merge(routes::exploration::router())
        .split_for_parts();
    let (health, health_description) = routes::health::router().split_for_parts();
    let mut description = description;
    description.merge(health_description);
    let attending = node.clone();
    // One layer for all that surrounds a request, since each costs it allocations.
    let attended = layer_fn(move |mut route: Route| {
        let node = attending.clone();
        service_fn(move |request: Request| {
            let about = About::of(&request);
            let answering = match media_types::check_any(&request) {
                Ok(()) => Either::Left(route.call(request).map(|Ok(response)| response)),
                Err(error) => Either::Right(ready(error.into_response())),
            };
            attend(node.clone(), about, || answering)
        })
    });
    Router::new()
        .merge(api)
        .merge(health)
        .merge(routes::page::router())
        .merge(SwaggerUi::new("/docs").url("/openapi.json", description))
        .fallback(|| async { ApiError::not_found("no such path; GET /openapi.json lists them") })
        .method_not_allowed_fallback(|| async { ApiError::method("GET /openapi.json lists what each path takes") })
        .layer(attended)
        .with_state(node)
}

/// A node with what its requests pass through.
struct Serving {
    node: Node,
    router: Router,
    origins: Origins,
}

impl Serving {
    /// Answers a request: the routes that carry the load by themselves, all others by the router.
    async fn respond(&self, connection: &Connection, request: hyper::Request<Incoming>) -> Response {
        let request = connection.track(request);
        let expects_continue = request.headers().contains_key(header::EXPECT);
        let mut response = match self.admit(connection, &request) {
            Ok(asker) => {
                let mut response = match origins::preflight(request.method(), request.headers(), &asker) {
                    Some(response) => response,
                    None => self.route(request).await,
                };
                origins::share(asker, &mut response);
                response
            }
            Err(error) => {
                let about =
                    About { method: times::label(request.method()), route: Pattern::Fixed("none"), bounded: false };
                drop(request);
                let Ok(response) = attend(self.node.clone(), about, || ready(error.into_response())).await;
                response
            }
        };
        connection.settle(expects_continue, &mut response).await;
        response
    }

    /// Whose page a request is from, if it may be answered at all. Whether the node lives, anybody may ask at any time.
    fn admit(&self, connection: &Connection, request: &Request) -> Result<Asker, ApiError> {
        if HEALTH.contains(&request.uri().path()) {
            return Ok(Asker::Own);
        }
        if connection.reserve {
            metrics::counter!("celeris_http_rejected_total").increment(1);
            return Err(ApiError::unavailable("too many connections are open on this node; try again"));
        }
        self.origins.check(request.headers(), request.uri().path(), &connection.host)
    }

    async fn route(&self, request: Request) -> Response {
        let answered = match HotRoute::of(&request) {
            Some((route, model)) => {
                let about = About { method: "POST", route: Pattern::Fixed(route.pattern()), bounded: true };
                let asked = self.node.clone();
                attend(self.node.clone(), about, move || route.answer(asked, model, request)).await
            }
            None => self.router.clone().call(request).await,
        };
        let Ok(response) = answered;
        response
    }
}

/// What a route is called in metrics: its path, with names for what differs.
enum Pattern {
    Fixed(&'static str),
    Matched(MatchedPath),
}

impl Pattern {
    fn as_str(&self) -> &str {
        match self {
            Self::Fixed(pattern) => pattern,
            Self::Matched(path) => path.as_str(),
        }
    }
}

/// What is kept of a request until it is answered.
struct About {
    /// As it is called in metrics.
    method: &'static str,
    route: Pattern,
    /// Whether it counts among those under way, whose number and time are bounded.
    bounded: bool,
}

impl About {
    fn of(request: &Request) -> Self {
        let matched = request.extensions().get::<MatchedPath>().cloned();
        let route = matched.map_or(Pattern::Fixed("none"), Pattern::Matched);
        Self { method: times::label(request.method()), route, bounded: request.uri().path().starts_with(API) }
    }
}

/// Counts and times every request by its route, and bounds how many of the API's are under way and how long each takes.
///
/// The answer's future is made where it is awaited. Handed on, it would lie in that of every function it goes through,
/// and a request's future would be three times as large: the server moves all of it for each request.
async fn attend<F>(node: Node, about: About, answering: impl FnOnce() -> F) -> Result<Response, Infallible>
where
    F: Future<Output = Response>,
{
    let started = Instant::now();
    let About { method, route, bounded } = about;
    let response = if bounded { bound(&node, answering).await } else { answer(answering).await };
    let elapsed = started.elapsed();
    let route = route.as_str();
    tracing::debug!(method, route, status = response.status().as_u16(), elapsed_us = elapsed.as_micros(), "request");
    times::record(method, route, response.status(), elapsed);
    Ok(response)
}

async fn bound<F: Future<Output = Response>>(node: &Node, answering: impl FnOnce() -> F) -> Response {
    let permit = match arriving::admit(&node.permits) {
        Ok(permit) => permit,
        Err(error) => return error.into_response(),
    };
    // Most answers are there at the first look, before there is a timer. It is in a box, since it is aligned to lines of
    // the cache, which would make every request's future slow to allocate.
    let limit = async { Box::pin(tokio::time::sleep(node.limits.request_timeout)).await };
    tokio::select! {
        biased;
        response = arriving::answer_with(permit, answer(answering)) => response,
        () = limit => {
            ApiError::timeout("the request ran into the node's time limit; what it changed may be done or not")
                .into_response()
        }
    }
}

/// A handler that panics is an error of its own request, not the end of a connection.
async fn answer<F: Future<Output = Response>>(answering: impl FnOnce() -> F) -> Response {
    let answered = AssertUnwindSafe(answering()).catch_unwind().await;
    answered.unwrap_or_else(|_panic| ApiError::internal("a handler panicked").into_response())
}

/// Serves until `shutdown` is done, then lets requests under way end, for a bounded time. The caller owns the socket.
///
/// # Errors
/// Where the socket has no address.
pub async fn serve(
    listener: TcpListener,
    node: Node,
    config: &config::Server,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let origins = Origins::new(config, listener.local_addr()?);
    let bounds = Bounds { connections: connections::allowed(config.connections), idle_timeout: config.idle_timeout };
    let serving = Arc::new(Serving { router: router(node.clone()), node, origins });
    let handler = move |connection: Arc<Connection>, request| {
        let serving = serving.clone();
        async move { serving.respond(&connection, request).await }
    };
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let shutdown = async move {
        shutdown.await;
        // The receiver lives as long as the server does.
        let _ = stopping.send(());
    };
    let drain_timeout = config.drain_timeout;
    let deadline = async {
        // An error means that the server ended by itself.
        let _ = stopped.await;
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        () = connections::serve(listener, bounds, handler, shutdown) => {}
        () = deadline => tracing::warn!("requests were still under way at the end of the drain timeout"),
    }
    Ok(())
}
