//! Reads one source.

use std::sync::Arc;

use celeris_ingest::{Broker, DeadLetter, IngestError, Message, Poison, Reader};
use celeris_model::{Shard, SourceId};
use celeris_predictor::PredictorError;
use celeris_storage::{SourcePosition, StorageError};

use super::taking::{self, Enqueued, Stop, Taken};
use super::{Backoff, Ingest};
use crate::ingest_status::Outcomes;
use crate::state::{Node, WeakNode};

/// Why a source is not read on now.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Broker(#[from] IngestError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Node(String),
}

/// Where nothing is to be read now: another node owns all shards.
const ELSEWHERE: std::time::Duration = std::time::Duration::from_millis(500);

/// Reads a source until the node ends, or the source is not the one that it was.
pub(super) async fn read(node: WeakNode, ingest: Arc<Ingest>, (broker, reader): (Arc<Broker>, Reader)) {
    let partition = reader.partition();
    let mut source = Source { ingest, broker, reader, taken: Taken::default() };
    let mut backoff = Backoff::new();
    loop {
        match source.step(&node).await {
            Ok(true) => {
                backoff.reset();
                source.ingest.statuses.partition(&partition, None);
            }
            Ok(false) => return,
            Err(problem) => {
                source.ingest.statuses.partition(&partition, Some(problem.to_string()));
                if matches!(problem, Problem::Broker(IngestError::Replaced { .. })) {
                    return;
                }
                backoff.wait().await;
            }
        }
    }
}

struct Source {
    ingest: Arc<Ingest>,
    broker: Arc<Broker>,
    reader: Reader,
    taken: Taken,
}

impl Source {
    /// Reads and takes one batch; `false` once the node has ended.
    async fn step(&mut self, weak: &WeakNode) -> Result<bool, Problem> {
        let Some(node) = weak.upgrade() else { return Ok(false) };
        if !self.find_shards(&node).await? {
            drop(node);
            tokio::time::sleep(ELSEWHERE).await;
            return Ok(true);
        }
        // The node may end while the broker has nothing.
        drop(node);
        let batch = self.reader.read_after(self.taken.first()).await?;
        let Some(node) = weak.upgrade() else { return Ok(false) };
        let last = batch.messages.last().map(|message| message.offset);
        let outcomes = Outcomes { removed: batch.removed, ..self.take(&node, batch.messages).await? };
        self.ingest.statuses.taken(&self.reader.partition(), (last, batch.behind), outcomes);
        Ok(true)
    }

    /// Finds the shards that this node owns, and how far each is; whether there are any.
    async fn find_shards(&mut self, node: &Node) -> Result<bool, Problem> {
        let new = self.taken.look(node, self.reader.source())?;
        if new.is_empty() {
            return Ok(self.taken.has_shards());
        }
        // Nothing of the source was read for these shards.
        let start = self.reader.start(self.ingest.start).await?;
        for shard in new {
            if let Some(offset) = start {
                let message = SourcePosition { source: self.reader.source().clone(), offset };
                match node.storage.log().pass_over(shard, &message) {
                    Ok(ticket) => ticket.durable().await?,
                    Err(StorageError::NotOwner | StorageError::Fenced | StorageError::MessageTaken { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            self.taken.begin(shard, start);
        }
        Ok(self.taken.has_shards())
    }

    /// Takes the messages of a batch, and waits until all are durable.
    async fn take(&mut self, node: &Node, messages: Vec<Message>) -> Result<Outcomes, Problem> {
        let mut outcomes = Outcomes::default();
        let messages = Arc::new(messages);
        let mut from = 0;
        loop {
            let work = taking::Work {
                node: node.clone(),
                ingest: Arc::clone(&self.ingest),
                source: self.reader.source().clone(),
                messages: Arc::clone(&messages),
                from,
                taken: std::mem::take(&mut self.taken),
            };
            let done = tokio::task::spawn_blocking(move || work.run()).await;
            let done = done.map_err(|error| Problem::Node(format!("a message has caused a fault: {error}")))?;
            self.taken = done.taken;
            self.finish(node, done.enqueued, &mut outcomes).await?;
            match done.stop {
                None => return Ok(outcomes),
                Some(Stop::Problem(problem)) => return Err(Problem::Node(problem)),
                Some(Stop::Poison { at, shard, poison }) => {
                    self.bury(node, (&messages[at], shard), &poison).await?;
                    outcomes.dead_letters += 1;
                    from = at + 1;
                }
            }
        }
    }

    /// Waits until what was enqueued is durable.
    async fn finish(&mut self, node: &Node, enqueued: Enqueued, outcomes: &mut Outcomes) -> Result<(), Problem> {
        let mut failure = None;
        for (shard, pending) in enqueued.observations {
            match node.predictor.ingest().finish_observe(pending).await {
                Ok(observed) if observed.duplicate => outcomes.duplicates += 1,
                Ok(_) => outcomes.observations += 1,
                Err(PredictorError::Storage(StorageError::NotOwner | StorageError::Fenced)) => self.taken.lose(shard),
                Err(error) => failure = Some(error.to_string()),
            }
        }
        for (shard, ticket) in enqueued.positions {
            match ticket.durable().await {
                Ok(()) => {}
                Err(StorageError::NotOwner | StorageError::Fenced) => self.taken.lose(shard),
                Err(error) => failure = Some(error.to_string()),
            }
        }
        failure.map_or(Ok(()), |failure| Err(Problem::Node(failure)))
    }

    /// Writes a message to the dead letters, and then passes it over.
    async fn bury(&mut self, node: &Node, (message, shard): (&Message, Shard), poison: &Poison) -> Result<(), Problem> {
        let source: &SourceId = self.reader.source();
        let letter = DeadLetter::new((source, message.offset), message.payload.as_deref(), message.timestamp, poison);
        tracing::warn!(%source, offset = message.offset, reason = %poison.reason, "a message is no observation");
        self.ingest.dead_letters.write(&self.broker, &[letter]).await?;
        let message = SourcePosition { source: source.clone(), offset: message.offset };
        let passed = match node.storage.log().pass_over(shard, &message) {
            Ok(ticket) => ticket.durable().await,
            Err(error) => Err(error),
        };
        match passed {
            Ok(()) | Err(StorageError::MessageTaken { .. }) => self.taken.advance(shard, message.offset),
            Err(StorageError::NotOwner | StorageError::Fenced) => self.taken.lose(shard),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
