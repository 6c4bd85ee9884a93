//! The HTTP server: routes, middleware and graceful shutdown.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tower::util::option_layer;
use tower::{Service, ServiceBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::cluster::HOP;
use crate::config;
use crate::connections::{self, Bounds, Connection};
use crate::description;
use crate::error::ApiError;
use crate::middleware::admission::Admission;
use crate::middleware::limits::{self, Threads};
use crate::middleware::metrics;
use crate::middleware::origins::Origins;
use crate::personalizer::{Addressed, in_their_form};
use crate::routes;
use crate::state::Node;
use crate::tls::Tls;

/// Connections of the socket for operators.
const OPERATORS_MAX: usize = 64;

/// Predictions and streams of observations, which choose their threads themselves.
fn direct() -> OpenApiRouter<Node> {
    OpenApiRouter::new().merge(routes::predict::router()).merge(routes::observe::streams())
}

/// Routes that serve users.
fn serving() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .merge(routes::topk::router())
        .merge(routes::recommend::router())
        .merge(routes::observe::router())
        .merge(routes::observations::router())
        .merge(routes::items::router())
        .merge(routes::attributes::router())
        .merge(routes::users::router())
        .merge(routes::similar::router())
        .merge(routes::why::router())
        .merge(routes::decisions::router())
        .merge(routes::personalizer::router())
}

/// Routes of operators.
fn operating() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .merge(routes::models::router())
        .merge(routes::selections::router())
        .merge(routes::versions::router())
        .merge(routes::jobs::router())
        .merge(routes::studies::router())
        .merge(routes::trials::router())
        .merge(routes::events::router())
        .merge(routes::quality::router())
        .merge(routes::evaluate_policy::router())
        .merge(routes::exploration::router())
        .merge(routes::rewards::router())
        .merge(routes::pipelines::router())
        .merge(routes::objects::router())
        .merge(routes::cluster::router())
        .merge(routes::keys::router())
        .merge(routes::ingests::router())
        .merge(routes::backups::router())
        .merge(routes::personalizer::operating())
}

/// Whom a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// All.
    Everyone,
    /// Clients, where operators have a socket of their own: not `/metrics`, `/docs` and the page.
    Clients,
}

/// The routes of a socket with their layers. Health checks are exempt from the checks of host and
/// origin and from the connection limit.
fn router(node: Node, origins: Origins, audience: Audience) -> Router {
    let direct = direct().layer(from_fn_with_state((node.clone(), Threads::OfSockets), limits::bound));
    let serving = serving().layer(from_fn_with_state((node.clone(), Threads::Serving), limits::bound));
    let operating = operating().layer(from_fn_with_state((node.clone(), Threads::Operating), limits::bound));
    let (api, mut description) = OpenApiRouter::with_openapi(description::empty())
        .merge(direct)
        .merge(serving)
        .merge(operating)
        .split_for_parts();
    let (for_scrapers, of_metrics) = routes::metrics::router().split_for_parts();
    let (health, of_health) = routes::health::router().split_for_parts();
    description.merge(of_metrics);
    description.merge(of_health);
    description::complete(&mut description);
    let for_nodes = routes::cluster::for_nodes();
    let cors = option_layer(origins.cors());
    let admission = Arc::new(Admission { origins, node: node.clone() });
    let for_operators = match audience {
        Audience::Everyone => Router::new()
            .merge(for_scrapers)
            .merge(routes::page::router())
            .merge(SwaggerUi::new("/docs").url("/openapi.json", description)),
        Audience::Clients => Router::new(),
    };
    Router::new()
        .merge(api)
        .merge(for_operators)
        .merge(for_nodes)
        .fallback(|| async { ApiError::not_found("no such path; GET /openapi.json lists them") })
        .method_not_allowed_fallback(|| async { ApiError::method("GET /openapi.json lists what each path takes") })
        .layer(ServiceBuilder::new().layer(from_fn_with_state(Some(admission), metrics::measure)).layer(cors))
        .merge(health.layer(from_fn_with_state(None, metrics::measure)))
        .with_state(node)
}

