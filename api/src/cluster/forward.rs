//! Requests to other nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::Response;
use celeris_model::{NodeName, PlacementRevision};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{Instrument, Span};

use super::connector::NodeConnector;
use super::headers::{of_next_hop, placement_of, remove_of_connection};
use super::kept::Kept;
use super::router::Peer;
use super::tls::NodeTls;
use crate::access::NodeSecret;
use crate::scope;

/// How long a connection to another node may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an idle connection is kept: less than nodes leave one open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of idle connections to a node.
const IDLE_CONNECTIONS: usize = 64;

/// Maximum number of requests to a node at a time, each on a connection of its own.
const REQUESTS_AT_ONCE: usize = 512;

/// Maximum bytes of the reply to a forwarded request.
const REPLY_BYTES_MAX: usize = 256 << 20;

/// Why another node gave no reply.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The request was not sent.
    NotSent(String),
    /// The request was sent, at least in part, and may have been carried out.
    Unknown(String),
    /// Too many requests to that node are under way.
    Busy,
}

/// What another node replied.
#[derive(Debug)]
pub enum Answered {
    /// Its answer for the client.
    Reply(Response),
    /// It does not own the user: its placement is another.
    Misplaced,
}

/// The client of the other nodes: kept-alive HTTP/1.1, encrypted to those whose URL says so.
pub struct Forwarder {
    client: Client<NodeConnector, Body>,
    secret: NodeSecret,
    /// One permit for each request to a node.
    permits: Mutex<HashMap<NodeName, Arc<Semaphore>>>,
}

impl Forwarder {
    pub(super) fn new(secret: NodeSecret, tls: NodeTls) -> Self {
        let connector = NodeConnector::new(tls, CONNECT_TIMEOUT);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Self { client, secret, permits: Mutex::default() }
    }

    /// Sends a request to a node and reads its reply. `from` are this node and the revision of its
    /// placement.
    ///
    /// # Errors
    /// If no complete reply came.
    pub async fn send(
        &self,
        peer: &Peer,
        from: (&NodeName, PlacementRevision),
        request: &Kept,
    ) -> Result<Answered, Failure> {
        let _permit = self.permit(&peer.node)?;
        let started = Instant::now();
        let answered = self.exchange(peer, from, request.request()).await;
        let outcome = match &answered {
            Ok(Answered::Reply(_)) => "answered",
            Ok(Answered::Misplaced) => "misplaced",
            Err(Failure::NotSent(_)) => "not_sent",
            Err(Failure::Unknown(_) | Failure::Busy) => "broken",
        };
        metrics::counter!("celeris_forwarded_total", "outcome" => outcome).increment(1);
        metrics::histogram!("celeris_forward_seconds").record(started.elapsed().as_secs_f64());
        answered
    }

    async fn exchange(
        &self,
        peer: &Peer,
        from: (&NodeName, PlacementRevision),
        request: Request,
    ) -> Result<Answered, Failure> {
        let Answered::Reply(response) = self.stream(peer, from, request).await? else {
            return Ok(Answered::Misplaced);
        };
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, REPLY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Failure::Unknown(error.to_string()))?.to_bytes();
        Ok(Answered::Reply(Response::from_parts(parts, Body::from(body))))
    }

    /// Sends a request with a streamed body, and passes its reply on as it arrives. The caller bounds
    /// the number of streams.
    ///
    /// # Errors
    /// If no head of a reply came.
    pub async fn stream(
        &self,
        peer: &Peer,
        from: (&NodeName, PlacementRevision),
        request: Request,
    ) -> Result<Answered, Failure> {
        let response = self.open(peer, from, request).await?;
        if is_misplaced(&response) {
            return Ok(Answered::Misplaced);
        }
        Ok(Answered::Reply(response.map(Body::new)))
    }

    /// Sends a request whose body or reply is a stream. The caller bounds the number of streams.
    ///
    /// # Errors
    /// If no head of a reply came.
    pub async fn open(
        &self,
        peer: &Peer,
        (node, revision): (&NodeName, PlacementRevision),
        request: Request,
    ) -> Result<hyper::Response<Incoming>, Failure> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = url_at(&peer.url, path).parse().map_err(|_| Failure::NotSent(format!("{}: no URL", peer.url)))?;
        let scope = scope::current();
        let is_recorded = scope.as_ref().is_some_and(|scope| scope.is_recorded());
        let span = if is_recorded { scope::to_node(peer.node.as_str()) } else { Span::none() };
        of_next_hop(&mut parts.headers, (node.as_str(), revision));
        if let Some(scope) = scope {
            scope.sign(&mut parts.headers, &span);
        }
        self.secret.sign(&mut parts.headers, parts.extensions.get());
        let mut next = Request::new(body);
        (*next.method_mut(), *next.uri_mut(), *next.headers_mut()) = (parts.method, parts.uri, parts.headers);
        let mut response = self.client.request(next).instrument(span.clone()).await.map_err(|error| {
            scope::note_unanswered(&span);
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let about = format!("{}: {error}: {cause}", peer.url);
            if error.is_connect() { Failure::NotSent(about) } else { Failure::Unknown(about) }
        })?;
        scope::note_status(&span, response.status());
        remove_of_connection(response.headers_mut());
        Ok(response)
    }

    fn permit(&self, node: &NodeName) -> Result<OwnedSemaphorePermit, Failure> {
        let mut permits = self.permits.lock();
        let of_node = permits.entry(node.clone()).or_insert_with(|| Arc::new(Semaphore::new(REQUESTS_AT_ONCE)));
        of_node.clone().try_acquire_owned().map_err(|_| Failure::Busy)
    }
}

/// Whether a node refused a request because its placement is another.
fn is_misplaced(response: &hyper::Response<Incoming>) -> bool {
    response.status() == StatusCode::MISDIRECTED_REQUEST && placement_of(response.headers()).is_some()
}

/// A path, with its query, at the node with this URL.
#[must_use]
pub fn url_at(url: &str, path: &str) -> String {
    format!("{}{path}", url.trim_end_matches('/'))
}

/// A request that a node makes itself.
#[must_use]
pub(super) fn post_lines(path: &str, body: Body) -> Request {
    let mut request = Request::new(body);
    *request.method_mut() = axum::http::Method::POST;
    *request.uri_mut() = path.parse().unwrap_or_default();
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(super::NDJSON));
    request
}

/// The whole body of a reply that was read.
pub(super) async fn whole(body: Body) -> Bytes {
    body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}
