//! Topics of Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use celeris_model::address::without_login;
use celeris_model::{SourceId, Timestamp};
use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rskafka::record::{Record, RecordAndOffset};

use crate::error::IngestError;
use crate::message::{BYTES_MAX, Batch, MESSAGES_MAX, Message, WAIT_MAX};
use crate::settings::{KafkaSettings, Sasl, SaslMechanism};

/// How long the client repeats a request before it gives up; the caller begins again.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A frame from a broker: a batch of a producer may be larger than what is asked for.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Offsets without a message that one reading passes over.
const MARKS_MAX: u64 = 100;

/// Checks that a text is `host:port`.
///
/// # Errors
/// A message with the address.
pub fn check_broker(address: &str) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(['/', '@']));
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Ok(());
    }
    let shown = without_login(address);
    Err(format!("{shown:?} is no address of a broker; give host and port alone, such as \"10.0.0.1:9092\""))
}

/// A connection to the brokers.
pub struct Kafka {
    ingest: String,
    topic: String,
    client: Client,
}

impl Kafka {
    pub(crate) async fn connect(name: &str, settings: &KafkaSettings) -> Result<Self, IngestError> {
        let backoff = BackoffConfig {
            max_backoff: Duration::from_secs(2),
            deadline: Some(RETRY_MAX),
            ..BackoffConfig::default()
        };
        let mut builder = ClientBuilder::new(settings.brokers.clone())
            .client_id(format!("celeris-ingest-{name}"))
            .max_message_size(FRAME_BYTES_MAX)
            .backoff_config(backoff);
        if let Some(tls) = &settings.tls {
            builder = builder.tls_config(Arc::clone(tls));
        }
        if let Some(sasl) = &settings.sasl {
            builder = builder.sasl_config(sasl_config(sasl)?);
        }
        let failed = |reason| IngestError::Connect { servers: settings.brokers.join(", "), reason };
        let client = match tokio::time::timeout(2 * RETRY_MAX, builder.build()).await {
            Ok(built) => built.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed("no answer".to_owned())),
        };
        Ok(Self { ingest: name.to_owned(), topic: settings.topic.clone(), client })
    }

    pub(crate) async fn readers(&self) -> Result<Vec<KafkaReader>, IngestError> {
        let named = format!("the topic {}", self.topic);
        let topics = bounded(&named, self.client.list_topics()).await?;
        let topic = topics.into_iter().find(|topic| topic.name == self.topic);
        let topic = topic.ok_or(IngestError::Missing { source_name: named })?;
        let mut readers = Vec::new();
        for partition in topic.partitions {
            let source = SourceId::new(format!("{}/kafka/{}/{partition}", self.ingest, self.topic));
            let source =
                source.map_err(|error| IngestError::Setting { setting: "kafka.topic", reason: error.to_string() })?;
            let client = self.partition(&self.topic, partition).await?;
            readers.push(KafkaReader { source, client });
        }
        Ok(readers)
    }

    async fn partition(&self, topic: &str, partition: i32) -> Result<PartitionClient, IngestError> {
        let named = format!("partition {partition} of the topic {topic}");
        let client = self.client.partition_client(topic, partition, UnknownTopicHandling::Error);
        bounded(&named, client).await
    }

    pub(crate) async fn publish(&self, topic: &str, id: &str, payload: Vec<u8>) -> Result<(), String> {
        let client = self.partition(topic, 0).await.map_err(|error| error.to_string())?;
        let record = Record {
            key: Some(id.as_bytes().to_vec()),
            value: Some(payload),
            headers: BTreeMap::new(),
            timestamp: std::time::SystemTime::now().into(),
        };
        let sent = tokio::time::timeout(2 * RETRY_MAX, client.produce(vec![record], Compression::NoCompression)).await;
        sent.map_err(|_| "no answer".to_owned())?.map(drop).map_err(|error| error.to_string())
    }
}

fn sasl_config(Sasl { mechanism, user, password_file }: &Sasl) -> Result<SaslConfig, IngestError> {
    let password = std::fs::read_to_string(password_file).map_err(|error| {
        let reason = format!("{}: {error}", password_file.display());
        IngestError::Setting { setting: "kafka.password_file", reason }
    })?;
    let credentials = Credentials::new(user.clone(), password.trim_end().to_owned());
    Ok(match mechanism {
        SaslMechanism::Plain => SaslConfig::Plain(credentials),
        SaslMechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
        SaslMechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
    })
}

