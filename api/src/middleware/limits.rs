//! Limits of concurrent requests, of their duration and of the bytes of their bodies.
//!
//! A body is read before its request counts as running, so slow clients do not occupy request
//! slots. Bodies that are still arriving are limited by their total size.

use axum::body::{Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::OwnedSemaphorePermit;

use celeris_manager::acting_for;

use crate::access::Principal;
use crate::error::ApiError;
use crate::media_types::{self, MediaType};
use crate::routing;
use crate::state::Node;

/// The threads on which the handlers of a route run.
#[derive(Debug, Clone, Copy)]
pub enum Threads {
    /// Those of the sockets; the handler chooses for its computation.
    OfSockets,
    /// The compute pool.
    Serving,
    /// The compute pool, on at most half of its threads: for operators, whose requests may take
    /// seconds.
    Operating,
}

/// Answers 415 to a body of a type that is not read, 503 while `limits.requests` requests are
/// running, and 504 after `limits.request_timeout`.
pub async fn bound(State((node, threads)): State<(Node, Threads)>, request: Request, next: Next) -> Response {
    let answer = async {
        media_types::check(&request)?;
        let request = buffer(request, &node).await?;
        // The body may have come much later than the key.
        node.access.check_goes_on(node.manager.api_keys(), request.extensions().get())?;
        let Ok(_permit) = node.permits.try_acquire() else {
            return Err(rejected("too many requests are under way on this node; try again"));
        };
        let run = |next: Next, request: Request| async {
            match threads {
                Threads::OfSockets => Ok(next.run(request).await),
                Threads::Serving => node.compute.run(next.run(request)).await,
                // Their changes are in audit logs.
                Threads::Operating => {
                    let principal = request.extensions().get::<Principal>();
                    let principal = principal.map(|principal| principal.name().to_owned());
                    node.compute.operate(acting_for(principal, next.run(request))).await
                }
            }
        };
        match &node.cluster {
            None => run(next, request).await,
            // Boxed, so that requests of a node on its own take no more memory.
            Some(cluster) => {
                Box::pin(routing::answer(&node, cluster, request, |request| run(next.clone(), request))).await
            }
        }
    };
    match tokio::time::timeout(node.limits.request_timeout, answer).await {
        Ok(answered) => answered.into_response(),
        Err(_elapsed) => {
            ApiError::timeout("the request exceeded the node's time limit; its changes may or may not have been made")
                .into_response()
        }
    }
}

/// Buffers the body of a request, of at most `limits.body` bytes, or `limits.object` for an object. NDJSON bodies stay
/// streams.
///
/// # Errors
/// 413 if the body is longer, 400 if it is cut off, 503 if too many bytes are arriving.
async fn buffer(request: Request, node: &Node) -> Result<Request, ApiError> {
    if request.body().is_end_stream() || MediaType::NdJson.is_declared(request.headers()) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let (limit, setting, remedy) = match media_types::is_bytes(&parts.headers) {
        true => (node.limits.object, "limits.object", "raise it, or send a smaller object"),
        false => (node.limits.body, "limits.body", "send less at once, or use NDJSON"),
    };
    let max = usize::try_from(limit.as_u64()).unwrap_or(usize::MAX);
    let mut body = Limited::new(body, max);
    let mut whole = Vec::new();
    let mut first = Bytes::new();
    let mut arriving: Option<OwnedSemaphorePermit> = None;
    loop {
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => {
                if arriving.is_none() {
                    arriving = Some(account(node, first.len() + whole.len())?);
                }
                body.frame().await
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|cause| {
            if cause.is::<LengthLimitError>() {
                ApiError::too_large(format!("the body exceeds {limit} ({setting}); {remedy}"))
            } else {
                ApiError::malformed(cause)
            }
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if let Some(arriving) = &mut arriving {
            arriving.merge(account(node, data.len())?);
        }
        // Most bodies arrive in a single chunk, which is not copied.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(Request::from_parts(parts, if whole.is_empty() { first.into() } else { whole.into() }))
}

/// Reserves bytes of the budget of arriving bodies.
fn account(node: &Node, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let permits = u32::try_from(bytes).ok().and_then(|bytes| node.arriving.clone().try_acquire_many_owned(bytes).ok());
    permits.ok_or_else(|| rejected("too many bodies are arriving on this node (limits.arriving); try again"))
}

/// Counts and returns the error of a request that is rejected because the node is busy.
pub fn rejected(detail: &str) -> ApiError {
    metrics::counter!("celeris_http_rejected_total").increment(1);
    ApiError::unavailable(detail)
}
