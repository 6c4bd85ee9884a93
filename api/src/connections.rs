//! Connections: limited in number and in time, and closed gracefully so that the last response
//! arrives.
//!
//! Beyond the limit, a small reserve of connections is still accepted, each for a single request to
//! `/healthz` or `/readyz`. A new reserve connection evicts the oldest one, so idle connections
//! cannot block health checks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::hosts::host_of;
use crate::patient_stream::PatientStream;
use crate::tls::Tls;
use crate::unread_body::{self, TrackedBody, Unread};

/// Connections beyond the limit, for health checks only.
const RESERVE: usize = 16;

/// How long a reserve connection may take to send a request head.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the beginning of encryption may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a request head: request line and headers.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Idle time before the first TCP keepalive probe, and the interval between probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// For how long, and up to how many bytes, a connection is still read after the server has closed
/// it. A peer that is still sending then receives the response instead of a reset.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_BYTES_MAX: usize = 16 << 20;

/// Pause after a failed `accept`, for example when no file descriptors are left.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// Limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub connections: usize,
    /// How long a connection may take to send a complete request head, measured from its start or
    /// from the previous response; and how long its peer may accept no bytes of a response.
    pub idle_timeout: Duration,
}

/// State shared by the requests of one connection.
pub struct Connection {
    /// The local address that the client connected to, formatted as a host.
    pub host: String,
    /// Whether it belongs to the reserve.
    pub reserve: bool,
    /// The body of the current request, if it was dropped before its end.
    unread: Arc<Unread>,
    /// Whether the peer may still be sending when the connection closes.
    lingers: AtomicBool,
}

impl Connection {
    /// Wraps the request body so that the connection gets it back if it is dropped unread.
    pub fn track(&self, request: hyper::Request<Incoming>) -> Request {
        request.map(|body| TrackedBody::new(body, self.unread.clone()).into_body())
    }

    /// Drains an unread request body up to a limit, so that the next request on the connection can
    /// be parsed. Beyond the limit, sets `Connection: close` on the response.
    pub async fn settle(&self, expects_continue: bool, response: &mut Response) {
        let Some(unread) = self.unread.close() else { return };
        // Reading would send `100 Continue` and so request the body that the peer has held back.
        if !expects_continue && Box::pin(unread_body::drain(unread)).await {
            return;
        }
        self.lingers.store(true, Ordering::Relaxed);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Accepts connections until `shutdown`, then lets the requests in flight finish.
pub async fn serve<H, F>(
    listener: TcpListener,
    (bounds, tls): (Bounds, Option<Arc<Tls>>),
    handler: H,
    shutdown: impl Future<Output = ()>,
) where
    H: Fn(Arc<Connection>, hyper::Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(bounds.connections));
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut reserve = VecDeque::with_capacity(RESERVE);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            // Finished tasks are only removed from the set.
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(REFUSED_PAUSE).await;
                continue;
            }
        };
        let Ok(local) = stream.local_addr() else { continue };
        let permit = permits.clone().try_acquire_owned().ok();
        let open = Open { local, permit, bounds, stopping: stopping.clone() };
        let of_reserve = open.permit.is_none();
        let task = match &tls {
            None => tasks.spawn(open.serve(stream, handler.clone())),
            Some(tls) => tasks.spawn(open.serve_encrypted(stream, tls.acceptor(), handler.clone())),
        };
        if of_reserve {
            hold_in_reserve(&mut reserve, task);
        }
    }
    drop(listener);
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
}

fn hold_in_reserve(reserve: &mut VecDeque<AbortHandle>, newest: AbortHandle) {
    reserve.retain(|held| !held.is_finished());
    if reserve.len() == RESERVE
        && let Some(oldest) = reserve.pop_front()
    {
        oldest.abort();
    }
    reserve.push_back(newest);
}

