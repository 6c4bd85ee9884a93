//! The tables `[[ingest]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytesize::ByteSize;
use celeris_ingest::{Mapping, SaslMechanism, Start, TimeUnit, check_broker, server_address};
use celeris_model::{ModelName, NodeName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{addresses, sizes};

/// A message broker whose messages are observations of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// The name of the ingest: ASCII letters, digits, `-` and `_`. How far it has read is kept by this name.
    pub name: String,
    /// The model whose stream receives the observations.
    #[schema(value_type = String)]
    pub model: ModelName,
    /// Where reading begins if this ingest has read nothing yet: `earliest` or `latest`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub start: Start,
    /// The paths of the observation's fields in a message, keys separated by dots, as in `user = "customer.id"`. Without `map`,
    /// `context` and `values`, a message is the body of `observe`.
    #[serde(default)]
    pub map: BTreeMap<String, String>,
    /// The paths of the fields of the context.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
    /// Fields with the same value in every observation, as in `label = 1`.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Object>)]
    pub values: BTreeMap<String, Value>,
    /// The label for each text at the path of the label, as in `purchase = 1`.
    #[serde(default)]
    pub labels: BTreeMap<String, f64>,
    /// The unit of times that are numbers: `s`, `ms` or `us`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub time_unit: TimeUnit,
    /// The subject of NATS, or the topic of Kafka, at the same broker, for messages that are no observations. By default they go to the file
    /// `dead-letters/NAME.jsonl` in the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub dead_letters_to: Option<String>,
    /// How large that file may become; the ingest stops then.
    #[serde(default = "dead_letters_max", serialize_with = "sizes::serialize")]
    #[schema(value_type = String)]
    pub dead_letters_max: ByteSize,
    /// A stream of NATS JetStream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub nats: Option<Nats>,
    /// A topic of Kafka.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub kafka: Option<Kafka>,
}

fn dead_letters_max() -> ByteSize {
    ByteSize::mib(256)
}

/// A stream of NATS JetStream, whose retention is by limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// The addresses of the servers, such as `nats://10.0.0.1:4222`.
    #[serde(serialize_with = "addresses::serialize")]
    pub servers: Vec<String>,
    /// The name of the stream.
    pub stream: String,
    /// Only messages of these subjects, which may have wildcards.
    #[serde(default)]
    pub subjects: Vec<String>,
    /// A file of credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub credentials_file: Option<PathBuf>,
    /// A user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file with the user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub password_file: Option<PathBuf>,
    /// The authorities of the servers' certificates, in PEM. With it, connections are encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ca_file: Option<PathBuf>,
}

/// A topic of Kafka.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    /// The addresses of some of the brokers, such as `10.0.0.1:9092`.
    #[serde(serialize_with = "addresses::serialize")]
    pub brokers: Vec<String>,
    /// The name of the topic.
    pub topic: String,
    /// How the node proves who it is: `plain`, `scram-sha-256` or `scram-sha-512`, with a user and a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub sasl: Option<SaslMechanism>,
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A file with the user's password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub password_file: Option<PathBuf>,
    /// The authorities of the brokers' certificates, in PEM, such as the system's. With it, connections are encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ca_file: Option<PathBuf>,
}

impl Ingest {
    /// Checks all tables.
    pub(super) fn check_all(ingests: &[Self]) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for (at, ingest) in ingests.iter().enumerate() {
            let problem = ingest.check().err();
            let repeated = !names.insert(&ingest.name);
            let problem = problem.or(repeated.then(|| "name: another ingest has it".to_owned()));
            if let Some(problem) = problem {
                return Err(format!("ingest[{at}] ({}).{problem}", ingest.name));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if NodeName::new(self.name.as_str()).is_err() {
            return Err("name: must consist of 1 to 64 ASCII letters, digits, `-` and `_`".to_owned());
        }
        self.mapping()?;
        if self.dead_letters_to.as_ref().is_some_and(String::is_empty) {
            return Err("dead_letters_to: must name a subject or a topic".to_owned());
        }
        match (&self.nats, &self.kafka) {
            (Some(nats), None) => nats.check(),
            (None, Some(kafka)) => kafka.check(),
            _ => Err("nats: give one broker, by the table [ingest.nats] or [ingest.kafka]".to_owned()),
        }
    }

    /// Which fields of a message are those of an observation.
    ///
    /// # Errors
    /// With the name of the key.
    pub fn mapping(&self) -> Result<Mapping, String> {
        Mapping::new(&self.map, &self.context, &self.values, (&self.labels, self.time_unit))
    }
}

impl Nats {
    fn check(&self) -> Result<(), String> {
        if self.servers.is_empty() {
            return Err(
                "nats.servers: give the addresses of the servers, such as [\"nats://10.0.0.1:4222\"]".to_owned()
            );
        }
        for server in &self.servers {
            server_address(server).map_err(|problem| format!("nats.servers: {problem}"))?;
        }
        if self.stream.is_empty()
            || self.stream.contains(['.', '*', '>', '/', '\\'])
            || self.stream.contains(char::is_whitespace)
        {
            return Err(format!("nats.stream: {:?} cannot be the name of a stream", self.stream));
        }
        check_password(&self.user, &self.password_file, "nats")
    }
}

impl Kafka {
    fn check(&self) -> Result<(), String> {
        if self.brokers.is_empty() {
            return Err("kafka.brokers: give the addresses of brokers, such as [\"10.0.0.1:9092\"]".to_owned());
        }
        for broker in &self.brokers {
            check_broker(broker).map_err(|problem| format!("kafka.brokers: {problem}"))?;
        }
        let is_of_topic = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=249).contains(&self.topic.len()) || !self.topic.chars().all(is_of_topic) {
            return Err(format!("kafka.topic: {:?} cannot be the name of a topic", self.topic));
        }
        if self.sasl.is_some() != self.user.is_some() {
            return Err("kafka.sasl: sasl and user are given together".to_owned());
        }
        check_password(&self.user, &self.password_file, "kafka")
    }
}

fn check_password(user: &Option<String>, password_file: &Option<PathBuf>, broker: &str) -> Result<(), String> {
    if user.is_some() != password_file.is_some() {
        return Err(format!("{broker}.user: user and password_file are given together"));
    }
    Ok(())
}
