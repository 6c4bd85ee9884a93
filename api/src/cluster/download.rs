//! Requests to other nodes, by threads that may block.

use std::io::{self, Read};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use celeris_pipelines::ObjectId;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connector::NodeConnector;
use super::forward::url_at;
use super::tls::NodeTls;

/// How long another node may take to answer, and between two parts of its answer. It may have to write a
/// copy of its store first.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// How long another node may take to carry out what it is asked for.
const POST_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Parts of a reply that wait to be read.
const PARTS_MAX: usize = 16;

/// Maximum bytes of the text of an error that is quoted.
const ERROR_BYTES_MAX: usize = 500;

/// Reads files of other nodes, and sends them documents.
#[derive(Clone)]
pub struct Downloader {
    client: Client<NodeConnector, Body>,
    /// Of every request: by which the other nodes know this one.
    headers: HeaderMap,
    runtime: Handle,
}

impl Downloader {
    /// Must be called within a runtime, which reads from the network.
    #[must_use]
    pub fn start(headers: HeaderMap, tls: NodeTls) -> Self {
        let connector = NodeConnector::new(tls, CONNECT_TIMEOUT);
        Self { client: Client::builder(TokioExecutor::new()).build(connector), headers, runtime: Handle::current() }
    }

    /// Waits for something that the runtime is to bring, or for this time, and returns it or nothing. Blocks
    /// the thread.
    pub fn wait<T: Default>(&self, limit: Duration, awaited: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(limit, awaited).await.unwrap_or_default() })
    }

    /// The bytes of an object, of the first of these nodes that has it undamaged. Blocks the thread.
    ///
    /// # Errors
    /// `NotFound` if none has it; otherwise that of a node that could not be asked, or has sent something else.
    pub fn object(&self, urls: &[String], id: ObjectId, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "no other node has it");
        for url in urls {
            match self.object_of(url, id, bytes_max) {
                Ok(bytes) => return Ok(bytes),
                // One that has none does not make up for one that could not be asked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn object_of(&self, url: &str, id: ObjectId, bytes_max: usize) -> io::Result<Vec<u8>> {
        let reply = self.get(url, &format!("/v1/cluster/objects/{id}"))?;
        let mut bytes = Vec::new();
        reply.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            let problem = format!("{url}: {id} has more than {bytes_max} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        if ObjectId::of(&bytes) != id {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{url}: {id} has another checksum")));
        }
        Ok(bytes)
    }

    /// Whether the node at `url` refuses this one, because it knows another secret of the cluster. Blocks the thread.
    #[must_use]
    pub fn is_refused(&self, url: &str) -> bool {
        // No object has this name.
        let asked = self.get(url, "/v1/cluster/objects/none");
        let refusals = ["the secret of the cluster", "the nodes of the cluster"];
        asked.is_err_and(|error| refusals.iter().any(|refusal| error.to_string().contains(refusal)))
    }

    /// Posts a JSON document to the node at `url`. Blocks the thread, also one that the runtime has entered.
    ///
    /// # Errors
    /// If the node does not answer in time, or not with success.
    pub fn post(&self, url: &str, path: &str, document: &impl Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(document).map_err(io::Error::other)?;
        let request = Request::post(url_at(url, path)).header(header::CONTENT_TYPE, "application/json");
        let mut request = request.body(Body::from(body)).map_err(io::Error::other)?;
        request.headers_mut().extend(self.headers.clone());
        let (answered, answer) = std::sync::mpsc::sync_channel(1);
        let client = self.client.clone();
        self.runtime.spawn(async move {
            // A thread that waits no longer has dropped the receiver.
            let _ = answered.send(client.request(request).await.map(|response| response.status()));
        });
        let status = answer.recv_timeout(POST_TIMEOUT).map_err(|_| late())?.map_err(io::Error::other)?;
        if status.is_success() { Ok(()) } else { Err(io::Error::other(format!("{url}{path} answered {status}"))) }
    }

    /// The reply of the node at `url` to a GET of `path`, as it arrives. Blocks the thread, as the reader does.
    ///
    /// # Errors
    /// If the node does not answer in time, or not with 200: `NotFound` for 404, and `ResourceBusy` for 503.
    pub fn get(&self, url: &str, path: &str) -> io::Result<Reply> {
        let mut request = Request::get(url_at(url, path)).body(Body::empty()).map_err(io::Error::other)?;
        request.headers_mut().extend(self.headers.clone());
        let (parts, received) = mpsc::channel(PARTS_MAX);
        let client = self.client.clone();
        // A timer is made within the runtime; the thread that blocks may have none.
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
        let length = head.headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
        let mut reply = Reply { parts: received, part: Bytes::new(), length };
        if head.status == StatusCode::OK {
            return Ok(reply);
        }
        let mut text = String::new();
        // Whatever can be read of it.
        let _ = reply.by_ref().take(ERROR_BYTES_MAX as u64).read_to_string(&mut text);
        let kind = match head.status {
            StatusCode::NOT_FOUND => io::ErrorKind::NotFound,
            StatusCode::SERVICE_UNAVAILABLE => io::ErrorKind::ResourceBusy,
            StatusCode::UNAUTHORIZED => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        let problem: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or(&text);
        Err(io::Error::new(kind, format!("{url}{path} answered {}: {detail}", head.status)))
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the node did not answer in time")
}

/// The body of a reply.
pub struct Reply {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    /// What is left of the last one.
    part: Bytes,
    length: Option<u64>,
}

impl Reply {
    /// The length of the body; `None` if the node does not know it.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Answers every connection with this text.
    async fn answering(reply: &'static str) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _request = stream.read(&mut [0; 1024]).await.unwrap();
                stream.write_all(reply.as_bytes()).await.unwrap();
            }
        });
        url
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_outside_of_the_runtime_reads_a_file_of_another_node() {
        let url = answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole").await;
        let downloader = Downloader::start(HeaderMap::new(), NodeTls::default());
        let read = move || {
            let mut reply = downloader.get(&url, "/file").unwrap();
            let mut text = String::new();
            reply.read_to_string(&mut text).unwrap();
            (text, reply.length())
        };
        // Not of the runtime's own threads, which have a timer at hand.
        let thread = std::thread::spawn(read);
        let read = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        assert_eq!(read, ("whole".to_owned(), Some(5)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_kind_of_an_error_tells_a_missing_file_from_a_busy_node() {
        for (reply, kind) in [
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", io::ErrorKind::NotFound),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 21\r\n\r\n{\"detail\":\"one copy\"}", io::ErrorKind::ResourceBusy),
            ("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", io::ErrorKind::Other),
        ] {
            let url = answering(reply).await;
            let downloader = Downloader::start(HeaderMap::new(), NodeTls::default());
            let get = move || downloader.get(&url, "/file").map(drop).unwrap_err();
            let error = tokio::task::spawn_blocking(get).await.unwrap();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.to_string().ends_with("one copy"), kind == io::ErrorKind::ResourceBusy, "{error}");
        }
    }
}
