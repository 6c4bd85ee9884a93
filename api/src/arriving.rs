//! Bodies that arrive slowly take no place of requests that could be answered.
//!
//! A request that is under way holds a permit. While its body has not arrived the request can only wait, so it gives the
//! permit back, and takes another once the body is whole. What has arrived of all such bodies is bounded in bytes.

use std::cell::RefCell;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::state::Node;

tokio::task_local! {
    /// The permit of the request that this task answers; `None` while its body arrives.
    static PERMIT: RefCell<Option<OwnedSemaphorePermit>>;
}

/// Takes a request's permit.
///
/// # Errors
/// 503 where too many requests are under way.
pub fn admit(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiError> {
    Arc::clone(permits).try_acquire_owned().map_err(|_none_left| {
        metrics::counter!("celeris_http_rejected_total").increment(1);
        ApiError::unavailable("too many requests are under way on this node; try again")
    })
}

/// Answers a request that has this permit.
pub async fn answer_with<F: Future>(permit: OwnedSemaphorePermit, answer: F) -> F::Output {
    PERMIT.scope(RefCell::new(Some(permit)), answer).await
}

/// Reads a body of at most `limits.body` bytes.
///
/// # Errors
/// 413 for a longer one, 400 where it breaks off, 503 where too much is arriving or under way.
pub async fn read(body: Body, node: &Node) -> Result<Bytes, ApiError> {
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
                    // Where none is, this is no request's task, as in a test.
                    let _ = PERMIT.try_with(|permit| permit.take());
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
    if arriving.is_some() {
        let again = admit(&node.permits)?;
        let _ = PERMIT.try_with(|permit| permit.replace(Some(again)));
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

/// Takes bytes of those that may be arriving.
fn account(node: &Node, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let permits = u32::try_from(bytes).ok().and_then(|bytes| node.arriving.clone().try_acquire_many_owned(bytes).ok());
    permits.ok_or_else(|| {
        metrics::counter!("celeris_http_rejected_total").increment(1);
        ApiError::unavailable("too many bodies are arriving on this node (limits.arriving); try again")
    })
}
