//! Reads the messages of a stream in order, whatever happens to servers and connections.
//!
//! What NATS delivers is not trusted to be complete: sequences are checked, and whatever goes
//! wrong, another reader is opened where the last one ended.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::chain::Break;
use crate::log_state::Problem;
use crate::streams::{Extent, Link};

/// What is asked for at a time.
const PREFETCH_BYTES: usize = 4 << 20;

/// What is handed on at a time, and how often that waits.
const CHUNK_MESSAGES: usize = 256;
const CHUNK_BYTES: usize = 2 << 20;
const CHUNKS: usize = 2;

/// The server says so often that there is nothing new; without two of these, the reader is replaced.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(1);

/// The server forgets a reader of which it has not heard for this time.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// How long to wait before a reader is replaced.
const REOPEN_WAIT: Duration = Duration::from_millis(200);

/// How often in succession a missing message, or a stream that ends too early, is looked for before
/// it is reported: a server that is behind may say so, for as long as elections last.
const LOOKS_MAX: u32 = 60;

/// A message with its sequence.
pub(crate) type Message = (u64, Bytes);

/// The messages of a stream from some position on. Reading ends when it is dropped.
pub(crate) struct Reader {
    chunks: mpsc::Receiver<Result<Vec<Message>, Problem>>,
    task: JoinHandle<()>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// Reads what follows on position `last`.
    pub(crate) fn start(link: Link, last: u64) -> Self {
        let (sender, chunks) = mpsc::channel(CHUNKS);
        let feed = Feed { link, last, looks: 0, deleted: 0, chunks: sender };
        Self { chunks, task: tokio::spawn(feed.run()) }
    }

    /// The next messages, without gaps. Nothing is lost if the caller stops waiting.
    ///
    /// # Errors
    /// The problem that ended the reading; a passable one is reported once, and reading goes on.
    pub(crate) async fn next(&mut self) -> Result<Vec<Message>, Problem> {
        let ended = || Problem::Broken { reason: "the reader has ended".to_owned() };
        self.chunks.recv().await.unwrap_or_else(|| Err(ended()))
    }
}

struct Feed {
    link: Link,
    /// The last position handed on.
    last: u64,
    /// How often in succession something was missing.
    looks: u32,
    /// The number of deleted messages that was reported.
    deleted: u64,
    chunks: mpsc::Sender<Result<Vec<Message>, Problem>>,
}

/// Why a reader is replaced, or all reading ends.
enum End {
    Reopen(String),
    Problem(Problem),
    /// Nobody reads.
    Unread,
}

impl Feed {
    async fn run(mut self) {
        loop {
            match self.read().await {
                End::Reopen(reason) => {
                    tracing::debug!(stream = self.link.stream, reason, "the reader is replaced");
                    tokio::time::sleep(REOPEN_WAIT).await;
                }
                End::Problem(problem) => {
                    // Nobody reads if it fails.
                    let _ = self.chunks.send(Err(problem)).await;
                    return;
                }
                End::Unread => return,
            }
        }
    }

    async fn read(&mut self) -> End {
        let mut messages = match self.open().await {
            Ok(messages) => messages,
            Err(end) => return end,
        };
        loop {
            let chunk = match next(&mut messages).await {
                Ok(chunk) => chunk,
                Err(reason) => return End::Reopen(reason),
            };
            if let Err(end) = self.hand_on(chunk).await {
                return end;
            }
        }
    }

    async fn open(&mut self) -> Result<pull::Stream, End> {
        let failed = |error: &dyn std::fmt::Display| End::Reopen(error.to_string());
        let extent = self.link.extent().await.map_err(|error| failed(&error))?;
        self.check(extent).await?;
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.last + 1 },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: FORGET_AFTER,
            ..pull::Config::default()
        };
        let stream = self.link.handle().await.map_err(|error| failed(&error))?;
        let consumer = stream.create_consumer(config).await.map_err(|error| failed(&error))?;
        let messages = consumer.stream().max_bytes_per_batch(PREFETCH_BYTES).heartbeat(IDLE_HEARTBEAT).messages();
        messages.await.map_err(|error| failed(&error))
    }

    async fn check(&mut self, extent: Extent) -> Result<(), End> {
        let applied = self.last;
        if extent.first > applied + 1 {
            return Err(End::Problem(Problem::Behind { applied, first: extent.first }));
        }
        if extent.deleted > self.deleted {
            self.deleted = extent.deleted;
            let problem = Problem::Deleted { messages: extent.deleted };
            self.chunks.send(Err(problem)).await.map_err(|_| End::Unread)?;
        }
        if extent.last < applied {
            self.looks += 1;
            if self.looks > LOOKS_MAX {
                return Err(End::Problem(Problem::WentBack { applied, last: extent.last }));
            }
            return Err(End::Reopen(format!("the stream ends at {}, the copy at {applied}", extent.last)));
        }
        Ok(())
    }

    /// Hands on the messages after the last. A message that was passed over is looked for at each
    /// copy of the stream.
    async fn hand_on(&mut self, chunk: Vec<Message>) -> Result<(), End> {
        let mut expected = self.last + 1;
        let (mut run, mut gap) = (Vec::with_capacity(chunk.len()), None);
        for (sequence, message) in chunk {
            if sequence == expected {
                run.push((sequence, message));
                expected += 1;
            } else if sequence > expected {
                gap = Some(sequence);
                break;
            }
        }
        if let Some((sequence, _)) = run.last() {
            self.last = *sequence;
            self.looks = 0;
            self.chunks.send(Ok(run)).await.map_err(|_| End::Unread)?;
        }
        let Some(found) = gap else { return Ok(()) };
        if let Some(message) = self.link.message(expected).await {
            self.last = expected;
            self.looks = 0;
            self.chunks.send(Ok(vec![(expected, message.payload)])).await.map_err(|_| End::Unread)?;
            return Err(End::Reopen("a message was passed over".to_owned()));
        }
        self.looks += 1;
        if self.looks <= LOOKS_MAX {
            return Err(End::Reopen("a message is missing".to_owned()));
        }
        let gap = Break::Gap { last: self.last, found };
        Err(End::Problem(Problem::Broken { reason: gap.to_string() }))
    }
}

/// The messages that are here, or the first that comes.
async fn next(messages: &mut pull::Stream) -> Result<Vec<Message>, String> {
    let mut chunk = vec![read(messages.next().await)?];
    let mut bytes = chunk[0].1.len();
    while chunk.len() < CHUNK_MESSAGES && bytes < CHUNK_BYTES {
        // An error is met again, or not, by the next reader.
        let Some(Ok(message)) = messages.next().now_or_never().map(read) else { break };
        bytes += message.1.len();
        chunk.push(message);
    }
    Ok(chunk)
}

fn read(next: Option<Result<async_nats::jetstream::Message, pull::MessagesError>>) -> Result<Message, String> {
    let message = next.ok_or("the server ended it")?.map_err(|error| error.to_string())?;
    let sequence = message.info().map_err(|error| error.to_string())?.stream_sequence;
    Ok((sequence, message.message.payload))
}
