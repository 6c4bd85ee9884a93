//! What a broker is reached by.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

/// The broker of an ingest.
#[derive(Debug, Clone)]
pub enum BrokerSettings {
    Nats(NatsSettings),
    Kafka(KafkaSettings),
}

/// A stream of NATS JetStream.
#[derive(Debug, Clone)]
pub struct NatsSettings {
    /// The URLs of the servers, as `nats://host:4222` or `tls://host:4222`.
    pub servers: Vec<String>,
    pub stream: String,
    /// Only messages of these subjects; all if empty.
    pub subjects: Vec<String>,
    /// A file of credentials (JWT and key), as `nsc` writes it.
    pub credentials_file: Option<PathBuf>,
    /// A user and a file with the password.
    pub user: Option<(String, PathBuf)>,
    /// Certificates of the authorities that sign those of the servers.
    pub ca_file: Option<PathBuf>,
}

/// A topic of Kafka.
#[derive(Debug, Clone)]
pub struct KafkaSettings {
    /// Addresses of some of the brokers, as `host:9092`.
    pub brokers: Vec<String>,
    pub topic: String,
    /// Without it, connections are not encrypted.
    pub tls: Option<Arc<ClientConfig>>,
    pub sasl: Option<Sasl>,
}

/// How a client proves who it is to Kafka.
#[derive(Debug, Clone)]
pub struct Sasl {
    pub mechanism: SaslMechanism,
    pub user: String,
    pub password_file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaslMechanism {
    #[serde(rename = "plain")]
    Plain,
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Where an ingest begins in a source that it has read nothing of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At the first message that the broker still has.
    #[default]
    Earliest,
    /// After the messages that the broker has.
    Latest,
}
