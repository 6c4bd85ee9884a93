//! Bodies that a thread writes.

use std::io::{self, Write};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Bytes that are sent as one part.
const PART_BYTES: usize = 64 << 10;

/// Parts that wait to be sent.
const PARTS_MAX: usize = 8;

/// How slowly a client may read.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// It may be late by this.
    pub late_max: Duration,
    /// For each part of [`PART_BYTES`].
    pub part: Duration,
}

/// What is sent stays on the disk meanwhile, even if users in it are erased.
pub const PACE: Pace = Pace { late_max: Duration::from_secs(60), part: Duration::from_millis(62) };

/// A body with what `write` writes, on a thread that may block. If it fails, or the client goes away or is slower
/// than `pace`, the body ends in an error.
pub fn written_body(pace: Pace, write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static) -> Body {
    let (parts, sent) = mpsc::channel(PARTS_MAX);
    let due = Instant::now() + pace.late_max;
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut writer = PartWriter { parts, part: Vec::with_capacity(PART_BYTES), due, each: pace.part, runtime };
        if let Err(error) = write(&mut writer).and_then(|()| writer.flush()) {
            tracing::info!(%error, "a file for another node was not sent whole");
            // The client may be gone or not read; without the error, the end of the body is one.
            let _ = writer.parts.try_send(Err(error));
        }
    });
    Body::from_stream(stream::unfold(sent, async |mut sent| Some((sent.recv().await?, sent))))
}

struct PartWriter {
    parts: mpsc::Sender<io::Result<Bytes>>,
    part: Vec<u8>,
    /// When the client must have taken the part.
    due: Instant,
    each: Duration,
    runtime: Handle,
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
        self.due += self.each;
        let sent = self.runtime.block_on(timeout_at(self.due, self.parts.send(Ok(part.into()))));
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_does_not_read_ends_the_body() {
        let pace = Pace { late_max: Duration::from_millis(50), part: Duration::from_micros(1) };
        let (ended, end) = std::sync::mpsc::channel();
        let body = written_body(pace, move |into| {
            let part = vec![7; PART_BYTES];
            let error = loop {
                if let Err(error) = into.write_all(&part) {
                    break error;
                }
            };
            ended.send(error.kind()).unwrap();
            Err(error)
        });
        let kind = tokio::task::spawn_blocking(move || end.recv().unwrap()).await.unwrap();
        assert_eq!(kind, io::ErrorKind::TimedOut);
        drop(body);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_body_is_what_was_written() {
        let parts = |into: &mut dyn Write| {
            into.write_all(&vec![1; PART_BYTES * 2 * PARTS_MAX])?;
            into.write_all(&[2])
        };
        let bytes = written_body(PACE, parts).collect().await.unwrap().to_bytes();
        assert!(bytes.len() == PART_BYTES * 2 * PARTS_MAX + 1 && bytes.ends_with(&[1, 2]));
    }
}
