//! The baseline of writes: the same NATS servers without Celeris.
//!
//! A stream for each shard, with the configuration of a cluster's logs. Its writer appends one message
//! at a time, on the condition that the stream ends where it believes, and puts the records that
//! arrived meanwhile into the next: a group commit.

use std::time::{Duration, Instant};

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, stream};
use hyper::body::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::nats::{Nats, SERVERS};
use super::rounds::Samples;
use celeris_cli::Failure;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 200;

/// Largest message of the group commit.
const GROUP_BYTES_MAX: usize = 256 << 10;

/// Records that wait for a writer at most.
const QUEUE: usize = 4096;

/// Size of the messages that lines are compared with.
const BLOCK_BYTES: usize = 64 << 10;

/// A waiting record, notified once it is in the stream.
type Waiting = oneshot::Sender<()>;

/// The streams of one baseline, and their writers.
pub struct Raw {
    context: Context,
    names: Vec<String>,
}

/// The queues of the writers of a group commit.
pub struct Writers(Vec<mpsc::Sender<Waiting>>);

impl Raw {
    /// Connects to the servers and creates this number of streams.
    ///
    /// # Errors
    /// If the servers do not answer.
    pub async fn create(nats: &Nats, purpose: &str, streams: usize) -> Result<Self, Failure> {
        let client = async_nats::connect(nats.urls()).await.map_err(Failure::other)?;
        let context = jetstream::new(client);
        let names: Vec<String> = (0..streams).map(|stream| format!("raw-{purpose}-{stream}")).collect();
        for name in &names {
            let config = stream::Config {
                name: name.clone(),
                subjects: vec![name.clone()],
                num_replicas: SERVERS,
                storage: stream::StorageType::File,
                discard: stream::DiscardPolicy::New,
                duplicate_window: Duration::from_millis(100),
                deny_delete: true,
                allow_direct: true,
                ..stream::Config::default()
            };
            context.create_stream(config).await.map_err(Failure::other)?;
        }
        Ok(Self { context, names })
    }

    /// Starts a writer for each stream, which ends with its queue.
    pub fn writers(&self) -> Writers {
        let writer = |name: &String| {
            let (queue, records) = mpsc::channel(QUEUE);
            tokio::spawn(write(self.context.clone(), name.clone(), records));
            queue
        };
        Writers(self.names.iter().map(writer).collect())
    }

    /// Appends blocks to all streams for one round, one at a time to each; returns the bytes.
    ///
    /// # Errors
    /// If an append fails.
    pub async fn blocks(&self, lasts: &mut Vec<u64>, round: Duration) -> Result<u64, Failure> {
        lasts.resize(self.names.len(), 0);
        let deadline = Instant::now() + round;
        let block = Bytes::from(vec![7; BLOCK_BYTES]);
        let appending = self.names.iter().zip(lasts).map(|(name, last)| {
            let block = &block;
            async move {
                let mut bytes = 0;
                while Instant::now() < deadline {
                    *last = append(&self.context, name, block.clone(), *last).await?;
                    bytes += block.len() as u64;
                }
                Ok::<_, Failure>(bytes)
            }
        });
        Ok(futures_util::future::try_join_all(appending).await?.into_iter().sum())
    }

    /// Deletes the streams.
    ///
    /// # Errors
    /// If the servers do not answer.
    pub async fn delete(self) -> Result<(), Failure> {
        for name in &self.names {
            self.context.delete_stream(name).await.map_err(Failure::other)?;
        }
        Ok(())
    }
}

impl Writers {
    /// Has this number of clients, spread over the streams, append records for one round, each after
    /// the acknowledgement of the one before.
    ///
    /// # Errors
    /// If an append fails.
    pub async fn round(&self, clients: usize, round: Duration, samples: &mut Samples) -> Result<(), Failure> {
        let (started, Writers(queues)) = (Instant::now(), self);
        let deadline = started + round;
        let clients = (0..clients).map(|client| async move {
            let mut latencies = Vec::new();
            loop {
                let sent = Instant::now();
                if sent >= deadline {
                    return Ok::<_, Failure>(latencies);
                }
                let (done, written) = oneshot::channel();
                let failed = |_| Failure::other("an append to a raw stream failed");
                queues[client % queues.len()].send(done).await.map_err(Failure::other)?;
                written.await.map_err(failed)?;
                latencies.push(sent.elapsed());
            }
        });
        let latencies = futures_util::future::try_join_all(clients).await?;
        samples.add(started.elapsed(), latencies.into_iter().flatten());
        Ok(())
    }
}

/// Appends a message if the stream ends at `last`; returns its sequence.
async fn append(context: &Context, name: &str, message: Bytes, last: u64) -> Result<u64, Failure> {
    let publish = PublishMessage::build().payload(message).expected_last_sequence(last);
    let acknowledged = context.send_publish(name.to_owned(), publish).await.map_err(Failure::other)?;
    Ok(acknowledged.await.map_err(Failure::other)?.sequence)
}

async fn write(context: Context, name: String, mut records: mpsc::Receiver<Waiting>) {
    let mut last = 0;
    let mut group = Vec::new();
    while records.recv_many(&mut group, GROUP_BYTES_MAX / RECORD_BYTES).await > 0 {
        let message = Bytes::from(vec![7; group.len() * RECORD_BYTES]);
        match append(&context, &name, message, last).await {
            Ok(sequence) => last = sequence,
            // The clients notice that the sender is gone.
            Err(_) => return,
        }
        for waiting in group.drain(..) {
            // The client waits for it.
            let _ = waiting.send(());
        }
    }
}
