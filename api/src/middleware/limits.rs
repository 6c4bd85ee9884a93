//! Bounds of requests: how many run at once, how long each takes, and how many bytes their bodies hold.
//!
//! A body is read before its request counts among those that run, so a slow client takes no place of a request that could be
//! answered. Bodies that are still arriving are bounded in bytes, all together.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::middleware::media_types::MediaType;
use crate::state::Node;

/// Answers 503 while `limits.requests` requests run, and 504 after `limits.request_timeout`.
pub async fn bound(State(node): State<Node>, request: Request, next: Next) -> Response {
    let answer = async {
        let request = buffer(request, &node).await?;
        let Ok(_permit) = node.permits.try_acquire() else {
            return Err(rejected("too many requests are under way on this node; try again"));
        };
        Ok(next.run(request).await)
    };
    match tokio::time::timeout(node.limits.request_timeout, answer).await {
        Ok(answered) => answered.into_response(),
        Err(_elapsed) => {
            ApiError::timeout("the request ran into the node's time limit; what it changed may be done or not")
                .into_response()
        }
    }
}

/// The request with its whole body in memory. A stream of lines stays a stream.
async fn buffer(request: Request, node: &Node) -> Result<Request, ApiError> {
    if request.body().is_end_stream() || MediaType::NdJson.check(request.headers()).is_ok() {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let body = read(body, node).await?;
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Reads a body of at most `limits.body` bytes.
///
/// # Errors
/// 413 for a longer one, 400 where it breaks off, 503 where too much is arriving.
async fn read(body: Body, node: &Node) -> Result<Bytes, ApiError> {
    let max = usize::try_from(node.limits.body.as_u64()).unwrap_or(usize::MAX);
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
                let max = node.limits.body;
                ApiError::too_large(format!("the body exceeds {max} (limits.body); send less at once, or use NDJSON"))
            } else {
                ApiError::malformed(cause)
            }
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if let Some(arriving) = &mut arriving {
            arriving.merge(account(node, data.len())?);
        }
        // Most bodies come in one piece, which is not copied.
        if first.is_empty() && whole.is_empty() {
            first = data;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

/// Takes bytes of those that may be arriving.
fn account(node: &Node, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let permits = u32::try_from(bytes).ok().and_then(|bytes| node.arriving.clone().try_acquire_many_owned(bytes).ok());
    permits.ok_or_else(|| rejected("too many bodies are arriving on this node (limits.arriving); try again"))
}

/// A request that is refused because the node is busy.
pub fn rejected(detail: &str) -> ApiError {
    metrics::counter!("celeris_http_rejected_total").increment(1);
    ApiError::unavailable(detail)
}
