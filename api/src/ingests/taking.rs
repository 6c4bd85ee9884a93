//! Makes observations of messages, and enqueues them with their positions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_ingest::{Mapping, Message, Poison};
use celeris_model::{Observation, Shard, SourceId};
use celeris_predictor::{PendingObservation, PredictorError};
use celeris_storage::{SourcePosition, StorageError, Ticket};
use tokio::runtime::Handle;

use super::Ingest;
use crate::error::ApiError;
use crate::extract::parse;
use crate::schema::observations::ObserveBody;
use crate::state::Node;

/// Time before an observation is enqueued again when the log's queue was full.
const OVERLOAD_PAUSE: Duration = Duration::from_millis(1);

/// How often a shard without messages notes how far its source was read, of several shards: its next owner
/// reads no more than that again.
const IDLE_NOTE: Duration = Duration::from_secs(10);

/// The shards that this node owns, with the last message that each has taken.
#[derive(Default)]
pub(super) struct Taken(BTreeMap<Shard, Position>);

struct Position {
    /// `None` is before the first message.
    last: Option<u64>,
    noted: Instant,
}

impl Taken {
    /// Looks which shards this node owns, and reads how far new ones are. Returns those that have taken nothing yet,
    /// which are to be begun.
    pub(super) fn look(&mut self, node: &Node, source: &SourceId) -> Result<Vec<Shard>, StorageError> {
        let log = node.storage.log();
        let mut new = Vec::new();
        for shard in log.shards().all() {
            if !log.owns(shard) {
                self.lose(shard);
            } else if !self.0.contains_key(&shard) {
                match log.source_position(shard, source)? {
                    None => new.push(shard),
                    last => self.begin(shard, last),
                }
            }
        }
        Ok(new)
    }

    pub(super) fn begin(&mut self, shard: Shard, last: Option<u64>) {
        self.0.insert(shard, Position { last, noted: Instant::now() });
    }

    pub(super) fn has_shards(&self) -> bool {
        !self.0.is_empty()
    }

    /// The message after which all shards have everything to take.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.values().map(|position| position.last).min().flatten()
    }

    /// How far the shard is will be read again if this node owns it again.
    pub(super) fn lose(&mut self, shard: Shard) {
        self.0.remove(&shard);
    }

    pub(super) fn advance(&mut self, shard: Shard, offset: u64) {
        if let Some(position) = self.0.get_mut(&shard) {
            position.last = position.last.max(Some(offset));
            position.noted = Instant::now();
        }
    }

    /// Whether a message is one for this node, and is not taken.
    fn wants(&self, shard: Shard, offset: u64) -> bool {
        self.0.get(&shard).is_some_and(|position| position.last < Some(offset))
    }
}

/// A batch to be taken, from one message on. Blocks.
pub(super) struct Work {
    pub(super) node: Node,
    pub(super) ingest: Arc<Ingest>,
    pub(super) source: SourceId,
    pub(super) messages: Arc<Vec<Message>>,
    pub(super) from: usize,
    pub(super) taken: Taken,
}

/// What was enqueued, and why no more.
pub(super) struct Done {
    pub(super) taken: Taken,
    pub(super) enqueued: Enqueued,
    pub(super) stop: Option<Stop>,
}

/// What is in the queues of the logs, and not durable yet.
#[derive(Default)]
pub(super) struct Enqueued {
    pub(super) observations: Vec<(Shard, PendingObservation)>,
    /// Positions alone.
    pub(super) positions: Vec<(Shard, Ticket)>,
}

/// Why a batch was not taken to its end.
pub(super) enum Stop {
    /// This message is no observation.
    Poison { at: usize, shard: Shard, poison: Poison },
    /// The node cannot take any message now.
    Problem(String),
}

/// What prevents a message from being taken.
enum Refused {
    /// Another node has it to take.
    Elsewhere,
    Poison(Poison),
    Problem(String),
}

impl Work {
    pub(super) fn run(mut self) -> Done {
        let messages = Arc::clone(&self.messages);
        let (mut observations, mut stop) = (Vec::with_capacity(messages.len()), None);
        for (at, message) in messages.iter().enumerate().skip(self.from) {
            let observation = observation(&self.ingest.mapping, message, self.node.limits.line.as_u64());
            let shard = match &observation {
                Ok(observation) => self.node.storage.log().shard_of(&observation.user),
                Err(_) => Shard::default(),
            };
            if !self.taken.wants(shard, message.offset) {
                continue;
            }
            match observation.map_err(Refused::Poison).and_then(|observation| self.begin(&observation, message.offset))
            {
                Ok(begun) => {
                    observations.extend(begun.map(|begun| (shard, begun)));
                    self.taken.advance(shard, message.offset);
                }
                Err(Refused::Elsewhere) => self.taken.lose(shard),
                Err(Refused::Poison(poison)) => stop = Some(Stop::Poison { at, shard, poison }),
                Err(Refused::Problem(problem)) => stop = Some(Stop::Problem(problem)),
            }
            if stop.is_some() {
                break;
            }
        }
        let positions = if stop.is_none() { self.pass_idle() } else { Vec::new() };
        Done { taken: self.taken, enqueued: Enqueued { observations, positions }, stop }
    }

