//! Connections to other nodes: in the clear, or encrypted, as their URLs say.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

use super::tls::NodeTls;

/// How long the beginning of encryption may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Opens connections to other nodes.
#[derive(Clone)]
pub(super) struct NodeConnector {
    http: HttpConnector,
    tls: NodeTls,
}

impl NodeConnector {
    /// `connecting` is how long a connection may take to open, without its encryption.
    pub(super) fn new(tls: NodeTls, connecting: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connecting));
        Self { http, tls }
    }
}

impl Service<Uri> for NodeConnector {
    type Response = NodeStream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<NodeStream, Failure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let is_encrypted = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (opening, tls) = (self.http.call(uri), self.tls.clone());
        Box::pin(async move {
            if !is_encrypted {
                return Ok(NodeStream::Plain(opening.await?));
            }
            let settings = tls.settings().await?;
            let name = ServerName::try_from(host)?;
            let stream = opening.await?.into_inner();
            let encrypting = timeout(HANDSHAKE_TIMEOUT, TlsConnector::from(settings).connect(name, stream));
            let stream = encrypting.await.map_err(|_| "the encryption did not begin in time")??;
            Ok(NodeStream::Encrypted(Box::new(TokioIo::new(stream))))
        })
    }
}

/// A connection to another node.
pub(super) enum NodeStream {
    Plain(TokioIo<TcpStream>),
    Encrypted(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for NodeStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for NodeStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for NodeStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Encrypted(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }
}
