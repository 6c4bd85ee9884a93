//! Brokers, their sources, and the reading of messages.

use celeris_model::SourceId;

use crate::error::IngestError;
use crate::kafka::{Kafka, KafkaReader};
use crate::message::Batch;
use crate::nats::{Nats, NatsReader};
use crate::settings::{BrokerSettings, Start};

/// A connection to a broker.
pub enum Broker {
    Nats(Box<Nats>),
    Kafka(Kafka),
}

impl Broker {
    /// Connects to the broker of the ingest `name`.
    ///
    /// # Errors
    /// `Setting` or `Connect`.
    pub async fn connect(name: &str, settings: &BrokerSettings) -> Result<Self, IngestError> {
        Ok(match settings {
            BrokerSettings::Nats(settings) => Self::Nats(Box::new(Nats::connect(name, settings).await?)),
            BrokerSettings::Kafka(settings) => Self::Kafka(Kafka::connect(name, settings).await?),
        })
    }

    /// The sources that there are now, with a reader of each.
    ///
    /// # Errors
    /// `Setting`, `Missing` or `Read`.
    pub async fn readers(&self) -> Result<Vec<Reader>, IngestError> {
        match self {
            Self::Nats(nats) => Ok(vec![Reader(Of::Nats(Box::new(nats.reader().await?)))]),
            Self::Kafka(kafka) => {
                Ok(kafka.readers().await?.into_iter().map(|reader| Reader(Of::Kafka(reader))).collect())
            }
        }
    }

    /// Publishes a dead letter and waits until the broker has it: to a subject of NATS that a stream stores, or to a topic of Kafka.
    ///
    /// # Errors
    /// `DeadLetter`.
    pub(crate) async fn publish(&self, to: &str, id: &str, payload: Vec<u8>) -> Result<(), IngestError> {
        let sent = match self {
            Self::Nats(nats) => nats.publish(to, id, payload).await,
            Self::Kafka(kafka) => kafka.publish(to, id, payload).await,
        };
        sent.map_err(|reason| IngestError::DeadLetter { place: to.to_owned(), reason })
    }
}

/// Reads one source.
pub struct Reader(Of);

enum Of {
    Nats(Box<NatsReader>),
    Kafka(KafkaReader),
}

impl Reader {
    /// The source: the ingest, the broker's kind, and the stream or partition there.
    #[must_use]
    pub fn source(&self) -> &SourceId {
        match &self.0 {
            Of::Nats(reader) => reader.source(),
            Of::Kafka(reader) => reader.source(),
        }
    }

    /// The partition, of Kafka; the stream, of NATS.
    #[must_use]
    pub fn partition(&self) -> String {
        match &self.0 {
            Of::Nats(reader) => reader.stream().to_owned(),
            Of::Kafka(reader) => reader.partition().to_string(),
        }
    }

    /// The position at which reading begins if nothing was read before; `None` is before the first message.
    ///
    /// # Errors
    /// `Read`.
    pub async fn start(&self, start: Start) -> Result<Option<u64>, IngestError> {
        match (start, &self.0) {
            (Start::Earliest, _) => Ok(None),
            (Start::Latest, Of::Nats(reader)) => reader.last().await,
            (Start::Latest, Of::Kafka(reader)) => reader.last().await,
        }
    }

    /// Reads messages after a position, waiting for the first of them for a short time. Reading on after the last message
    /// is cheaper than anywhere else.
    ///
    /// # Errors
    /// `Replaced`, `Rewound`, `Missing` or `Read`; the call can be repeated.
    pub async fn read_after(&mut self, position: Option<u64>) -> Result<Batch, IngestError> {
        match &mut self.0 {
            Of::Nats(reader) => reader.read_after(position).await,
            Of::Kafka(reader) => reader.read_after(position).await,
        }
    }
}
