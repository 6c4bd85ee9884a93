//! The load generator: keep-alive connections of hyper's client, each of which asks, waits for the whole answer, and
//! asks again.
//!
//! It runs on one thread of the bench's own process, so that it takes no more than one core from either server. Node
//! and bare handler take turns in short rounds, so that both see the same machine.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::process::Server;
use celeris_cli::Failure;

/// Significant figures of latencies.
const FIGURES: u8 = 3;

/// How long a round takes, and in a quick run.
pub const ROUND: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(50)];

/// What is asked, over and over.
pub struct Load<'a> {
    /// Connections that ask at the same time.
    pub connections: usize,
    /// The path.
    pub path: &'a str,
    /// Bodies, which the connections take in turn.
    pub bodies: &'a [Bytes],
    /// Rounds of each server.
    pub rounds: usize,
    /// How long a round takes.
    pub round: Duration,
}

/// What a server made of a load.
pub struct Served {
    /// Requests a second, over all rounds. Scheduling settles anew in every round, in one of several ways whose rates
    /// differ by half: a mean takes them as often as they come, of which a median would pick one.
    pub rate: f64,
    /// The latency that 99 of 100 requests do not exceed, in microseconds, over all rounds.
    pub p99_micros: f64,
}

/// A connection, ready to ask.
pub type Sender = SendRequest<Full<Bytes>>;

/// Opens a connection that lives as long as the sender.
pub async fn connect(address: SocketAddr) -> Result<Sender, Failure> {
    let stream = TcpStream::connect(address).await.map_err(Failure::other)?;
    stream.set_nodelay(true).map_err(Failure::other)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::other)?;
    // A broken connection is told to whoever asks next on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Asks once and reads the whole answer.
pub async fn ask(sender: &mut Sender, path: &str, body: Bytes) -> Result<Bytes, Failure> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(Failure::other)?;
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
struct Side {
    senders: Vec<Sender>,
    next: usize,
    seconds: f64,
    latencies: Histogram<u64>,
}

impl Side {
    async fn open(server: &Server, connections: usize) -> Result<Self, Failure> {
        let mut senders = Vec::with_capacity(connections);
        for _ in 0..connections {
            senders.push(connect(server.address()).await?);
        }
        let latencies = Histogram::new(FIGURES).map_err(Failure::other)?;
        Ok(Self { senders, next: 0, seconds: 0.0, latencies })
    }

    /// Drives the server for one round.
    async fn round(&mut self, load: &Load<'_>) -> Result<(), Failure> {
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
                    ask(&mut sender, load.path, body).await?;
                    latencies.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
                    turn += stride;
                }
            });
        }
        let outcomes = futures_util::future::try_join_all(asking).await?;
        let elapsed = started.elapsed().as_secs_f64();
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

    fn served(self) -> Served {
        Served {
            rate: self.latencies.len() as f64 / self.seconds,
            p99_micros: self.latencies.value_at_quantile(0.99) as f64 / 1e3,
        }
    }
}

impl Load<'_> {
    /// Drives node and bare handler in turn.
    ///
    /// # Errors
    /// Where one of them answers anything but 200.
    pub fn drive(&self, client: &Runtime, node: &Server, bare: &Server) -> Result<(Served, Served), Failure> {
        client.block_on(async {
            let mut ours = Side::open(node, self.connections).await?;
            let mut baseline = Side::open(bare, self.connections).await?;
            // The first round opens caches and branches on both sides, and is not counted.
            for side in [&mut ours, &mut baseline] {
                side.round(self).await?;
                side.seconds = 0.0;
                side.latencies.clear();
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
