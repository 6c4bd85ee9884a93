//! An NDJSON stream of observations, whose replies are read while lines are still being sent.

use std::convert::Infallible;
use std::ops::Range;
use std::time::Instant;

use celeris_model::ItemId;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use rand::RngExt;
use tokio::net::TcpStream;

use crate::process::{MODEL, Server};
use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_cli::estimate::warm::{Ids, observation_id};

/// Bytes of lines per chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// Serialized lines.
pub struct Lines {
    chunks: Vec<Bytes>,
    count: usize,
}

impl Lines {
    /// `each` observations of each of `users` users, users in turn. `seed` makes ids differ between
    /// streams.
    ///
    /// # Errors
    /// None: generated ids are valid.
    pub fn invent(items: &[ItemId], users: usize, each: usize, ids: Ids, seed: u64) -> Result<Self, Failure> {
        Self::of_users(items, 0..users, each, ids, seed)
    }

    /// Like [`Lines::invent`], for the users with these numbers.
    ///
    /// # Errors
    /// None: generated ids are valid.
    pub fn of_users(items: &[ItemId], users: Range<usize>, each: usize, ids: Ids, seed: u64) -> Result<Self, Failure> {
        use std::io::Write;
        let mut rng = scene::rng(seed);
        let (mut chunks, mut chunk) = (Vec::new(), Vec::with_capacity(CHUNK_BYTES));
        for number in 0..users.len() * each {
            let user = scene::user(users.start + number % users.len()).map_err(Failure::other)?;
            let item = &items[rng.random_range(0..items.len())];
            let label = rng.random_range(1..=10_u8);
            let label = f32::from(label) / 2.0;
            let written = match ids {
                Ids::None => writeln!(chunk, r#"{{"user":"{user}","item":"{item}","label":{label}}}"#),
                Ids::Given => {
                    let id = observation_id(rng.random()).map_err(Failure::other)?;
                    writeln!(chunk, r#"{{"user":"{user}","item":"{item}","label":{label},"observation_id":"{id}"}}"#)
                }
            };
            written.map_err(Failure::other)?;
            if chunk.len() >= CHUNK_BYTES {
                chunks.push(std::mem::take(&mut chunk).into());
            }
        }
        chunks.push(chunk.into());
        Ok(Self { chunks, count: users.len() * each })
    }

    /// Number of lines.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all lines.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// Sends all lines in one stream; returns the seconds until the last reply.
    ///
    /// # Errors
    /// If a line is rejected, or not all lines are answered.
    pub async fn send(&self, server: &Server) -> Result<f64, Failure> {
        let stream = TcpStream::connect(server.address()).await.map_err(Failure::other)?;
        stream.set_nodelay(true).map_err(Failure::other)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::other)?;
        tokio::spawn(async move { drop(connection.await) });
        let frames = self.chunks.clone().into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/v1/models/{MODEL}/observations"))
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/x-ndjson")
            .body(StreamBody::new(futures_util::stream::iter(frames)))
            .map_err(Failure::other)?;
        let started = Instant::now();
        let reply = sender.send_request(request).await.map_err(Failure::other)?;
        if reply.status() != StatusCode::OK {
            return Err(Failure::other(format!("the stream was answered {}", reply.status())));
        }
        let mut body = reply.into_body();
        let (mut answered, mut refused) = (0, None);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(Failure::other)?.into_data() else { continue };
            answered += memchr::memchr_iter(b'\n', &data).count();
            answered -= memchr::memmem::find_iter(&data, b"{\"summary\":").count();
            // A rejected line begins with its number. One that is split between two frames is
            // missed, but others are not.
            if refused.is_none() && memchr::memmem::find(&data, b"{\"line\":").is_some() {
                refused = Some(String::from_utf8_lossy(&data[..data.len().min(400)]).into_owned());
            }
        }
        if let Some(refused) = refused {
            return Err(Failure::other(format!("a line was refused: {refused}")));
        }
        if answered != self.count {
            return Err(Failure::other(format!("{answered} of {} lines were answered", self.count)));
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

/// Sends `history` observations for each of the first `users` users.
///
/// # Errors
/// As [`Lines::send`].
pub async fn teach(node: &Server, items: &[ItemId], users: usize, history: usize) -> Result<(), Failure> {
    Lines::invent(items, users, history, Ids::None, 30)?.send(node).await.map(drop)
}
