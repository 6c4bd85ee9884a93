//! What the ingests do, for the API and the metrics.
//!
//! The tasks that read brokers (`ingests`) note it here.

use std::collections::BTreeMap;

use celeris_ingest::DeadLetters;
use metrics::{counter, gauge};
use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use crate::config;

/// What an ingest does.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct IngestStatus {
    pub name: String,
    /// The model whose stream receives the observations.
    pub model: String,
    /// The broker with its stream or topic, such as `nats CLICKS`.
    pub source: String,
    /// `connecting`, `reading`, or `waiting` for what `problem` says.
    pub state: IngestState,
    /// Why nothing is read now, or from some partitions not.
    #[schema(required = true)]
    pub problem: Option<String>,
    /// Where messages go that are no observations: a file, a subject or a topic.
    pub dead_letters_to: String,
    /// Messages of this node that became observations, since it was started.
    pub observations: u64,
    /// Messages whose observation was in the log already, since the node was started.
    pub duplicates: u64,
    /// Messages that are no observations, since the node was started.
    pub dead_letters: u64,
    /// Messages that the broker had removed before they were read, at most, since the node was started.
    pub removed: u64,
    /// The partitions of the topic, or the stream.
    pub partitions: Vec<PartitionStatus>,
}

/// What an ingest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IngestState {
    Connecting,
    Reading,
    Waiting,
}

/// How far a partition was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct PartitionStatus {
    /// The number of the partition in Kafka; the name of the stream in NATS.
    pub partition: String,
    /// The last message that was read, by its offset in Kafka, and its sequence in NATS.
    #[schema(required = true)]
    pub position: Option<u64>,
    /// Messages that the broker has after it, as of the last reading.
    #[schema(required = true)]
    pub lag: Option<u64>,
    /// Why nothing is read now.
    #[schema(required = true)]
    pub problem: Option<String>,
}

/// The status of one ingest.
pub struct Statuses(Mutex<IngestStatus>);

/// Messages of one batch by what became of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcomes {
    pub(crate) observations: u64,
    pub(crate) duplicates: u64,
    pub(crate) dead_letters: u64,
    pub(crate) removed: u64,
}

impl Statuses {
    pub(crate) fn new(ingest: &config::Ingest, dead_letters: &DeadLetters) -> Self {
        let source = match (&ingest.nats, &ingest.kafka) {
            (Some(nats), _) => format!("nats {}", nats.stream),
            (None, Some(kafka)) => format!("kafka {}", kafka.topic),
            (None, None) => String::new(),
        };
        let status = IngestStatus {
            name: ingest.name.clone(),
            model: ingest.model.to_string(),
            source,
            state: IngestState::Connecting,
            problem: None,
            dead_letters_to: dead_letters.place(),
            observations: 0,
            duplicates: 0,
            dead_letters: 0,
            removed: 0,
            partitions: Vec::new(),
        };
        status.show_up();
        Self(Mutex::new(status))
    }

    /// What the ingest does now.
    pub fn status(&self) -> IngestStatus {
        let mut status = self.0.lock().clone();
        if let Some(problem) = status.partitions.iter().find_map(|partition| partition.problem.clone()) {
            status.state = IngestState::Waiting;
            status.problem = Some(problem);
        }
        status
    }

    /// The sources are known, and are read.
    pub(crate) fn connected(&self) {
        let mut status = self.0.lock();
        status.state = IngestState::Reading;
        status.problem = None;
        status.show_up();
    }

    /// Nothing is read.
    pub(crate) fn stopped(&self, problem: &str) {
        let mut status = self.0.lock();
        if status.problem.as_deref() != Some(problem) {
            tracing::warn!(ingest = %status.name, %problem, "an ingest waits");
        }
        status.state = IngestState::Waiting;
        status.problem = Some(problem.to_owned());
        status.show_up();
    }

    /// A partition has a problem, or none any more.
    pub(crate) fn partition(&self, partition: &str, problem: Option<String>) {
        let mut status = self.0.lock();
        let name = status.name.clone();
        let of = status.of(partition);
        if let Some(problem) = problem.as_ref().filter(|problem| of.problem.as_ref() != Some(*problem)) {
            tracing::warn!(ingest = %name, partition, %problem, "a partition is not read");
        }
        of.problem = problem;
        status.show_up();
    }

    /// A batch of a partition was taken.
    pub(crate) fn taken(&self, partition: &str, (position, lag): (Option<u64>, u64), outcomes: Outcomes) {
        let mut status = self.0.lock();
        status.observations += outcomes.observations;
        status.duplicates += outcomes.duplicates;
        status.dead_letters += outcomes.dead_letters;
        status.removed += outcomes.removed;
        let name = status.name.clone();
        let of = status.of(partition);
        of.position = position.or(of.position);
        of.lag = Some(lag);
        gauge!("celeris_ingest_lag_messages", "ingest" => name.clone(), "partition" => partition.to_owned())
            .set(lag as f64);
        let counts = BTreeMap::from([
            ("observation", outcomes.observations),
            ("duplicate", outcomes.duplicates),
            ("dead_letter", outcomes.dead_letters),
            ("removed", outcomes.removed),
        ]);
        for (outcome, count) in counts {
            counter!("celeris_ingest_messages_total", "ingest" => name.clone(), "outcome" => outcome).increment(count);
        }
    }
}

impl IngestStatus {
    /// Sets the metric: whether all that there is to read is read.
    fn show_up(&self) {
        let up =
            self.state == IngestState::Reading && self.partitions.iter().all(|partition| partition.problem.is_none());
        gauge!("celeris_ingest_up", "ingest" => self.name.clone()).set(f64::from(u8::from(up)));
    }

    fn of(&mut self, partition: &str) -> &mut PartitionStatus {
        let at = self.partitions.iter().position(|known| known.partition == partition);
        let at = at.unwrap_or_else(|| {
            self.partitions.push(PartitionStatus { partition: partition.to_owned(), ..PartitionStatus::default() });
            self.partitions.len() - 1
        });
        &mut self.partitions[at]
    }
}
