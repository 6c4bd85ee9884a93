//! Streams of NATS JetStream.
//!
//! A stream is read by a consumer that lives as long as the reading goes on from message to message. The server may send a
//! message that is lost on the way, or forget the consumer when it restarts; so the numbers that the consumer gives must follow
//! each other, and if they do not, another one is created after the last message that was read.

use std::fmt::Display;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{Batch as Messages, Config};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::stream::{Info, RetentionPolicy, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, HeaderMap, ServerAddr, header};
use celeris_model::address::without_login;
use celeris_model::{SourceId, Timestamp};
use futures_util::StreamExt;

use crate::error::IngestError;
use crate::message::{BYTES_MAX, Batch, MESSAGES_MAX, Message, WAIT_MAX};
use crate::settings::NatsSettings;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The server removes a consumer of which it has heard nothing for this time.
const CONSUMER_IDLE_MAX: Duration = Duration::from_secs(60);

/// A connection to the servers.
pub struct Nats {
    ingest: String,
    settings: NatsSettings,
    context: Context,
}

impl Nats {
    pub(crate) async fn connect(name: &str, settings: &NatsSettings) -> Result<Self, IngestError> {
        let options = options(name, settings).await?;
        let servers = shown(&settings.servers);
        let addresses = settings.servers.iter().map(|server| server_address(server));
        let addresses = addresses.collect::<Result<Vec<_>, _>>().map_err(|reason| setting("nats.servers", &reason))?;
        let failed = |reason| IngestError::Connect { servers, reason };
        let client = match tokio::time::timeout(CONNECT_TIMEOUT, options.connect(addresses)).await {
            Ok(connected) => connected.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed("no answer".to_owned())),
        };
        Ok(Self { ingest: name.to_owned(), settings: settings.clone(), context: jetstream::new(client) })
    }

    pub(crate) async fn reader(&self) -> Result<NatsReader, IngestError> {
        let NatsSettings { stream, subjects, .. } = &self.settings;
        let of = Handle { context: self.context.clone(), stream: stream.clone() };
        let (_, info) = of.look_up().await?;
        if info.config.retention != RetentionPolicy::Limits {
            let reason = format!(
                "the stream {stream} removes what a consumer has acknowledged, and an ingest acknowledges nothing: it needs \
                 the retention `limits`; a stream of that kind can have this one as its source"
            );
            return Err(setting("nats.stream", &reason));
        }
        // A stream that is created again counts from 1 again.
        let created = info.created.unix_timestamp_nanos();
        let source = SourceId::new(format!("{}/nats/{stream}/{created}", self.ingest))
            .map_err(|error| setting("nats.stream", &error))?;
        Ok(NatsReader { of, source, created, subjects: subjects.clone(), at: None })
    }

    pub(crate) async fn publish(&self, subject: &str, id: &str, payload: Vec<u8>) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_MESSAGE_ID, id);
        let stored = self.context.publish_with_headers(subject.to_owned(), headers, payload.into()).await;
        let stored = stored.map_err(|error| error.to_string())?;
        stored.await.map(drop).map_err(|error| format!("no stream has stored it: {error}"))
    }
}

async fn options(name: &str, settings: &NatsSettings) -> Result<ConnectOptions, IngestError> {
    let mut options = ConnectOptions::new()
        .name(format!("celeris ingest {name}"))
        .connection_timeout(Duration::from_secs(5))
        .ping_interval(Duration::from_secs(5))
        .request_timeout(Some(Duration::from_secs(5)));
    if let Some(file) = &settings.credentials_file {
        let with = options.credentials_file(file).await;
        options = with.map_err(|error| setting("nats.credentials_file", &format!("{}: {error}", file.display())))?;
    }
    if let Some((user, file)) = &settings.user {
        let password = std::fs::read_to_string(file)
            .map_err(|error| setting("nats.password_file", &format!("{}: {error}", file.display())))?;
        options = options.user_and_password(user.clone(), password.trim_end().to_owned());
    }
    if let Some(file) = &settings.ca_file {
        options = options.add_root_certificates(file.clone()).require_tls(true);
    }
    Ok(options)
}

fn setting(setting: &'static str, reason: &dyn ToString) -> IngestError {
    IngestError::Setting { setting, reason: reason.to_string() }
}

/// The address of a server.
///
/// # Errors
/// A message with the address, if it is none of a NATS server.
pub fn server_address(text: &str) -> Result<ServerAddr, String> {
    let wrong = |reason: &dyn Display| {
        let shown = without_login(text);
        format!("{shown:?} is no address of a NATS server ({reason}); give one such as \"nats://10.0.0.1:4222\"")
    };
    let address: ServerAddr = text.parse().map_err(|error: std::io::Error| wrong(&error))?;
    if address.host().is_empty() { Err(wrong(&"it has no host")) } else { Ok(address) }
}

/// The servers as messages name them.
fn shown(servers: &[String]) -> String {
    servers.iter().map(|server| without_login(server)).collect::<Vec<_>>().join(", ")
}

struct Handle {
    context: Context,
    stream: String,
}