/// Answers a request and prepares its connection for the next one.
async fn respond(
    (node, mut router): (Node, Router),
    connection: Arc<Connection>,
    request: hyper::Request<Incoming>,
) -> Response {
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let mut request = connection.track(request);
    request.extensions_mut().insert(connection.clone());
    // The node that the client has asked gives a forwarded answer its form.
    let is_hop = request.headers().contains_key(HOP);
    let mut response = match node.personalizer.address(&mut request) {
        Ok(Addressed::Theirs) if !is_hop => {
            let Ok(response) = router.call(request).await;
            in_their_form(response).await
        }
        Ok(_) => {
            let Ok(response) = router.call(request).await;
            response
        }
        Err(error) => in_their_form(error.into_response()).await,
    };
    connection.settle(expects_continue, &mut response).await;
    response
}

/// Serves until `shutdown` completes, then drains requests for a limited time. The caller owns the
/// socket.
///
/// # Errors
/// If the local address of the socket cannot be read, a file of `server.tls` cannot, or `server.operators` cannot be listened on.
pub async fn serve(
    listener: TcpListener,
    node: Node,
    config: &config::Server,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let bounds = Bounds { connections: connections::allowed(config.connections), idle_timeout: config.idle_timeout };
    let tls = Tls::open(&config.tls).map_err(std::io::Error::other)?;
    let operators = match &config.operators {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|error| {
            std::io::Error::new(error.kind(), format!("server.operators: cannot listen on {address}: {error}"))
        })?),
        None => None,
    };
    let audience = if operators.is_some() { Audience::Clients } else { Audience::Everyone };
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let accept = |listener: TcpListener, bounds: Bounds, audience: Audience| {
        let origins = Origins::new(config, listener.local_addr()?, node.clone());
        let router = router(node.clone(), origins, audience);
        let of_handler = (node.clone(), router);
        let handler = move |connection, request| respond(of_handler.clone(), connection, request);
        let mut stopping = stopping.clone();
        let shutdown = async move { connections::asked_to_stop(&mut stopping).await };
        Ok::<_, std::io::Error>(connections::serve(listener, (bounds, tls.clone()), handler, shutdown))
    };
    let clients = accept(listener, bounds, audience)?;
    let operators = operators.map(|listener| {
        tracing::info!(address = %listener.local_addr()?, "operators");
        accept(listener, Bounds { connections: OPERATORS_MAX, ..bounds }, Audience::Everyone)
    });
    let operators = operators.transpose()?;
    let serving = async {
        match operators {
            Some(operators) => drop(tokio::join!(clients, operators)),
            None => clients.await,
        }
    };
    let drain_timeout = config.drain_timeout;
    let deadline = async {
        shutdown.await;
        stop.send_replace(true);
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        () = serving => {}
        () = deadline => tracing::warn!("requests were still under way at the end of the drain timeout"),
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{access, routing};

    /// Method and path of each operation of the description.
    fn described() -> BTreeSet<(String, String)> {
        let all = direct().merge(serving()).merge(operating());
        let all = all.merge(routes::metrics::router()).merge(routes::health::router());
        let described = serde_json::to_value(all.into_openapi()).unwrap();
        let mut operations = BTreeSet::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            operations.extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
        }
        operations
    }

    fn assert_covers_all(entries: impl Iterator<Item = (&'static str, &'static str)>) {
        let entries: Vec<_> = entries.map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
        assert_eq!(entries.iter().cloned().collect::<BTreeSet<_>>(), described());
        assert_eq!(entries.len(), described().len(), "an operation has one entry");
    }

    #[test]
    fn every_operation_says_which_role_it_needs() {
        assert_covers_all(access::operations());
    }

    #[test]
    fn every_operation_says_which_node_of_a_cluster_answers_it() {
        assert_covers_all(routing::operations());
    }
}
