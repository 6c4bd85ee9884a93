//! Files of other nodes: read by threads that may block.

use std::io::{self, Read};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::forward::url_at;

/// How long another node may take to answer, and between two parts of its answer. It may have to write a
/// copy of its store first.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Parts of a reply that wait to be read.
const PARTS_MAX: usize = 16;

/// Maximum bytes of the text of an error that is quoted.
const ERROR_BYTES_MAX: usize = 500;

/// Reads files of other nodes.
#[derive(Clone)]
pub struct Downloader {
    client: Client<HttpConnector, Body>,
    runtime: Handle,
}

impl Downloader {
    /// Must be called within a runtime, which reads from the network.
    #[must_use]
    pub fn start() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self { client: Client::builder(TokioExecutor::new()).build(connector), runtime: Handle::current() }
    }

    /// The reply of the node at `url` to a GET of `path`, as it arrives. Blocks the thread, as the reader does.
    ///
    /// # Errors
    /// If the node does not answer in time, or not with 200.
    pub fn get(&self, url: &str, path: &str) -> io::Result<impl Read + use<>> {
        let request = Request::get(url_at(url, path)).body(Body::empty()).map_err(io::Error::other)?;
        let (parts, received) = mpsc::channel(PARTS_MAX);
        let client = self.client.clone();
        // The timer is made within the runtime: this thread may be of none.
        let response = self.runtime.block_on(async { timeout(IDLE_MAX, client.request(request)).await });
        let response = response.map_err(|_| late())?.map_err(io::Error::other)?;
        let (head, mut body) = response.into_parts();
        self.runtime.spawn(async move {
            loop {
                let part = match timeout(IDLE_MAX, body.frame()).await {
                    Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
                    Ok(Some(Err(error))) => Err(io::Error::other(error)),
                    Ok(None) => return,
                    Err(_) => Err(late()),
                };
                let is_last = part.is_err();
                if parts.send(part).await.is_err() || is_last {
                    return;
                }
            }
        });
        let mut reply = Reply { parts: received, part: Bytes::new() };
        if head.status == StatusCode::OK {
            return Ok(reply);
        }
        let mut text = String::new();
        // Whatever can be read of it.
        let _ = reply.by_ref().take(ERROR_BYTES_MAX as u64).read_to_string(&mut text);
        Err(io::Error::other(format!("{url}{path}: {}: {text}", head.status)))
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the node did not answer in time")
}

/// The body of a reply.
struct Reply {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    /// What is left of the last one.
    part: Bytes,
}

impl Read for Reply {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part?,
                None => return Ok(0),
            }
        }
        let taken = self.part.split_to(buffer.len().min(self.part.len()));
        buffer[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }
}