/// A request that is given up after a while, whatever the client does.
async fn bounded<T>(source_name: &str, request: impl Future<Output = Result<T, Error>>) -> Result<T, IngestError> {
    let read = |reason| IngestError::Read { source_name: source_name.to_owned(), reason };
    match tokio::time::timeout(2 * RETRY_MAX, request).await {
        Ok(answer) => answer.map_err(|error| read(error.to_string())),
        Err(_) => Err(read("no answer".to_owned())),
    }
}

/// Reads a partition.
pub(crate) struct KafkaReader {
    source: SourceId,
    client: PartitionClient,
}

impl KafkaReader {
    pub(crate) fn source(&self) -> &SourceId {
        &self.source
    }

    pub(crate) fn partition(&self) -> i32 {
        self.client.partition()
    }

    fn shown(&self) -> String {
        format!("partition {} of the topic {}", self.client.partition(), self.client.topic())
    }

    pub(crate) async fn last(&self) -> Result<Option<u64>, IngestError> {
        let end = self.offset(OffsetAt::Latest).await?;
        Ok(end.checked_sub(1))
    }

    async fn offset(&self, at: OffsetAt) -> Result<u64, IngestError> {
        let offset = bounded(&self.shown(), self.client.get_offset(at)).await?;
        Ok(u64::try_from(offset).unwrap_or_default())
    }

    pub(crate) async fn read_after(&mut self, position: Option<u64>) -> Result<Batch, IngestError> {
        let next = position.map_or(0, |position| position + 1);
        let mut from = next;
        loop {
            let Some((records, end)) = self.fetch(from).await? else { return self.read_from_first(position).await };
            // Only the marks of transactions, which take offsets too, can be at an offset that has no message.
            if !records.is_empty() || from + 1 >= end || from - next >= MARKS_MAX {
                return Ok(batch(from, records, end));
            }
            from += 1;
        }
    }

    /// Messages from an offset on, and the end of the partition; `None` if the offset is not in it.
    async fn fetch(&self, from: u64) -> Result<Option<(Vec<RecordAndOffset>, u64)>, IngestError> {
        let shown = self.shown();
        let read = |reason| IngestError::Read { source_name: shown.clone(), reason };
        let (bytes, wait) = (1..BYTES_MAX as i32, WAIT_MAX.as_millis() as i32);
        let fetched = self.client.fetch_records(i64::try_from(from).unwrap_or(i64::MAX), bytes, wait);
        match tokio::time::timeout(2 * RETRY_MAX, fetched).await {
            Err(_) => Err(read("no answer".to_owned())),
            Ok(Ok((records, end))) => Ok(Some((records, u64::try_from(end).unwrap_or_default()))),
            Ok(Err(Error::ServerError { protocol_error: ProtocolError::OffsetOutOfRange, .. })) => Ok(None),
            Ok(Err(error)) => Err(read(error.to_string())),
        }
    }

    /// Reads on at the first message that the partition still has.
    async fn read_from_first(&mut self, position: Option<u64>) -> Result<Batch, IngestError> {
        let (first, end) = (self.offset(OffsetAt::Earliest).await?, self.offset(OffsetAt::Latest).await?);
        let next = position.map_or(0, |position| position + 1);
        if next > end {
            let position = position.unwrap_or_default();
            return Err(IngestError::Rewound { source_name: self.shown(), position, end: end.saturating_sub(1) });
        }
        if first <= next {
            return Err(IngestError::Read { source_name: self.shown(), reason: format!("it has no message {next}") });
        }
        let (records, end) = self.fetch(first).await?.unwrap_or((Vec::new(), end));
        // The first reading of all begins where the partition does.
        let removed = position.map_or(0, |_| first - next);
        Ok(Batch { removed, ..batch(first, records, end) })
    }
}

/// Brokers send whole batches of a producer, which may begin earlier.
fn batch(from: u64, records: Vec<RecordAndOffset>, end: u64) -> Batch {
    let messages = records.into_iter().map(|record| Message {
        offset: u64::try_from(record.offset).unwrap_or_default(),
        payload: record.record.value,
        timestamp: Timestamp(record.record.timestamp.timestamp_millis()),
    });
    let messages: Vec<Message> = messages.filter(|message| message.offset >= from).take(MESSAGES_MAX).collect();
    let read = messages.last().map_or(from, |last| last.offset + 1);
    Batch { messages, behind: end.saturating_sub(read), removed: 0 }
}