    /// Enqueues an observation; `None` if the log has the message already.
    fn begin(&self, observation: &Observation, offset: u64) -> Result<Option<PendingObservation>, Refused> {
        let Work { node, ingest, source, .. } = self;
        if let Some(decision) = &observation.decision {
            self.prepare_reward(observation, decision)?;
        }
        let message = SourcePosition { source: source.clone(), offset };
        loop {
            match node.predictor.ingest().begin_ingested(&ingest.model, observation, message.clone()) {
                Ok(begun) => return Ok(Some(begun)),
                Err(error) if error.is_overload() => std::thread::sleep(OVERLOAD_PAUSE),
                Err(PredictorError::Storage(StorageError::MessageTaken { .. })) => return Ok(None),
                Err(error) => return Err(refused(error)),
            }
        }
    }

    /// Has the decision here, and takes its default reward back.
    fn prepare_reward(&self, observation: &Observation, decision: &celeris_model::DecisionId) -> Result<(), Refused> {
        let Work { node, ingest, .. } = self;
        let runtime = Handle::current();
        if let Some(cluster) = &node.cluster {
            let decided_by = node.predictor.models().decides_as(&ingest.model).map_err(refused)?;
            let fetched = runtime.block_on(cluster.fetch_decision(&node.storage, (decided_by, decision)));
            fetched.map_err(|error| Refused::Problem(error.to_string()))?;
        }
        let retracted = node.predictor.ingest().retract_default_reward(&ingest.model, None, observation);
        runtime.block_on(retracted).map_err(refused)
    }

    /// Notes how far shards without messages are, once in a while. A node on its own has one shard, which has all messages.
    fn pass_idle(&mut self) -> Vec<(Shard, Ticket)> {
        let Some(last) = self.messages.last().map(|message| message.offset) else { return Vec::new() };
        let mut passed = Vec::new();
        for (shard, position) in &mut self.taken.0 {
            if position.last >= Some(last) {
                continue;
            }
            position.last = Some(last);
            if position.noted.elapsed() >= IDLE_NOTE {
                let message = SourcePosition { source: self.source.clone(), offset: last };
                // If it fails, another node reads a little more.
                passed.extend(self.node.storage.log().pass_over(*shard, &message).ok().map(|ticket| (*shard, ticket)));
                position.noted = Instant::now();
            }
        }
        passed
    }
}

/// The observation of a message, of which everything but what depends on the model is checked.
///
/// # Errors
/// Why it is none.
pub fn observation(mapping: &Mapping, message: &Message, bytes_max: u64) -> Result<Observation, Poison> {
    let poison = |reason: String| Poison { field: None, reason };
    let payload = message.payload.as_deref().ok_or_else(|| poison("the message has no value".to_owned()))?;
    if payload.len() as u64 > bytes_max {
        let bytes = payload.len();
        return Err(poison(format!("the message has {bytes} bytes, and may have {bytes_max} (limits.line)")));
    }
    let body = mapping.observation(payload, message.timestamp)?;
    parse::<ObserveBody>(&body).and_then(|body| body.observation()).map_err(|error| of_error(&error))
}

/// What an error of the node means for the message that it is about.
fn refused(error: PredictorError) -> Refused {
    match error {
        PredictorError::Storage(StorageError::NotOwner | StorageError::Fenced) => Refused::Elsewhere,
        // A message of a model that does not exist yet, or again, is not lost.
        PredictorError::UnknownModel { .. }
        | PredictorError::OutOfService { .. }
        | PredictorError::UndefinedFields { .. } => Refused::Problem(error.to_string()),
        error => {
            let detail = error.to_string();
            let error = ApiError::from(error);
            if error.status().is_client_error() { Refused::Poison(of_error(&error)) } else { Refused::Problem(detail) }
        }
    }
}

fn of_error(error: &ApiError) -> Poison {
    let problem = error.problem();
    let field = problem.errors.first().map(|error| error.pointer.trim_start_matches('/').replace('/', "."));
    Poison { field: field.filter(|field| !field.is_empty()), reason: problem.detail }
}
