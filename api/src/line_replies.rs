//! Replies to requests of many lines: one reply for each line, in order, then a summary.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, Problem};
use crate::media_types::MediaType;

/// How long the status of a reply waits for the first line that is taken.
const STATUS_WAIT: Duration = Duration::from_secs(1);

/// Bytes of replies to rejected lines that wait for the first line that is taken.
const HELD_BYTES_MAX: usize = 1 << 20;

/// A rejected line.
#[derive(Debug, Serialize, ToSchema)]
pub struct RejectedLine {
    /// Line number, from 1; in an array the number of the element.
    pub line: u64,
    /// Why the line was rejected.
    pub error: Problem,
}

/// The last reply.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct LinesSummary {
    pub summary: LineCounts,
}

/// The number of lines by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct LineCounts {
    /// Lines that changed something.
    pub taken: u64,
    /// Observations that were stored already.
    pub duplicates: u64,
    pub rejected: u64,
}

/// The replies to a batch of lines.
#[derive(Default)]
pub struct Replies {
    /// Each reply ends with a line feed.
    bytes: Vec<u8>,
    counts: LineCounts,
    /// The status of the first rejected line.
    rejected_with: Option<StatusCode>,
}

impl Replies {
    /// Replies with room for this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    pub fn taken(&mut self, reply: &impl Serialize) {
        self.counts.taken += 1;
        self.push(reply);
    }

    pub fn duplicate(&mut self, reply: &impl Serialize) {
        self.counts.duplicates += 1;
        self.push(reply);
    }

    pub fn rejected(&mut self, line: u64, error: &ApiError) {
        self.counts.rejected += 1;
        self.rejected_with.get_or_insert(error.status());
        self.push(&RejectedLine { line, error: error.problem() });
    }

    /// A reply that another node has written.
    pub fn taken_as(&mut self, reply: &[u8]) {
        self.counts.taken += 1;
        self.push_text(reply);
    }

    /// A reply that another node has written.
    pub fn duplicate_as(&mut self, reply: &[u8]) {
        self.counts.duplicates += 1;
        self.push_text(reply);
    }

    /// The problem that another node has reported.
    pub fn rejected_by(&mut self, line: u64, error: Problem) {
        self.counts.rejected += 1;
        self.rejected_with.get_or_insert(StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_GATEWAY));
        self.push(&RejectedLine { line, error });
    }

    fn push_text(&mut self, reply: &[u8]) {
        self.bytes.extend_from_slice(reply);
        self.bytes.push(b'\n');
    }

    fn push(&mut self, reply: &impl Serialize) {
        serde_json::to_writer(&mut self.bytes, reply).expect("a reply is plain data");
        self.bytes.push(b'\n');
    }

    fn append(&mut self, later: &Self) {
        self.bytes.extend_from_slice(&later.bytes);
        self.counts = self.counts.plus(later.counts);
        self.rejected_with = self.rejected_with.or(later.rejected_with);
    }

    /// The status of a complete reply: an error if every line was rejected.
    fn status(&self) -> StatusCode {
        let LineCounts { taken, duplicates, .. } = self.counts;
        self.rejected_with.filter(|_| taken + duplicates == 0).unwrap_or(StatusCode::OK)
    }
}

impl LineCounts {
    fn plus(self, other: Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            duplicates: self.duplicates + other.duplicates,
            rejected: self.rejected + other.rejected,
        }
    }
}

/// The response to a request of many lines, in its media type. A stream of batches that ends with an
/// error breaks the response off.
///
/// The status is that of the first rejected line if all lines are rejected. It is 200 once a line is
/// taken, or if that takes longer than [`STATUS_WAIT`] or [`HELD_BYTES_MAX`].
pub async fn respond<E>(batches: impl Stream<Item = Result<Replies, E>> + Send + 'static, form: MediaType) -> Response
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let mut batches = Box::pin(batches.fuse());
    let mut held = Replies::default();
    let mut broken = None;
    let status = loop {
        match tokio::time::timeout(STATUS_WAIT, batches.next()).await {
            Ok(Some(Ok(batch))) => {
                held.append(&batch);
                if held.counts.taken + held.counts.duplicates > 0 || held.bytes.len() > HELD_BYTES_MAX {
                    break StatusCode::OK;
                }
            }
            Ok(Some(Err(error))) => {
                broken = Some(Err(error));
                break StatusCode::OK;
            }
            Ok(None) if held.bytes.is_empty() => {
                return ApiError::invalid("the body is empty; send one JSON object in each line").into_response();
            }
            Ok(None) => break held.status(),
            Err(_elapsed) => break StatusCode::OK,
        }
    };
    streamed(status, stream::iter([Ok(held)]).chain(stream::iter(broken)).chain(batches), form)
}

/// The response with this status, which does not wait for the first line that is taken: for another
/// node, which passes the replies on.
pub fn streamed<E>(
    status: StatusCode,
    batches: impl Stream<Item = Result<Replies, E>> + Send + Unpin + 'static,
    form: MediaType,
) -> Response
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    let (name, body) = match form {
        MediaType::NdJson => ("application/x-ndjson", Body::from_stream(as_lines(batches))),
        MediaType::Json => ("application/json", Body::from_stream(as_array(batches))),
    };
    (status, [(header::CONTENT_TYPE, name)], body).into_response()
}

/// A part of the response.
enum Part {
    /// Replies, each of which ends with a line feed.
    Lines(Vec<u8>),
    /// The counts of all lines, after the last of them.
    End(LineCounts),
}

fn parts<E: Send>(
    batches: impl Stream<Item = Result<Replies, E>> + Send + Unpin,
) -> impl Stream<Item = Result<Part, E>> + Send {
    stream::unfold(Some((batches, LineCounts::default())), |rest| async {
        let (mut batches, counts) = rest?;
        Some(match batches.next().await {
            Some(Ok(batch)) => (Ok(Part::Lines(batch.bytes)), Some((batches, counts.plus(batch.counts)))),
            Some(Err(error)) => (Err(error), None),
            None => (Ok(Part::End(counts)), None),
        })
    })
}

/// The replies, then the summary.
fn as_lines<E: Send>(
    batches: impl Stream<Item = Result<Replies, E>> + Send + Unpin,
) -> impl Stream<Item = Result<Bytes, E>> + Send {
    parts(batches).map_ok(|part| match part {
        Part::Lines(lines) => lines.into(),
        Part::End(summary) => {
            let mut last = serde_json::to_vec(&LinesSummary { summary }).expect("numbers are plain data");
            last.push(b'\n');
            last.into()
        }
    })
}

/// `{"results": […], "summary": {…}}`
fn as_array<E: Send>(
    batches: impl Stream<Item = Result<Replies, E>> + Send + Unpin,
) -> impl Stream<Item = Result<Bytes, E>> + Send {
    let mut separator: &[u8] = b"";
    let parts = parts(batches).map_ok(move |part| match part {
        Part::Lines(lines) => {
            let mut out = Vec::with_capacity(lines.len() + 1);
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                out.extend_from_slice(std::mem::replace(&mut separator, b","));
                out.extend_from_slice(line);
            }
            Bytes::from(out)
        }
        Part::End(summary) => {
            let summary = serde_json::to_string(&summary).expect("numbers are plain data");
            format!("],\"summary\":{summary}}}").into()
        }
    });
    stream::iter([Ok(Bytes::from_static(b"{\"results\":["))]).chain(parts)
}
