//! Streams of lines to other nodes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::response::Response;
use celeris_model::{ModelId, ModelName, NodeName, PlacementRevision};
use futures_util::stream;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{Mutex, mpsc};

use super::forward::{Answered, Failure, Forwarder, post_lines, whole};
use super::headers::MODEL_ID;
use super::kept::{Kept, NDJSON};
use super::replies::{LineReply, Lines};
use super::router::Peer;
use crate::access::Principal;
use crate::error::{ApiError, Problem};
use crate::scope::{Task, carried};

/// Chunks of lines that wait to be sent.
const CHUNKS: usize = 4;

/// Replies that wait to be passed on.
const REPLIES: usize = 256;

/// How a stream ended before all of its lines were answered.
#[derive(Debug, Clone)]
pub enum End {
    /// No line was taken: the node could not be reached, or does not own the users any more.
    Nothing(String),
    /// The node refused the stream, and took no line.
    Refused(Box<Problem>),
    /// The connection broke: lines without a reply may have been taken.
    Broken(String),
}

/// An open stream to another node. Each line gets one reply, in order.
#[derive(Clone)]
pub struct Upstream(Arc<Shared>);

struct Shared {
    chunks: mpsc::Sender<Bytes>,
    replies: Mutex<mpsc::Receiver<LineReply>>,
    end: OnceLock<End>,
}

/// Where a stream goes, and what it is for.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    pub peer: &'a Peer,
    /// This node, and the revision of its placement.
    pub from: (&'a NodeName, PlacementRevision),
    pub model: (&'a ModelName, ModelId),
    /// Whose lines they are.
    pub principal: Option<&'a Principal>,
}

impl Target<'_> {
    fn request(&self, body: Body) -> axum::extract::Request {
        let (name, id) = self.model;
        let mut request = post_lines(&format!("/v1/models/{name}/observations"), body);
        request.headers_mut().insert(MODEL_ID, HeaderValue::from(id.0));
        if let Some(principal) = self.principal {
            request.extensions_mut().insert(principal.clone());
        }
        request
    }
}

impl Upstream {
    /// Opens a stream. An empty line goes out after each `keepalive` without lines.
    #[must_use]
    pub fn open(forwarder: &Arc<Forwarder>, target: &Target<'_>, keepalive: Duration) -> Self {
        let (chunks, unsent) = mpsc::channel(CHUNKS);
        let (sender, replies) = mpsc::channel(REPLIES);
        let shared = Arc::new(Shared { chunks, replies: Mutex::new(replies), end: OnceLock::new() });
        let body = stream::unfold(unsent, move |mut unsent| async move {
            let chunk = match tokio::time::timeout(keepalive, unsent.recv()).await {
                Ok(chunk) => chunk?,
                Err(_silent) => Bytes::from_static(b"\n"),
            };
            Some((Ok::<_, std::convert::Infallible>(chunk), unsent))
        });
        let request = target.request(Body::from_stream(body));
        let (peer, node, revision) = (target.peer.clone(), target.from.0.clone(), target.from.1);
        let (forwarder, ended) = (Arc::clone(forwarder), Arc::downgrade(&shared));
        tokio::spawn(carried(Task::Lines, async move {
            let end = match forwarder.open(&peer, (&node, revision), request).await {
                Ok(response) => pass_on(response, sender.clone()).await,
                Err(Failure::NotSent(problem)) => Some(End::Nothing(problem)),
                Err(failure) => Some(End::Broken(format!("{failure:?}"))),
            };
            if let (Some(shared), Some(end)) = (ended.upgrade(), end) {
                // Set before the replies end.
                let _ = shared.end.set(end);
            }
            drop(sender);
        }));
        Self(shared)
    }

    /// Sends lines, waiting while the node is busy; returns whether the stream still took them.
    pub async fn send(&self, lines: Bytes) -> bool {
        self.0.chunks.send(lines).await.is_ok()
    }

    /// Whether the stream has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.chunks.is_closed() || self.0.end.get().is_some()
    }

    /// The reply to the next line.
    ///
    /// # Errors
    /// How the stream ended, if it did before the reply; it ends if the reply takes longer than
    /// `patience`, or than `given_up`.
    pub async fn reply(&self, patience: Duration, given_up: impl Future<Output = ()>) -> Result<LineReply, End> {
        let mut replies = self.0.replies.lock().await;
        let why = tokio::select! {
            biased;
            reply = replies.recv() => match reply {
                Some(reply) => return Ok(reply),
                None => "the connection ended",
            },
            () = given_up => "another node has taken over from it",
            () = tokio::time::sleep(patience) => "it did not answer in time",
        };
        let end = self.0.end.get_or_init(|| End::Broken(why.to_owned())).clone();
        replies.close();
        // Later replies would be taken for replies to these lines.
        while replies.try_recv().is_ok() {}
        Err(end)
    }
}

/// Passes the replies of a stream on; returns how it ended, if that is known to be no break of the
/// connection.
async fn pass_on(response: hyper::Response<Incoming>, replies: mpsc::Sender<LineReply>) -> Option<End> {
    if !is_lines(response.headers()) {
        return Some(refusal(response.map(Body::new)).await);
    }
    let mut body = response.into_body();
    let mut lines = Lines::default();
    loop {
        // The receiver is gone: the stream was given up.
        let frame = tokio::select! {
            frame = body.frame() => frame?,
            () = replies.closed() => return None,
        };
        let chunk = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => return Some(End::Broken(error.to_string())),
        };
        let Ok(ended) = lines.of(&chunk) else { return Some(End::Broken("a reply is too long".to_owned())) };
        for line in ended {
            match LineReply::read(line) {
                Ok(Some(reply)) => replies.send(reply).await.ok()?,
                Ok(None) => return None,
                Err(error) => return Some(End::Broken(format!("a reply is damaged: {error}"))),
            }
        }
    }
}

fn is_lines(headers: &axum::http::HeaderMap) -> bool {
    headers.get(axum::http::header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == NDJSON.as_bytes())
}

async fn refusal(response: Response) -> End {
    let status = response.status();
    let body = whole(response.into_body()).await;
    match serde_json::from_slice(&body) {
        Ok(problem) => End::Refused(Box::new(problem)),
        Err(_) => End::Broken(format!("it answered {status}")),
    }
}

/// Sends a few lines in a request of their own; returns the replies, in order.
///
/// # Errors
/// How the request failed.
pub async fn send_lines(forwarder: &Forwarder, target: &Target<'_>, lines: Bytes) -> Result<Vec<LineReply>, End> {
    let (parts, _) = target.request(Body::empty()).into_parts();
    let kept = Kept { parts, body: lines };
    let response = match forwarder.send(target.peer, target.from, &kept).await {
        Ok(Answered::Reply(response)) => response,
        Ok(Answered::Misplaced) => return Err(End::Nothing("it does not own the users".to_owned())),
        Err(Failure::NotSent(problem)) => return Err(End::Nothing(problem)),
        Err(Failure::Busy) => return Err(End::Refused(Box::new(busy().problem()))),
        Err(Failure::Unknown(problem)) => return Err(End::Broken(problem)),
    };
    if !is_lines(response.headers()) {
        return Err(refusal(response).await);
    }
    let body = whole(response.into_body()).await;
    let lines = Lines::default().of(&body).unwrap_or_default();
    let replies = lines.into_iter().map_while(|line| LineReply::read(line).ok().flatten());
    Ok(replies.collect())
}

/// Too many requests to another node are under way.
#[must_use]
pub fn busy() -> ApiError {
    ApiError::unavailable("too many requests to the node that owns the user are under way; try again")
}
