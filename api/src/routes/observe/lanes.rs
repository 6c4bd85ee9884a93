//! The lanes of a stream of observations, one for each processor: learning is what a stream costs most, and one thread
//! would bound it. The observations of a user keep to one lane, and so to their order.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use celeris_model::{ModelName, Observation, Partition};
use celeris_predictor::PendingObservation;
use celeris_storage::Then;
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::error::ApiError;
use crate::ndjson::Line;
use crate::state::Node;

/// How long a lane pauses where the log's queue is full, before it offers the same observation again.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(5);

/// More lanes would have less than ten lines of a batch each.
const LANES_MAX: usize = 8;

/// Hands that may wait in a lane.
const HANDS_MAX: usize = 4;

/// One lane's part of a batch, in the order of the lines.
struct Hand {
    lines: Vec<Line<Observation>>,
    /// What comes after the last of them.
    then: Then,
    begun: oneshot::Sender<Vec<Line<PendingObservation>>>,
}

/// A batch that the lanes have.
pub struct Dealt {
    /// The lane of each line.
    lanes: Vec<usize>,
    /// What each lane makes of its hand; `None` where it has none.
    hands: Vec<Option<oneshot::Receiver<Vec<Line<PendingObservation>>>>>,
}

impl Dealt {
    /// The batch in the order of its lines, once every lane has begun its part.
    ///
    /// # Errors
    /// Where a lane has broken off.
    pub async fn begun(self) -> Result<Vec<Line<PendingObservation>>, RecvError> {
        let mut hands = Vec::with_capacity(self.hands.len());
        for hand in self.hands {
            let begun = match hand {
                Some(hand) => hand.await?,
                None => Vec::new(),
            };
            hands.push(begun.into_iter());
        }
        Ok(self.lanes.iter().filter_map(|lane| hands[*lane].next()).collect())
    }
}

/// Begins the observations of `parsed`, those of a user in their order, and hands the batches on. What was begun before
/// the answers are abandoned is in the log all the same.
pub async fn begin_all(
    node: &Node,
    model: &ModelName,
    mut parsed: mpsc::Receiver<Vec<Line<Observation>>>,
    begun: mpsc::Sender<Dealt>,
) {
    let count = available_parallelism().map_or(1, NonZeroUsize::get).min(LANES_MAX);
    let mut tasks = JoinSet::new();
    let lanes: Vec<mpsc::Sender<Hand>> = (0..count)
        .map(|_| {
            let (sender, receiver) = mpsc::channel(HANDS_MAX);
            tasks.spawn(run(node.clone(), model.clone(), receiver));
            sender
        })
        .collect();
    while let Some(lines) = parsed.recv().await {
        let goes_on = !parsed.is_empty() && begun.capacity() > 1;
        let then = if goes_on { Then::AppendsMore } else { Then::Waits };
        let Some(dealt) = deal(&lanes, lines, then).await else { break };
        if begun.send(dealt).await.is_err() {
            break;
        }
    }
    drop(lanes);
    while tasks.join_next().await.is_some() {}
}

/// Deals a batch; `None` where a lane has broken off.
async fn deal(lanes: &[mpsc::Sender<Hand>], lines: Vec<Line<Observation>>, then: Then) -> Option<Dealt> {
    let mut dealt = Dealt { lanes: Vec::with_capacity(lines.len()), hands: Vec::with_capacity(lanes.len()) };
    let mut hands: Vec<Vec<Line<Observation>>> = lanes.iter().map(|_| Vec::new()).collect();
    for line in lines {
        // A line that was refused has no user, and any lane will do.
        let partition = line.outcome.as_ref().map_or(0, |observation| Partition::of(&observation.user).index());
        let lane = usize::from(partition) % lanes.len();
        dealt.lanes.push(lane);
        hands[lane].push(line);
    }
    for (lane, lines) in lanes.iter().zip(hands) {
        if lines.is_empty() {
            dealt.hands.push(None);
            continue;
        }
        let (begun, receiver) = oneshot::channel();
        dealt.hands.push(Some(receiver));
        lane.send(Hand { lines, then, begun }).await.ok()?;
    }
    Some(dealt)
}

async fn run(node: Node, model: ModelName, mut hands: mpsc::Receiver<Hand>) {
    while let Some(Hand { lines, then, begun }) = hands.recv().await {
        let mut batch = Vec::with_capacity(lines.len());
        let mut lines = lines.into_iter();
        while let Some(Line { line, outcome }) = lines.next() {
            let then = if lines.len() > 0 { Then::AppendsMore } else { then };
            let outcome = match outcome {
                Ok(observation) => begin(&node, &model, observation, then).await,
                Err(error) => Err(error),
            };
            batch.push(Line { line, outcome });
        }
        // Nobody may be there to take it.
        let _ = begun.send(batch);
    }
}

async fn begin(
    node: &Node,
    model: &ModelName,
    observation: Observation,
    then: Then,
) -> Result<PendingObservation, ApiError> {
    node.predictor.make_way(model, &observation).await?;
    loop {
        match node.predictor.begin_observe(model, &observation, then) {
            Err(error) if error.is_overload() => tokio::time::sleep(OVERLOAD_PAUSE).await,
            begun => return Ok(begun?),
        }
    }
}
