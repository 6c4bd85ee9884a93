//! The threads that learn from streams of observations, one for each processor, since one would bound every stream. The
//! observations of a user keep to one thread, and so to their order.
//!
//! They are threads and no tasks because a user who is not in memory is read from the disk and solved. And memory that a
//! few threads allocate lies closer together than that of as many as happen to block: a node of 20,000 users took a
//! quarter more with tasks (`celeris bench size`).

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::available_parallelism;
use std::time::Duration;

use celeris_model::{ModelId, ModelName, Observation, Partition};
use celeris_predictor::PendingObservation;
use celeris_storage::AckMode;
use tokio::runtime::Handle;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{mpsc, oneshot};

use crate::error::ApiError;
use crate::ndjson::Line;
use crate::state::Node;

/// How long a thread pauses where the log's queue is full, before it offers the same observation again.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(5);

/// With more threads a batch would leave too few lines for each.
const THREADS_MAX: usize = 16;

/// Hands that may wait for a thread, of all streams.
const HANDS_MAX: usize = 8;

/// The model or selection that a stream was opened for.
#[derive(Debug, Clone)]
pub struct OfStream {
    name: ModelName,
    id: ModelId,
}

impl OfStream {
    /// What goes by this name now.
    ///
    /// # Errors
    /// 404 where nothing does.
    pub fn new(node: &Node, name: ModelName) -> Result<Self, ApiError> {
        Ok(Self { id: node.predictor.decides_as(&name)?, name })
    }

    /// Refuses to go on with another one that has been created under the name since.
    fn check(&self, node: &Node) -> Result<(), ApiError> {
        let current = node.predictor.decides_as(&self.name)?;
        let replaced = || format!("model {} was deleted, and created again, while the stream was open", self.name);
        if current == self.id { Ok(()) } else { Err(ApiError::not_found(replaced())) }
    }
}

/// One thread's part of a batch, in the order of the lines.
struct Hand {
    node: Node,
    model: OfStream,
    lines: Vec<Line<Observation>>,
    /// What comes after the last of them.
    ack: AckMode,
    begun: oneshot::Sender<Vec<Line<PendingObservation>>>,
}

/// The threads of a node, which end with it.
pub struct IngestPool(Vec<mpsc::Sender<Hand>>);

/// A batch that the threads have.
pub struct Dispatched {
    /// The thread of each line.
    threads: Vec<usize>,
    /// What each thread makes of its hand; `None` where it has none.
    hands: Vec<Option<oneshot::Receiver<Vec<Line<PendingObservation>>>>>,
}

impl Dispatched {
    /// The batch in the order of its lines, once every thread has begun its part.
    ///
    /// # Errors
    /// Where a thread has broken off.
    pub async fn begun(self) -> Result<Vec<Line<PendingObservation>>, RecvError> {
        let mut hands = Vec::with_capacity(self.hands.len());
        for hand in self.hands {
            let begun = match hand {
                Some(hand) => hand.await?,
                None => Vec::new(),
            };
            hands.push(begun.into_iter());
        }
        Ok(self.threads.iter().filter_map(|thread| hands[*thread].next()).collect())
    }
}

impl IngestPool {
    /// Starts the threads; to be called on the node's runtime.
    ///
    /// # Errors
    /// Where the system has no thread to give.
    pub fn start() -> std::io::Result<Self> {
        let count = available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX);
        let threads = (0..count).map(|number| {
            let (sender, hands) = mpsc::channel(HANDS_MAX);
            let runtime = Handle::current();
            let thread = std::thread::Builder::new().name(format!("celeris-learn-{number}"));
            thread.spawn(move || run(&runtime, hands))?;
            Ok(sender)
        });
        threads.collect::<std::io::Result<_>>().map(Self)
    }

    /// Deals a batch of a stream, once there is room. `then` is what comes after its last line.
    pub async fn dispatch(
        &self,
        node: &Node,
        model: &OfStream,
        lines: Vec<Line<Observation>>,
        ack: AckMode,
    ) -> Dispatched {
        let mut dealt =
            Dispatched { threads: Vec::with_capacity(lines.len()), hands: Vec::with_capacity(self.0.len()) };
        let mut hands: Vec<Vec<Line<Observation>>> = self.0.iter().map(|_| Vec::new()).collect();
        for line in lines {
            // A line that was refused has no user, and any thread will do.
            let partition = line.outcome.as_ref().map_or(0, |observation| Partition::of(&observation.user).index());
            let thread = usize::from(partition) % hands.len();
            dealt.threads.push(thread);
            hands[thread].push(line);
        }
        for (thread, lines) in self.0.iter().zip(hands) {
            if lines.is_empty() {
                dealt.hands.push(None);
                continue;
            }
            let (begun, receiver) = oneshot::channel();
            dealt.hands.push(Some(receiver));
            let hand = Hand { node: node.clone(), model: model.clone(), lines, ack, begun };
            // A thread that is gone drops the hand, and whoever waits for it is told.
            let _ = thread.send(hand).await;
        }
        dealt
    }
}

fn run(runtime: &Handle, mut hands: mpsc::Receiver<Hand>) {
    while let Some(hand) = hands.blocking_recv() {
        // As in a task: a panic breaks off this stream, not those that come after it.
        let _ = catch_unwind(AssertUnwindSafe(|| play(runtime, hand)));
    }
}

/// Begins the observations of a hand. What was begun before its stream is abandoned is in the log all the same.
fn play(runtime: &Handle, Hand { node, model, lines, ack, begun }: Hand) {
    let mut batch = Vec::with_capacity(lines.len());
    let mut lines = lines.into_iter();
    while let Some(Line { line, outcome }) = lines.next() {
        let ack = if lines.len() > 0 { AckMode::Gather } else { ack };
        let outcome = outcome.and_then(|observation| begin(runtime, &node, &model, &observation, ack));
        batch.push(Line { line, outcome });
    }
    // Nobody may be there to take it.
    let _ = begun.send(batch);
}

fn begin(
    runtime: &Handle,
    node: &Node,
    model: &OfStream,
    observation: &Observation,
    ack: AckMode,
) -> Result<PendingObservation, ApiError> {
    model.check(node)?;
    let model = &model.name;
    // Entering the runtime is not free, and most observations name no decision.
    if observation.decision.is_some() {
        runtime.block_on(node.predictor.retract_default_reward(model, observation))?;
    }
    loop {
        match node.predictor.begin_observe(model, observation, ack) {
            Err(error) if error.is_overload() => std::thread::sleep(OVERLOAD_PAUSE),
            begun => return Ok(begun?),
        }
    }
}
