//! Request bodies that the handler has not read to the end.
//!
//! On an HTTP/1 connection the next request follows the body of the current one. A server that
//! responds without reading the body must drain it or close the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// Maximum bytes of an unread body that are drained to keep its connection open.
const DRAIN_BYTES_MAX: u64 = 64 << 10;

/// How long draining may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Receives the body of a connection's current request if it is dropped before its end.
#[derive(Default)]
pub struct Unread(Mutex<Slot>);

#[derive(Default)]
enum Slot {
    /// The request has been answered; a body dropped now is lost, and its connection must close.
    #[default]
    Closed,
    /// The request is being answered.
    Open(Option<Incoming>),
}

impl Unread {
    /// Closes the slot; returns the body if it was dropped unread before the response.
    pub fn close(&self) -> Option<Incoming> {
        match std::mem::take(&mut *self.0.lock()) {
            Slot::Closed => None,
            Slot::Open(unread) => unread,
        }
    }
}

/// A request body that is returned to its connection if it is dropped before its end.
pub struct TrackedBody {
    /// `Some` until drop.
    body: Option<Incoming>,
    ended: bool,
    unread: Arc<Unread>,
}

impl TrackedBody {
    /// Opens the slot and tracks `body`.
    pub fn new(body: Incoming, unread: Arc<Unread>) -> Self {
        *unread.0.lock() = Slot::Open(None);
        Self { body: Some(body), ended: false, unread }
    }

    /// Converts to the body type of the handlers; an empty body is not wrapped.
    pub fn into_body(self) -> Body {
        if self.is_end_stream() { Body::empty() } else { Body::new(self) }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        // Nothing can be read after an error.
        self.ended |= matches!(frame, Poll::Ready(None | Some(Err(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if !self.is_end_stream()
            && let Slot::Open(unread) = &mut *self.unread.0.lock()
        {
            *unread = self.body.take();
        }
    }
}

/// Drains a body; returns whether its end came within the limits.
pub async fn drain(mut body: Incoming) -> bool {
    if body.size_hint().lower() > DRAIN_BYTES_MAX {
        return false;
    }
    let reading = async {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            read += frame.data_ref().map_or(0, Bytes::len) as u64;
            if read > DRAIN_BYTES_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(DRAIN_TIMEOUT, reading).await.unwrap_or(false)
}