/// An accepted connection.
struct Open {
    local: SocketAddr,
    /// `None` for a reserve connection.
    permit: Option<OwnedSemaphorePermit>,
    bounds: Bounds,
    stopping: watch::Receiver<bool>,
}

impl Open {
    async fn serve_encrypted<H, F>(mut self, stream: TcpStream, acceptor: TlsAcceptor, handler: H)
    where
        H: Fn(Arc<Connection>, hyper::Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        set_options(&stream);
        let patience = self.bounds.idle_timeout.min(HANDSHAKE_TIMEOUT);
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(patience, acceptor.accept(stream)) => accepted,
            () = asked_to_stop(&mut self.stopping) => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.serve_on(stream, handler).await,
            // It concerns only the peer.
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not encrypted"),
            Err(_late) => {}
        }
    }

    async fn serve<H, F>(self, stream: TcpStream, handler: H)
    where
        H: Fn(Arc<Connection>, hyper::Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        set_options(&stream);
        self.serve_on(stream, handler).await;
    }

    async fn serve_on<S, H, F>(mut self, stream: S, handler: H)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        H: Fn(Arc<Connection>, hyper::Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        let reserve = self.permit.is_none();
        let connection = Arc::new(Connection {
            host: host_of(self.local.ip()),
            reserve,
            unread: Arc::default(),
            lingers: AtomicBool::new(false),
        });
        let idle_timeout = self.bounds.idle_timeout;
        let mut stream = PatientStream::new(stream, idle_timeout);
        {
            let answer = service_fn(|request| {
                let answering = handler(connection.clone(), request);
                async move { Ok::<_, Infallible>(answering.await) }
            });
            let mut builder = http1::Builder::new();
            // A client may half-close the connection and wait for the response.
            builder.half_close(true);
            builder.timer(TokioTimer::new()).max_header_size(HEAD_BYTES_MAX).keep_alive(!reserve);
            builder.header_read_timeout(if reserve { idle_timeout.min(RESERVE_TIMEOUT) } else { idle_timeout });
            let mut http = pin!(builder.serve_connection(TokioIo::new(&mut stream), answer));
            let ended = tokio::select! {
                ended = http.as_mut() => ended,
                () = asked_to_stop(&mut self.stopping) => {
                    http.as_mut().graceful_shutdown();
                    http.await
                }
            };
            // A parse error has been answered with 400, so linger for it. Other connection errors
            // concern only the peer.
            if ended.is_err_and(|error| error.is_parse()) {
                connection.lingers.store(true, Ordering::Relaxed);
            }
        }
        if connection.lingers.load(Ordering::Relaxed) {
            tokio::select! {
                () = linger(stream.into_inner()) => {}
                () = asked_to_stop(&mut self.stopping) => {}
            }
        }
    }
}

/// Completes once the server is to stop.
pub async fn asked_to_stop(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped, which is also a stop.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

fn set_options(stream: &TcpStream) {
    // Without `TCP_NODELAY`, a response may wait for the acknowledgement of the previous one.
    let delay = stream.set_nodelay(true);
    let probes = TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE);
    let keepalive = SockRef::from(stream).set_tcp_keepalive(&probes);
    if let Err(error) = delay.and(keepalive) {
        tracing::debug!(%error, "socket options were not set");
    }
}

async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let reading = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut buffer = vec![0; 16 << 10];
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => left = left.saturating_sub(bytes),
            }
        }
    };
    // Ends at end of stream, at the byte limit or at the timeout, whichever comes first.
    let _ = tokio::time::timeout(LINGER, reading).await;
}

/// The connection limit in effect: `configured`, capped at half of the file descriptor limit, which
/// is raised as far as the system allows. The other half is reserved for the store.
pub fn allowed(configured: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let mut files = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: files.maximum, maximum: files.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        files = raised;
    }
    let half = files.current.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
    if half < configured {
        tracing::warn!(
            connections = half,
            configured,
            "the limit of open files allows fewer connections than configured"
        );
    }
    configured.min(half).max(1)
}
