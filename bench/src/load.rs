//! The load generator: keep-alive connections of hyper's client, each of which sends a request,
//! waits for the whole response, and sends the next request.
//!
//! It runs on one thread of the bench process, so that it takes at most one core from either
//! server. Node and bare handler take turns in short rounds, so that both run under the same
//! conditions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderValue;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::process::{Server, cpu_seconds};
use celeris_cli::Failure;

/// Significant digits of latencies.
const FIGURES: u8 = 3;

/// Duration of a round, and of a round in a quick run.
pub const ROUND: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(50)];

/// A repeated request load.
pub struct Load<'a> {
    /// Number of concurrent connections.
    pub connections: usize,
    pub path: &'a str,
    /// Request bodies, which the connections use in turn.
    pub bodies: &'a [Bytes],
    /// Number of rounds of each server.
    pub rounds: usize,
    /// Duration of a round.
    pub round: Duration,
}

/// The performance of a server under a load.
pub struct Served {
    /// Requests per second, over all rounds. In every round, scheduling settles in one of several
    /// modes whose rates differ by half: a mean weights them by frequency, while a median would
    /// pick one.
    pub rate: f64,
    /// The 99th percentile of latencies, in microseconds, over all rounds.
    pub p99_micros: f64,
    /// What a request took of the server's processors, and of the load generator's, in microseconds; NaN if the system does not
    /// tell.
    pub server_micros: f64,
    pub client_micros: f64,
}

/// A connection that can send requests.
pub type Sender = SendRequest<Full<Bytes>>;

/// Opens a connection that lives as long as the sender.
pub async fn connect(address: SocketAddr) -> Result<Sender, Failure> {
    let stream = TcpStream::connect(address).await.map_err(Failure::other)?;
    stream.set_nodelay(true).map_err(Failure::other)?;
    sender_on(stream).await
}

/// Like [`connect`], encrypted if the server is.
pub async fn open(server: &Server) -> Result<Sender, Failure> {
    let Some(tls) = server.tls() else { return connect(server.address()).await };
    let stream = TcpStream::connect(server.address()).await.map_err(Failure::other)?;
    stream.set_nodelay(true).map_err(Failure::other)?;
    let name = ServerName::try_from("localhost").map_err(Failure::other)?;
    sender_on(tls.connect(name, stream).await.map_err(Failure::other)?).await
}

async fn sender_on(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Sender, Failure> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::other)?;
    // The next request on a broken connection reports the error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Sends one request and reads the whole response.
pub async fn ask(sender: &mut Sender, path: &str, body: Bytes) -> Result<Bytes, Failure> {
    ask_with(sender, path, body, None).await
}

/// Like [`ask`], with this header `Authorization`.
pub async fn ask_with(
    sender: &mut Sender,
    path: &str,
    body: Bytes,
    authorization: Option<&HeaderValue>,
) -> Result<Bytes, Failure> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(Failure::other)?;
    if let Some(authorization) = authorization {
        request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
    }
    sender.ready().await.map_err(Failure::other)?;
    let reply = sender.send_request(request).await.map_err(Failure::other)?;
    let status = reply.status();
    let body = reply.into_body().collect().await.map_err(Failure::other)?.to_bytes();
    if status == StatusCode::OK {
        return Ok(body);
    }
    Err(Failure::other(format!("{path} answered {status}: {}", String::from_utf8_lossy(&body))))
}

/// One server under load.
struct Side<'a> {
    server: &'a Server,
    senders: Vec<Sender>,
    next: usize,
    seconds: f64,
    latencies: Histogram<u64>,
    /// Seconds of processors: of the server, and of this thread.
    cpu: [f64; 2],
}

impl<'a> Side<'a> {
    async fn open(server: &'a Server, connections: usize) -> Result<Self, Failure> {
        let mut senders = Vec::with_capacity(connections);
        for _ in 0..connections {
            senders.push(open(server).await?);
        }
        let latencies = Histogram::new(FIGURES).map_err(Failure::other)?;
        Ok(Self { server, senders, next: 0, seconds: 0.0, latencies, cpu: [0.0; 2] })
    }

    fn cpu(&self) -> [f64; 2] {
        [self.server.cpu_seconds(), cpu_seconds("/proc/thread-self/schedstat")]
    }

    /// Loads the server for one round.
    async fn round(&mut self, load: &Load<'_>) -> Result<(), Failure> {
        let (authorization, before) = (self.server.authorization(), self.cpu());
        let started = Instant::now();
        let deadline = started + load.round;
        let mut asking = Vec::with_capacity(self.senders.len());
        for (connection, mut sender) in self.senders.drain(..).enumerate() {
            let first = self.next + connection;
            let stride = load.connections;
            asking.push(async move {
                let mut latencies = Vec::new();
                let mut turn = first;
                loop {
                    let asked = Instant::now();
                    if asked >= deadline {
                        return Ok::<_, Failure>((sender, latencies));
                    }
                    let body = load.bodies[turn % load.bodies.len()].clone();
                    ask_with(&mut sender, load.path, body, authorization).await?;
                    latencies.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
                    turn += stride;
                }
            });
        }
        let outcomes = futures_util::future::try_join_all(asking).await?;
        let elapsed = started.elapsed().as_secs_f64();
        let after = self.cpu();
        self.cpu.iter_mut().zip(after).zip(before).for_each(|((sum, after), before)| *sum += after - before);
        let mut requests = 0;
        for (sender, latencies) in outcomes {
            self.senders.push(sender);
            requests += latencies.len();
            for latency in latencies {
                self.latencies.record(latency).map_err(Failure::other)?;
            }
        }
        self.next += requests;
        self.seconds += elapsed;
        Ok(())
    }

    /// Forgets what was measured.
    fn clear(&mut self) {
        (self.seconds, self.cpu) = (0.0, [0.0; 2]);
        self.latencies.clear();
    }

    fn served(self) -> Served {
        let requests = self.latencies.len() as f64;
        let [server, client] = self.cpu;
        Served {
            rate: requests / self.seconds,
            p99_micros: self.latencies.value_at_quantile(0.99) as f64 / 1e3,
            server_micros: server / requests * 1e6,
            client_micros: client / requests * 1e6,
        }
    }
}

impl Load<'_> {
    /// Loads node and bare handler in turn.
    ///
    /// # Errors
    /// If one of them responds with a status other than 200.
    pub fn drive(&self, client: &Runtime, node: &Server, bare: &Server) -> Result<(Served, Served), Failure> {
        client.block_on(async {
            let mut ours = Side::open(node, self.connections).await?;
            let mut baseline = Side::open(bare, self.connections).await?;
            // The first round warms up caches and branch predictors on both sides and is not
            // counted.
            for side in [&mut ours, &mut baseline] {
                side.round(self).await?;
                side.clear();
            }
            for _ in 0..self.rounds {
                ours.round(self).await?;
                baseline.round(self).await?;
            }
            Ok((ours.served(), baseline.served()))
        })
    }
}

/// The load generator's runtime: one thread.
pub fn client() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::other)
}
