//! Connections: bounded in number and in time, and closed so that the last response arrives.
//!
//! Above the bound a small reserve of connections is still accepted, each for one request to `/healthz` or `/readyz`; the
//! oldest of the reserve makes room for the newest, so idle ones never keep health checks out.

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
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::middleware::origins::host_of;
use crate::patient_stream::PatientStream;
use crate::unread_body::{self, TrackedBody, Unread};

/// Connections above the bound, for health checks only.
const RESERVE: usize = 16;

/// How long a connection of the reserve may take to send the head of its request.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of the head of a request: request line and headers.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// How long a silent peer is waited for before TCP asks whether it is still there, and between two such probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

/// How long a connection that was closed by the server is read on, so that a peer which is still sending gets the response
/// instead of a reset, and how many bytes of it at most.
const LINGER: Duration = Duration::from_secs(30);
const LINGER_BYTES_MAX: usize = 16 << 20;

/// How long to wait when the system refuses a connection, as where no file descriptors are left.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// The bounds of connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// How long a connection may take to send the whole head of a request, from its start or from the response before; and
    /// for how long its peer may take nothing of a response.
    pub idle_timeout: Duration,
}

/// What the requests of a connection share.
pub struct Connection {
    /// The address that it came to, as a host is written.
    pub host: String,
    /// Whether it belongs to the reserve.
    pub reserve: bool,
    /// The body of the current request, once it was dropped before its end.
    unread: Arc<Unread>,
    /// Whether the peer may still be sending when the connection closes.
    lingers: AtomicBool,
}

impl Connection {
    /// The request with a body that is kept with the connection if it is dropped unread.
    pub fn track(&self, request: hyper::Request<Incoming>) -> Request {
        request.map(|body| TrackedBody::new(body, self.unread.clone()).into_body())
    }

    /// Reads the rest of a request's body that was answered before it was read, up to a bound, so that the next request
    /// on the connection is found. Beyond the bound the response says that the connection closes.
    pub async fn settle(&self, expects_continue: bool, response: &mut Response) {
        let Some(unread) = self.unread.close() else { return };
        // Reading would ask the peer for the body that it has held back.
        if !expects_continue && Box::pin(unread_body::drain(unread)).await {
            return;
        }
        self.lingers.store(true, Ordering::Relaxed);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Accepts connections until `shutdown`, then lets the requests under way end.
pub async fn serve<H, F>(listener: TcpListener, bounds: Bounds, handler: H, shutdown: impl Future<Output = ()>)
where
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
            // Nothing is done with what ended but forgetting it.
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
        let task = tasks.spawn(open.serve(stream, handler.clone()));
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
    /// `None` in the reserve.
    permit: Option<OwnedSemaphorePermit>,
    bounds: Bounds,
    stopping: watch::Receiver<bool>,
}

impl Open {
    async fn serve<H, F>(mut self, stream: TcpStream, handler: H)
    where
        H: Fn(Arc<Connection>, hyper::Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        set_options(&stream);
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
            // A client may say that it sends no more, and waits for the answer.
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
            // What is no HTTP is answered so. Any other broken connection is its peer's affair.
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

async fn asked_to_stop(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is a stop as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

fn set_options(stream: &TcpStream) {
    // A response that waits for the acknowledgement of the one before is a late one.
    let delay = stream.set_nodelay(true);
    let probes = TcpKeepalive::new().with_time(TCP_KEEPALIVE).with_interval(TCP_KEEPALIVE);
    let keepalive = SockRef::from(stream).set_tcp_keepalive(&probes);
    if let Err(error) = delay.and(keepalive) {
        tracing::debug!(%error, "a connection keeps its options");
    }
}

async fn linger(mut stream: TcpStream) {
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
    // Whichever comes first: the end, the bound, or the time.
    let _ = tokio::time::timeout(LINGER, reading).await;
}

/// How many connections are allowed where `configured` are wished for: at most half of the files that the process may
/// open, the limit of which is raised as far as the system allows. The other half is for the store.
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
