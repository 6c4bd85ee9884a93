//! Observations from message brokers: NATS JetStream and Kafka.
//!
//! A [`Broker`] has *sources*, which are sequences of numbered messages: a stream of JetStream is one, and so is each partition of a
//! topic of Kafka. A [`Reader`] reads the messages of a source after a position. The store keeps that position beside the
//! observations ([`SourceId`]), so nothing is acknowledged to a broker, and no group of consumers exists there. A [`Mapping`] makes
//! the JSON of an observation of a message. What cannot become one goes to the [`DeadLetters`], and nothing else does:
//! a broker that does not answer is waited for.
//!
//! This crate learns nothing and writes no positions: see `celeris_api::ingests`.
//!
//! [`SourceId`]: celeris_model::SourceId

mod broker;
mod dead_letters;
mod error;
mod kafka;
mod mapping;
mod message;
mod nats;
mod settings;

pub use broker::{Broker, Reader};
pub use dead_letters::{DeadLetter, DeadLetters};
pub use error::IngestError;
pub use kafka::check_broker;
pub use mapping::{Mapping, Poison, TimeUnit};
pub use message::{Batch, Message};
pub use nats::server_address;
pub use settings::{BrokerSettings, KafkaSettings, NatsSettings, Sasl, SaslMechanism, Start};
