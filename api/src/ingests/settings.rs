//! What a broker is reached by, of the configuration.

use std::path::Path;
use std::sync::Arc;

use celeris_ingest::{BrokerSettings, KafkaSettings, NatsSettings, Sasl};
use rustls::ClientConfig;

use crate::config;
use crate::tls::roots_in;

/// The broker of an ingest.
///
/// # Errors
/// With the setting that is wrong.
pub fn broker(ingest: &config::Ingest) -> Result<BrokerSettings, String> {
    match (&ingest.nats, &ingest.kafka) {
        (Some(nats), _) => Ok(BrokerSettings::Nats(of_nats(nats))),
        (None, Some(kafka)) => of_kafka(kafka).map(BrokerSettings::Kafka),
        (None, None) => Err("it has no broker".to_owned()),
    }
}

fn of_nats(nats: &config::Nats) -> NatsSettings {
    NatsSettings {
        servers: nats.servers.clone(),
        stream: nats.stream.clone(),
        subjects: nats.subjects.clone(),
        credentials_file: nats.credentials_file.clone(),
        user: nats.user.clone().zip(nats.password_file.clone()),
        ca_file: nats.ca_file.clone(),
    }
}

fn of_kafka(kafka: &config::Kafka) -> Result<KafkaSettings, String> {
    let sasl = kafka.sasl.zip(kafka.user.clone().zip(kafka.password_file.clone()));
    let sasl = sasl.map(|(mechanism, (user, password_file))| Sasl { mechanism, user, password_file });
    let in_file = |file: &Path, problem: String| format!("kafka.ca_file: {}: {problem}", file.display());
    let tls = kafka.ca_file.as_ref().map(|file| client(file).map_err(|problem| in_file(file, problem)));
    Ok(KafkaSettings { brokers: kafka.brokers.clone(), topic: kafka.topic.clone(), tls: tls.transpose()?, sasl })
}

fn client(ca_file: &Path) -> Result<Arc<ClientConfig>, String> {
    let roots = roots_in(&std::fs::read(ca_file).map_err(|error| error.to_string())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(client.with_root_certificates(roots).with_no_client_auth()))
}
