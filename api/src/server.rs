//! The HTTP server: routes, middleware and graceful shutdown.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tower::util::option_layer;
use tower::{Service, ServiceBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::config;
use crate::connections::{self, Bounds, Connection};
use crate::description;
use crate::error::ApiError;
use crate::middleware::limits::{self, Threads};
use crate::middleware::metrics;
use crate::middleware::origins::Origins;
use crate::routes;
use crate::state::Node;

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
}

/// Routes of operators.
fn operating() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .merge(routes::models::router())
        .merge(routes::selections::router())
        .merge(routes::versions::router())
        .merge(routes::jobs::router())
        .merge(routes::events::router())
        .merge(routes::quality::router())
        .merge(routes::evaluate_policy::router())
        .merge(routes::exploration::router())
        .merge(routes::pipelines::router())
        .merge(routes::objects::router())
        .merge(routes::cluster::router())
}

/// All routes of a node with their layers. Health checks are exempt from the checks of host and
/// origin and from the connection limit.
fn router(node: Node, origins: Origins) -> Router {
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
    Router::new()
        .merge(api)
        .merge(for_scrapers)
        .merge(for_nodes)
        .merge(routes::page::router())
        .merge(SwaggerUi::new("/docs").url("/openapi.json", description))
        .fallback(|| async { ApiError::not_found("no such path; GET /openapi.json lists them") })
        .method_not_allowed_fallback(|| async { ApiError::method("GET /openapi.json lists what each path takes") })
        .layer(ServiceBuilder::new().layer(from_fn_with_state(Some(Arc::new(origins)), metrics::measure)).layer(cors))
        .merge(health.layer(from_fn_with_state(None, metrics::measure)))
        .with_state(node)
}

/// Answers a request and prepares its connection for the next one.
async fn respond(mut router: Router, connection: Arc<Connection>, request: hyper::Request<Incoming>) -> Response {
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let mut request = connection.track(request);
    request.extensions_mut().insert(connection.clone());
    let Ok(mut response) = router.call(request).await;
    connection.settle(expects_continue, &mut response).await;
    response
}

/// Serves until `shutdown` completes, then drains requests for a limited time. The caller owns the
/// socket.
///
/// # Errors
/// If the local address of the socket cannot be read.
pub async fn serve(
    listener: TcpListener,
    node: Node,
    config: &config::Server,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let origins = Origins::new(config, listener.local_addr()?, node.clone());
    let bounds = Bounds { connections: connections::allowed(config.connections), idle_timeout: config.idle_timeout };
    let router = router(node, origins);
    let handler = move |connection, request| respond(router.clone(), connection, request);
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let shutdown = async move {
        shutdown.await;
        // The receiver lives as long as the server.
        let _ = stopping.send(());
    };
    let drain_timeout = config.drain_timeout;
    let deadline = async {
        // An error means that the server has already ended.
        let _ = stopped.await;
        tokio::time::sleep(drain_timeout).await;
    };
    tokio::select! {
        () = connections::serve(listener, bounds, handler, shutdown) => {}
        () = deadline => tracing::warn!("requests were still under way at the end of the drain timeout"),
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routing;

    #[test]
    fn every_operation_says_which_node_of_a_cluster_answers_it() {
        let all = direct().merge(serving()).merge(operating());
        let all = all.merge(routes::metrics::router()).merge(routes::health::router());
        let described = serde_json::to_value(all.into_openapi()).unwrap();
        let mut operations = BTreeSet::new();
        for (path, methods) in described["paths"].as_object().unwrap() {
            operations.extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
        }
        let entries: Vec<_> =
            routing::operations().map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
        assert_eq!(entries.iter().cloned().collect::<BTreeSet<_>>(), operations);
        assert_eq!(entries.len(), operations.len(), "an operation has one entry");
    }
}
