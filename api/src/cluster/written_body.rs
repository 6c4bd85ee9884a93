//! Bodies that a thread writes.

use std::io::{self, Write};

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::mpsc;

/// Bytes that are sent as one part.
const PART_BYTES: usize = 64 << 10;

/// Parts that wait to be sent.
const PARTS_MAX: usize = 8;

/// A body with what `write` writes, on a thread that may block. If it fails or the client goes away, the body
/// ends in an error.
pub fn written_body(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Body {
    let (parts, sent) = mpsc::channel(PARTS_MAX);
    tokio::task::spawn_blocking(move || {
        let mut writer = PartWriter { parts, part: Vec::with_capacity(PART_BYTES) };
        if let Err(error) = write(&mut writer).and_then(|()| writer.flush()) {
            tracing::info!(%error, "a file for another node was not sent whole");
            // The client may be gone.
            let _ = writer.parts.blocking_send(Err(error));
        }
    });
    Body::from_stream(stream::unfold(sent, async |mut sent| Some((sent.recv().await?, sent))))
}

struct PartWriter {
    parts: mpsc::Sender<io::Result<Bytes>>,
    part: Vec<u8>,
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        if self.part.len() == PART_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
        self.parts.blocking_send(Ok(part.into())).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}