impl Handle {
    async fn look_up(&self) -> Result<(Stream<()>, Info), IngestError> {
        let read = |error: &dyn ToString| IngestError::Read { source_name: self.shown(), reason: error.to_string() };
        let found = self.context.get_stream_no_info(&self.stream).await.map_err(|error| read(&error))?;
        let info = found.get_info().await.map_err(|error| match error.kind() {
            async_nats::jetstream::context::RequestErrorKind::NoResponders => read(&"JetStream does not answer"),
            _ => read(&error),
        });
        Ok((found, info?))
    }

    fn shown(&self) -> String {
        format!("the stream {}", self.stream)
    }
}

/// Reads a stream.
pub(crate) struct NatsReader {
    of: Handle,
    source: SourceId,
    /// When the stream was created.
    created: i128,
    subjects: Vec<String>,
    at: Option<Place>,
}

/// Where the reading goes on.
struct Place {
    consumer: Consumer<Config>,
    /// The number that the consumer gives its next message.
    next: u64,
    /// The last message that was read.
    position: Option<u64>,
    /// The last message that was read or counted as removed.
    accounted: Option<u64>,
    /// Whether messages of all subjects are read: what lies between two of them was then removed.
    is_whole: bool,
    /// Number of messages that were gone when the reading began.
    removed: u64,
}

impl NatsReader {
    pub(crate) fn source(&self) -> &SourceId {
        &self.source
    }

    pub(crate) fn stream(&self) -> &str {
        &self.of.stream
    }

    pub(crate) async fn last(&self) -> Result<Option<u64>, IngestError> {
        let (_, info) = self.of.look_up().await?;
        Ok(Some(info.state.last_sequence).filter(|last| *last > 0))
    }

    pub(crate) async fn read_after(&mut self, position: Option<u64>) -> Result<Batch, IngestError> {
        let mut place = match self.at.take() {
            Some(place) if place.position == position => place,
            _ => self.place(position).await?,
        };
        // If it fails, the place is lost, and the next call makes another.
        let batch = read(&mut place).await.map_err(|reason| self.failed(reason))?;
        self.at = Some(place);
        Ok(batch)
    }

    fn failed(&self, reason: String) -> IngestError {
        IngestError::Read { source_name: self.of.shown(), reason }
    }

    async fn place(&self, position: Option<u64>) -> Result<Place, IngestError> {
        let (stream, info) = self.of.look_up().await?;
        if info.created.unix_timestamp_nanos() != self.created {
            return Err(IngestError::Replaced { source_name: self.of.shown() });
        }
        let (first, end) = (info.state.first_sequence, info.state.last_sequence);
        if let Some(position) = position.filter(|position| *position > end) {
            return Err(IngestError::Rewound { source_name: self.of.shown(), position, end });
        }
        let next = position.map_or(1, |position| position + 1);
        let config = Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: next },
            ack_policy: AckPolicy::None,
            filter_subjects: self.subjects.clone(),
            inactive_threshold: CONSUMER_IDLE_MAX,
            memory_storage: true,
            num_replicas: 1,
            ..Config::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| self.failed(error.to_string()))?;
        // The first reading of all begins where the stream does.
        let removed = position.map_or(0, |_| first.saturating_sub(next));
        let accounted = position.map(|position| position + removed);
        Ok(Place { consumer, next: 1, position, accounted, is_whole: self.subjects.is_empty(), removed })
    }
}

/// Reads what there is, or waits for one message.
async fn read(place: &mut Place) -> Result<Batch, String> {
    let mut batch = Batch { removed: std::mem::take(&mut place.removed), ..Batch::default() };
    let fetched = place.consumer.fetch().max_messages(MESSAGES_MAX).max_bytes(BYTES_MAX).messages().await;
    let found = take(place, &mut batch, fetched.map_err(|error| error.to_string())?).await;
    if !batch.messages.is_empty() {
        // What came before a failure was read; the next reading finds the failure.
        return Ok(batch);
    }
    // A message larger than what may be read at once is an error there, and comes alone here.
    if let Err(reason) = found {
        tracing::debug!(%reason, "nothing was fetched");
    }
    let awaited = place.consumer.batch().max_messages(1).expires(WAIT_MAX).messages().await;
    take(place, &mut batch, awaited.map_err(|error| error.to_string())?).await?;
    Ok(batch)
}

async fn take(place: &mut Place, batch: &mut Batch, mut messages: Messages) -> Result<(), String> {
    let until = tokio::time::Instant::now() + 3 * WAIT_MAX;
    loop {
        let next = tokio::time::timeout_at(until, messages.next()).await;
        let message = match next.map_err(|_| "the server does not answer".to_owned())? {
            None => return Ok(()),
            Some(message) => message.map_err(|error| error.to_string())?,
        };
        let info = message.info().map_err(|error| error.to_string())?;
        let (number, offset, behind) = (info.consumer_sequence, info.stream_sequence, info.pending);
        if number != place.next {
            return Err(format!("message {number} of the consumer came instead of {}", place.next));
        }
        let published = info.published.unix_timestamp_nanos() / 1_000_000;
        let timestamp = Timestamp(i64::try_from(published).unwrap_or_default());
        place.next += 1;
        place.position = Some(offset);
        if let Some(accounted) = place.accounted.replace(offset).filter(|_| place.is_whole) {
            batch.removed += offset.saturating_sub(accounted + 1);
        }
        batch.behind = behind;
        batch.messages.push(Message { offset, payload: Some(message.payload.to_vec()), timestamp });
    }
}
