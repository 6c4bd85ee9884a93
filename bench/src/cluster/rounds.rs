//! Requests to several nodes in rounds, each client waiting for its answer before it asks again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hyper::body::Bytes;

use crate::load::{Sender, ask, connect};
use crate::stopwatch::Durations;
use celeris_cli::Failure;

/// What was answered in some rounds.
#[derive(Default)]
pub struct Samples {
    count: usize,
    seconds: f64,
    latencies: Durations,
}

impl Samples {
    /// Adds a round.
    pub fn add(&mut self, took: Duration, latencies: impl IntoIterator<Item = Duration>) {
        self.seconds += took.as_secs_f64();
        for latency in latencies {
            self.count += 1;
            self.latencies.add(latency);
        }
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    /// The quantile of the latencies, in milliseconds.
    pub fn quantile_ms(&mut self, quantile: f64) -> f64 {
        self.latencies.quantile_micros(quantile) / 1e3
    }
}

/// A connection to a node, and what it asks in turn.
pub struct Client {
    sender: Sender,
    bodies: Vec<Bytes>,
    next: usize,
}

impl Client {
    pub async fn connect(address: SocketAddr, bodies: Vec<Bytes>) -> Result<Self, Failure> {
        Ok(Self { sender: connect(address).await?, bodies, next: 0 })
    }

    async fn ask(&mut self, path: &str) -> Result<Bytes, Failure> {
        let body = self.bodies[self.next % self.bodies.len()].clone();
        self.next += 1;
        ask(&mut self.sender, path, body).await
    }

    /// Asks until `deadline`; returns the latencies.
    async fn until(&mut self, path: &str, deadline: Instant) -> Result<Vec<Duration>, Failure> {
        let mut latencies = Vec::new();
        loop {
            let asked = Instant::now();
            if asked >= deadline {
                return Ok(latencies);
            }
            self.ask(path).await?;
            latencies.push(asked.elapsed());
        }
    }

    /// Asks once each `period`, or at once where it is late, until a request fails.
    ///
    /// # Errors
    /// That of the request.
    pub async fn paced(&mut self, path: &str, period: Duration) -> Result<(), Failure> {
        let mut ticks = tokio::time::interval(period);
        loop {
            ticks.tick().await;
            self.ask(path).await?;
        }
    }
}

/// All clients ask for one round.
///
/// # Errors
/// If a request fails.
pub async fn round(clients: &mut [Client], path: &str, round: Duration, samples: &mut Samples) -> Result<(), Failure> {
    let started = Instant::now();
    let asking = clients.iter_mut().map(|client| client.until(path, started + round));
    let latencies = futures_util::future::try_join_all(asking).await?;
    samples.add(started.elapsed(), latencies.into_iter().flatten());
    Ok(())
}
