//! Bodies of many JSON objects: NDJSON, one object per line, read as they arrive in bounded memory;
//! or one JSON array.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, StatusCode};
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::access::KeyStream;
use crate::config::Limits;
use crate::error::ApiError;
use crate::media_types::MediaType;

/// A line in processing: its number, and its result so far or its error.
pub struct Line<T> {
    /// Line number, from 1.
    pub line: u64,
    /// The result so far, or the error.
    pub outcome: Result<T, ApiError>,
}

impl<T> Line<T> {
    /// The line, refused if it is not already.
    #[must_use]
    pub fn refused(self, problem: &ApiError) -> Self {
        Self { outcome: self.outcome.and_then(|_| Err(problem.clone())), ..self }
    }
}

/// Permits of an open stream: of the node, and of the key that has opened it.
pub struct StreamPermit {
    _node: OwnedSemaphorePermit,
    _key: Option<KeyStream>,
}

/// Acquires a permit of `streams`, which the caller must keep until the response ends. Streams have
/// their own limit: they may be open for days and must not occupy the slots of ordinary requests.
/// `of_key` counts for the key that asks.
///
/// # Errors
/// 415 if the body is neither NDJSON nor JSON, 503 if too many streams are open.
pub fn admit(
    streams: &Arc<Semaphore>,
    of_key: Option<KeyStream>,
    headers: &HeaderMap,
) -> Result<(StreamPermit, MediaType), ApiError> {
    let form = if MediaType::Json.is_declared(headers) { MediaType::Json } else { MediaType::NdJson };
    form.check(headers)?;
    let permit = streams.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| ApiError::unavailable("too many streams are open on this node; end one, or try again"))?;
    Ok((StreamPermit { _node: permit, _key: of_key }, form))
}

/// The first lines of `lines`, at most so many, at least one; `lines` keeps the others.
pub fn split_block<T>(lines: &mut Vec<T>, max: usize) -> Vec<T> {
    let rest = lines.split_off(lines.len().min(max.max(1)));
    std::mem::replace(lines, rest)
}

/// Settings for reading a stream of lines.
#[derive(Debug, Clone, Copy)]
pub struct Reading<T> {
    /// Parses one line.
    pub parse: fn(&[u8]) -> Result<T, ApiError>,
    /// Maximum bytes of a line.
    pub line_bytes_max: usize,
    /// Maximum lines of a batch.
    pub batch_lines: usize,
    /// How long the stream may send nothing. Empty lines reset the timeout and are otherwise
    /// ignored.
    pub idle_timeout: Duration,
}

impl<T> Reading<T> {
    /// Settings with the limits of the node.
    pub fn new(limits: &Limits, batch_lines: usize, parse: fn(&[u8]) -> Result<T, ApiError>) -> Self {
        let line_bytes_max = usize::try_from(limits.line.as_u64()).unwrap_or(usize::MAX);
        Self { parse, line_bytes_max, batch_lines, idle_timeout: limits.stream_idle_timeout }
    }
}

/// Reads and parses the lines of a stream. The bounded channel applies back-pressure: lines are
/// read as fast as responses are. Lines are sent in batches to amortise the cost of the channel. A
/// batch ends with the bytes received so far, so a client that waits for each response before it
/// sends the next line makes progress.
struct Reader<T> {
    reading: Reading<T>,
    sender: mpsc::Sender<Vec<Line<T>>>,
    batch: Vec<Line<T>>,
    /// The number of the last line.
    line: u64,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// Whether `rest` exceeded the line limit, so that the remainder of the line is skipped.
    passing_over: bool,
}

/// The receiver was dropped.
struct Abandoned;

/// Reads the lines of an NDJSON body, without blank lines, or the elements of a JSON array, on a
/// separate task, and sends them in batches, in order. At most `batches` of them are queued.
///
/// # Errors
/// 400 or 422 if the body is JSON and no array.
pub async fn read<T: Send + 'static>(
    (body, form): (Body, MediaType),
    reading: Reading<T>,
    batches: usize,
) -> Result<mpsc::Receiver<Vec<Line<T>>>, ApiError> {
    let (sender, receiver) = mpsc::channel(batches);
    match form {
        MediaType::NdJson => {
            let (batch, rest) = (Vec::with_capacity(reading.batch_lines), Vec::new());
            let reader = Reader { reading, sender, batch, line: 0, rest, passing_over: false };
            tokio::spawn(reader.read(body));
        }
        MediaType::Json => {
            let elements = elements(body).await?;
            tokio::spawn(async move {
                let mut lines = (1..).zip(elements).map(|(line, element)| parsed_element(&reading, line, &element));
                loop {
                    let batch: Vec<Line<T>> = lines.by_ref().take(reading.batch_lines).collect();
                    if batch.is_empty() || sender.send(batch).await.is_err() {
                        return;
                    }
                }
            });
        }
    }
    Ok(receiver)
}

/// The elements of a JSON array, which the limits layer has bounded and buffered.
async fn elements(body: Body) -> Result<Vec<Value>, ApiError> {
    let text = to_bytes(body, usize::MAX).await.map_err(ApiError::malformed)?;
    let value: Value = serde_json::from_slice(&text).map_err(ApiError::malformed)?;
    let Value::Array(elements) = value else {
        return Err(ApiError::invalid(
            "expected a JSON array of objects; send one JSON object per line as application/x-ndjson",
        ));
    };
    if elements.is_empty() {
        return Err(ApiError::invalid("expected at least one element"));
    }
    Ok(elements)
}

fn parsed_element<T>(reading: &Reading<T>, line: u64, element: &Value) -> Line<T> {
    let text = serde_json::to_vec(element).expect("a JSON value can be written");
    Line { line, outcome: (reading.parse)(&text) }
}

impl<T: Send + 'static> Reader<T> {
    async fn read(mut self, body: Body) {
        let mut body = body.into_data_stream();
        loop {
            let next = tokio::time::timeout(self.reading.idle_timeout, body.next()).await;
            let went_on = match next {
                Ok(Some(Ok(chunk))) => self.chunk(&chunk).await,
                Ok(Some(Err(error))) => {
                    self.break_off(ApiError::malformed(format!("the body was cut off: {error}")));
                    break;
                }
                Ok(None) => break,
                Err(_silent) => {
                    let seconds = self.reading.idle_timeout.as_secs_f64();
                    let problem = format!("no data arrived for {seconds} s; open another stream, or send empty lines");
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
        // If the receiver is gone, the stream is over anyway.
        let _ = self.send().await;
    }

    /// Ends the stream early with an error. The incomplete last line is discarded.
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
            let outcome = (self.reading.parse)(line).map_err(|error| {
                let is_no_json = error.status() == StatusCode::BAD_REQUEST;
                if is_no_json {
                    error.and("each line must be one JSON object; `celeris import` reads other files")
                } else {
                    error
                }
            });
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
