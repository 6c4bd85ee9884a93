//! Runs requests on the compute pool.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::state::Node;

/// Runs requests that serve.
pub async fn serving(State(node): State<Node>, request: Request, next: Next) -> Response {
    node.compute.run(next.run(request)).await.into_response()
}

/// Runs requests of operators, which may take seconds: on at most half of the threads.
pub async fn operating(State(node): State<Node>, request: Request, next: Next) -> Response {
    node.compute.operate(next.run(request)).await.into_response()
}
