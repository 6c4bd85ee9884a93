//! Ingests: observations from message brokers, each counted once.
//!
//! A task for each source (`partition.rs`) reads messages after the position that the log has of it, and appends their observations
//! with their positions. It keeps nothing that the log does not have, so it may stop and begin anywhere. In a cluster every node
//! reads every source, and takes the messages of the users whose shards it owns; the positions go with the shards.
//! The first shard also takes the messages that name no user.

mod partition;
mod settings;
mod taking;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use celeris_ingest::{Broker, BrokerSettings, DeadLetters, IngestError, Mapping, Start};
use celeris_model::ModelName;
use tokio::task::JoinSet;

pub use self::settings::broker as broker_settings;
pub use self::taking::observation;
use crate::config;
use crate::ingest_status::Statuses;
use crate::state::{Node, WeakNode};

/// Between two looks for new partitions of a topic.
const SOURCES_LOOK: Duration = Duration::from_secs(30);

/// How long an ingest waits before it tries again, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(15);

/// The ingests of a node.
pub struct Ingests(Vec<Arc<Ingest>>);

/// One ingest.
struct Ingest {
    name: String,
    model: ModelName,
    broker: BrokerSettings,
    mapping: Mapping,
    start: Start,
    dead_letters: DeadLetters,
    statuses: Arc<Statuses>,
}

impl Ingests {
    /// The ingests of a configuration. Nothing is read yet.
    ///
    /// # Errors
    /// With the setting that is wrong.
    pub fn open(configured: &[config::Ingest], data_dir: &Path) -> Result<Self, String> {
        let ingests = configured.iter().map(|configured| {
            let in_ingest = |problem| format!("ingest {}: {problem}", configured.name);
            let place = match &configured.dead_letters_to {
                Some(to) => DeadLetters::Broker { to: to.clone() },
                None => DeadLetters::File {
                    path: data_dir.join("dead-letters").join(format!("{}.jsonl", configured.name)),
                    bytes_max: configured.dead_letters_max.as_u64(),
                },
            };
            Ok(Arc::new(Ingest {
                name: configured.name.clone(),
                model: configured.model.clone(),
                broker: broker_settings(configured).map_err(in_ingest)?,
                mapping: configured.mapping().map_err(in_ingest)?,
                start: configured.start,
                statuses: Arc::new(Statuses::new(configured, &place)),
                dead_letters: place,
            }))
        });
        ingests.collect::<Result<_, _>>().map(Self)
    }

    /// Starts a task for each ingest. They end with the node.
    pub fn start(&self, node: &Node) {
        for ingest in &self.0 {
            node.compute.spawn(run(node.downgrade(), Arc::clone(ingest)));
        }
    }

    /// What each ingest does, in the order of the configuration.
    pub fn statuses(&self) -> Vec<Arc<Statuses>> {
        self.0.iter().map(|ingest| Arc::clone(&ingest.statuses)).collect()
    }
}

/// How long to wait before the next attempt.
struct Backoff(Duration);

impl Backoff {
    fn new() -> Self {
        Self(RETRY_MIN)
    }

    fn reset(&mut self) {
        self.0 = RETRY_MIN;
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (2 * self.0).min(RETRY_MAX);
    }
}

/// Reads the sources of an ingest until the node ends.
async fn run(node: WeakNode, ingest: Arc<Ingest>) {
    let mut backoff = Backoff::new();
    while node.upgrade().is_some() {
        match read_all(&node, &ingest).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                ingest.statuses.stopped(&error.to_string());
                backoff.wait().await;
            }
        }
    }
}

/// Reads the sources that there are, and looks for new ones; returns when a source was created again.
async fn read_all(node: &WeakNode, ingest: &Arc<Ingest>) -> Result<(), IngestError> {
    let broker = Arc::new(Broker::connect(&ingest.name, &ingest.broker).await?);
    let (mut tasks, mut read) = (JoinSet::new(), BTreeSet::new());
    loop {
        match broker.readers().await {
            Ok(readers) => {
                for reader in readers {
                    if read.insert(reader.source().clone()) {
                        tasks.spawn(partition::read(node.clone(), Arc::clone(ingest), (Arc::clone(&broker), reader)));
                    }
                }
                ingest.statuses.connected();
            }
            Err(error) if tasks.is_empty() => return Err(error),
            // The readers say what is wrong.
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(SOURCES_LOOK) => {}
            Some(ended) = tasks.join_next() => {
                let source_name = ingest.name.clone();
                return ended.map_err(|panic| IngestError::Read { source_name, reason: panic.to_string() });
            }
        }
    }
}
