//! Bodies of many lines, a JSON object each (NDJSON): read as they arrive, in bounded memory.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use futures_util::StreamExt;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::ToSchema;

use crate::error::{ApiError, Problem};
use crate::middleware::media_types::MediaType;
use crate::state::Node;

/// A line on its way: its number, and what has become of it so far, or why it was refused.
pub struct Line<T> {
    /// Its number, from 1.
    pub line: u64,
    /// What has become of it.
    pub outcome: Result<T, ApiError>,
}

/// A line of a stream that was not taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct RejectedLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub error: Problem,
}

/// A stream's place among those that may be open. It belongs to the answers, with which the stream ends. Streams have a
/// bound of their own: they may be open for days, and none of them may take the place of an ordinary request.
///
/// # Errors
/// 415 where the body is no NDJSON, 503 where too many streams are open.
pub fn admit(node: &Node, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, ApiError> {
    MediaType::NdJson.check(headers)?;
    let permit = node.stream_permits.clone().try_acquire_owned();
    permit.map_err(|_| ApiError::unavailable("too many streams are open on this node; end one, or try again"))
}

/// How the lines of a stream are read.
#[derive(Debug, Clone, Copy)]
pub struct Reading<T> {
    /// What makes of a line what it says.
    pub parse: fn(&[u8]) -> Result<T, ApiError>,
    /// Bytes of a line, at most.
    pub line_bytes_max: usize,
    /// Lines that travel together, at most.
    pub batch_lines: usize,
    /// How long the stream may be silent. An empty line breaks the silence and says nothing.
    pub idle_timeout: Duration,
}

impl<T> Reading<T> {
    /// Reading within the node's limits.
    pub fn new(node: &Node, batch_lines: usize, parse: fn(&[u8]) -> Result<T, ApiError>) -> Self {
        let line_bytes_max = usize::try_from(node.limits.line.as_u64()).unwrap_or(usize::MAX);
        Self { parse, line_bytes_max, batch_lines, idle_timeout: node.limits.stream_idle_timeout }
    }
}

/// Reads and parses the lines of a stream, as fast as answers are read: the channels are the back-pressure. Lines travel
/// in batches, so that what a channel costs is shared; a batch ends with the bytes that have arrived, so that nobody who
/// waits for an answer before the next line waits for ever.
struct Reader<T> {
    reading: Reading<T>,
    sender: mpsc::Sender<Vec<Line<T>>>,
    batch: Vec<Line<T>>,
    /// The number of the last line.
    line: u64,
    /// The beginning of a line that has not ended yet.
    rest: Vec<u8>,
    /// Whether `rest` was longer than a line may be, and what follows of it is passed over.
    passing_over: bool,
}

/// Nobody reads the answers any more.
struct Abandoned;

/// Reads the lines of `body` on a task of its own and hands them over in batches, in their order, blank ones left out.
/// At most `batches` of them wait to be taken.
pub fn read<T: Send + 'static>(body: Body, reading: Reading<T>, batches: usize) -> mpsc::Receiver<Vec<Line<T>>> {
    let (sender, receiver) = mpsc::channel(batches);
    let (batch, rest) = (Vec::with_capacity(reading.batch_lines), Vec::new());
    let reader = Reader { reading, sender, batch, line: 0, rest, passing_over: false };
    tokio::spawn(reader.read(body));
    receiver
}

impl<T: Send + 'static> Reader<T> {
    async fn read(mut self, body: Body) {
        let mut body = body.into_data_stream();
        loop {
            let next = tokio::time::timeout(self.reading.idle_timeout, body.next()).await;
            let went_on = match next {
                Ok(Some(Ok(chunk))) => self.chunk(&chunk).await,
                Ok(Some(Err(error))) => {
                    self.break_off(ApiError::malformed(format!("the body broke off: {error}")));
                    break;
                }
                Ok(None) => break,
                Err(_silent) => {
                    let seconds = self.reading.idle_timeout.as_secs_f64();
                    let problem = format!("nothing came for {seconds} s; open another stream, or send empty lines");
                    self.break_off(ApiError::idle(problem));
                    break;
                }
            };
            if let Err(Abandoned) = went_on {
                return;
            }
        }
        let last = std::mem::take(&mut self.rest);
        if !last.is_empty() && self.whole_line(&last).await.is_err() {
            return;
        }
        // The end of the stream of answers is the end either way.
        let _ = self.send().await;
    }

    /// Ends the stream before its end. What has come of the last line is not the line.
    fn break_off(&mut self, error: ApiError) {
        self.line += 1;
        self.refuse(error);
        self.rest.clear();
    }

    async fn chunk(&mut self, chunk: &[u8]) -> Result<(), Abandoned> {
        let mut parts = chunk.split(|byte| *byte == b'\n');
        let unended = parts.next_back().unwrap_or_default();
        for part in parts {
            if std::mem::take(&mut self.passing_over) {
                continue;
            }
            if self.rest.is_empty() {
                self.whole_line(part).await?;
            } else {
                let mut line = std::mem::take(&mut self.rest);
                line.extend_from_slice(part);
                self.whole_line(&line).await?;
            }
        }
        if !self.passing_over {
            if self.rest.len() + unended.len() > self.reading.line_bytes_max {
                self.line += 1;
                self.refuse_length();
                self.rest = Vec::new();
                self.passing_over = true;
            } else {
                self.rest.extend_from_slice(unended);
            }
        }
        self.send().await
    }

    async fn whole_line(&mut self, line: &[u8]) -> Result<(), Abandoned> {
        self.line += 1;
        if line.len() > self.reading.line_bytes_max {
            self.refuse_length();
        } else if !line.trim_ascii().is_empty() {
            let outcome = (self.reading.parse)(line);
            self.batch.push(Line { line: self.line, outcome });
        }
        if self.batch.len() >= self.reading.batch_lines { self.send().await } else { Ok(()) }
    }

    fn refuse_length(&mut self) {
        self.refuse(ApiError::too_large(format!("a line may take at most {} bytes", self.reading.line_bytes_max)));
    }

    fn refuse(&mut self, error: ApiError) {
        self.batch.push(Line { line: self.line, outcome: Err(error) });
    }

    async fn send(&mut self) -> Result<(), Abandoned> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(self.reading.batch_lines));
        self.sender.send(batch).await.map_err(|_| Abandoned)
    }
}
