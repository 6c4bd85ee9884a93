//! Bodies that nobody has read to their end when the response is there.
//!
//! HTTP/1 finds the next request of a connection behind the body of the one before. A server that answers without reading
//! the body must read it all the same, or say that the connection closes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// Bytes of an unread body that are read to keep its connection.
const DRAIN_BYTES_MAX: u64 = 64 << 10;

/// How long they may take to come.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the body of a connection's request goes that is dropped before its end.
#[derive(Default)]
pub struct Unread(Mutex<Slot>);

#[derive(Default)]
enum Slot {
    /// The request has its response: what is dropped now is lost, and the connection with it.
    #[default]
    Closed,
    /// The request is being answered.
    Open(Option<Incoming>),
}

impl Unread {
    /// The body that was dropped unread by the time of the response.
    pub fn close(&self) -> Option<Incoming> {
        match std::mem::take(&mut *self.0.lock()) {
            Slot::Closed => None,
            Slot::Open(unread) => unread,
        }
    }
}

/// A request's body, which goes back to its connection if it is dropped before its end.
pub struct TrackedBody {
    /// There until it is dropped.
    body: Option<Incoming>,
    ended: bool,
    unread: Arc<Unread>,
}

impl TrackedBody {
    /// A body, and where it goes when it is dropped unread.
    pub fn new(body: Incoming, unread: Arc<Unread>) -> Self {
        *unread.0.lock() = Slot::Open(None);
        Self { body: Some(body), ended: false, unread }
    }

    /// The body as handlers take it. A request without one costs nothing here.
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
        // After an error there is nothing to be read either.
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

/// Reads the rest of a body; whether its end came within the bounds.
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
