//! The threads that ingest NDJSON streams of observations, one for each processor, because a single
//! thread would limit the throughput of a stream. All observations of one user go to the same
//! thread, which keeps their order.
//!
//! These are threads rather than tasks, because loading a user who is not in memory blocks on disk
//! reads and solving. Memory allocated by a few threads is also less fragmented than memory
//! allocated by as many threads as happen to block: with tasks, a node with 20,000 users used a
//! quarter more memory (`celeris-bench size`).

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use celeris_model::{ModelId, ModelName, Observation, Partition};
use celeris_predictor::{PendingObservation, Predictor};
use celeris_storage::AckMode;
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{mpsc, oneshot};

use crate::error::ApiError;
use crate::ndjson::Line;

/// Maximum lines of a batch: some hundred microseconds of work.
pub const BATCH_LINES: usize = 64;

/// Maximum number of parsed batches that wait to be dispatched.
pub const PARSED_BATCHES: usize = 4;

/// Approximate bytes of the reply to one line.
pub const ANSWER_BYTES: usize = 144;

/// Pause of a thread before it retries an observation that the full log queue has rejected.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(5);

/// With more threads, each would get too few lines of a batch.
const THREADS_MAX: usize = 16;

/// Shards of a batch that may be queued for one thread, over all streams.
const SHARDS_MAX: usize = 8;

/// The model or selection that a stream was opened for.
#[derive(Debug, Clone)]
pub struct OfStream {
    name: ModelName,
    id: ModelId,
}

impl OfStream {
    /// Resolves the name to the current model or selection.
    ///
    /// # Errors
    /// 404 if there is none.
    pub fn new(predictor: &Predictor, name: ModelName) -> Result<Self, ApiError> {
        Ok(Self { id: predictor.models().decides_as(&name)?, name })
    }

    /// The name by which the stream was opened.
    pub fn name(&self) -> &ModelName {
        &self.name
    }

    /// The model or selection that had this name.
    pub fn id(&self) -> ModelId {
        self.id
    }
}

/// A shard: the lines of a batch that go to one thread, in their order.
struct Shard {
    /// Held by work only, so that an idle thread does not keep the store open.
    predictor: Arc<Predictor>,
    model: OfStream,
    lines: Vec<Line<Observation>>,
    /// The acknowledgement mode of the last line.
    ack: AckMode,
    begun: oneshot::Sender<Vec<Line<PendingObservation>>>,
}

/// The ingest threads of a node; they end when the pool is dropped.
pub struct IngestPool {
    predictor: Arc<Predictor>,
    threads: Vec<mpsc::Sender<Shard>>,
}

/// A batch that was dispatched to the threads.
pub struct Dispatched {
    /// The index of the thread of each line.
    threads: Vec<usize>,
    /// The result of each thread; `None` for threads without lines in this batch.
    shards: Vec<Option<oneshot::Receiver<Vec<Line<PendingObservation>>>>>,
}

impl Dispatched {
    /// Waits until every thread has begun its lines, and returns the batch in line order.
    ///
    /// # Errors
    /// If a thread panicked.
    pub async fn begun(self) -> Result<Vec<Line<PendingObservation>>, RecvError> {
        let mut shards = Vec::with_capacity(self.shards.len());
        for shard in self.shards {
            let begun = match shard {
                Some(shard) => shard.await?,
                None => Vec::new(),
            };
            shards.push(begun.into_iter());
        }
        Ok(self.threads.iter().filter_map(|thread| shards[*thread].next()).collect())
    }
}

impl IngestPool {
    /// Starts the threads. Must be called within the node's runtime.
    ///
    /// # Errors
    /// If a thread cannot be spawned.
    pub fn start(predictor: Arc<Predictor>) -> std::io::Result<Self> {
        let count = available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX);
        let threads = (0..count).map(|number| {
            let (sender, shards) = mpsc::channel(SHARDS_MAX);
            let runtime = Handle::current();
            let thread = std::thread::Builder::new().name(format!("celeris-learn-{number}"));
            thread.spawn(move || run(&runtime, shards))?;
            Ok(sender)
        });
        Ok(Self { predictor, threads: threads.collect::<std::io::Result<_>>()? })
    }

    /// Dispatches a batch of a stream to the threads, waiting for queue space. `ack` is the mode of
    /// its last line.
    pub async fn dispatch(&self, model: &OfStream, lines: Vec<Line<Observation>>, ack: AckMode) -> Dispatched {
        let mut dispatched =
            Dispatched { threads: Vec::with_capacity(lines.len()), shards: Vec::with_capacity(self.threads.len()) };
        let mut shards: Vec<Vec<Line<Observation>>> = self.threads.iter().map(|_| Vec::new()).collect();
        for line in lines {
            // A rejected line has no user, so any thread will do.
            let partition = line.outcome.as_ref().map_or(0, |observation| Partition::of(&observation.user).index());
            let thread = usize::from(partition) % shards.len();
            dispatched.threads.push(thread);
            shards[thread].push(line);
        }
        for (thread, lines) in self.threads.iter().zip(shards) {
            if lines.is_empty() {
                dispatched.shards.push(None);
                continue;
            }
            let (begun, receiver) = oneshot::channel();
            dispatched.shards.push(Some(receiver));
            let shard = Shard { predictor: self.predictor.clone(), model: model.clone(), lines, ack, begun };
            // If the thread has ended, the shard is dropped and its receiver reports an error.
            let _ = thread.send(shard).await;
        }
        dispatched
    }
}

fn run(runtime: &Handle, mut shards: mpsc::Receiver<Shard>) {
    while let Some(shard) = shards.blocking_recv() {
        // As in a task, a panic ends only the current stream.
        let _ = catch_unwind(AssertUnwindSafe(|| process(runtime, shard)));
    }
}

/// Begins the observations of a shard. Observations begun before their stream is aborted stay in
/// the log.
fn process(runtime: &Handle, Shard { predictor, model, lines, ack, begun }: Shard) {
    let mut batch = Vec::with_capacity(lines.len());
    let mut lines = lines.into_iter();
    while let Some(Line { line, outcome }) = lines.next() {
        let ack = if lines.len() > 0 { AckMode::Gather } else { ack };
        let outcome = outcome.and_then(|observation| begin(runtime, &predictor, &model, &observation, ack));
        batch.push(Line { line, outcome });
    }
    // The stream may have been closed meanwhile.
    let _ = begun.send(batch);
}

fn begin(
    runtime: &Handle,
    predictor: &Predictor,
    OfStream { name, id }: &OfStream,
    observation: &Observation,
    ack: AckMode,
) -> Result<PendingObservation, ApiError> {
    // Entering the runtime costs time, and most observations refer to no decision.
    if observation.decision.is_some() {
        runtime.block_on(predictor.ingest().retract_default_reward(name, Some(*id), observation))?;
    }
    loop {
        match predictor.ingest().begin_observe(name, Some(*id), observation, ack) {
            Err(error) if error.is_overload() => std::thread::sleep(OVERLOAD_PAUSE),
            begun => return Ok(begun?),
        }
    }
}
