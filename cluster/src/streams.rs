//! The streams of a cluster: one of its incarnations, and one for each log of an incarnation.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode, context, stream};
use celeris_model::LogId;
use tokio::time::Instant;

use crate::error::ClusterError;
use crate::options::{StreamOptions, Timing};

/// How long requests to JetStream, other than appends, may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// How long what a node needs to start is tried: servers that have just started elect leaders first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const START_WARN: Duration = Duration::from_secs(5);
const START_RETRY: Duration = Duration::from_millis(300);

/// How long a stream that is to be there is looked for.
const FIND_TIMEOUT: Duration = Duration::from_secs(5);

/// The names of an incarnation's streams and subjects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) cluster: String,
    pub(crate) incarnation: u64,
}

impl Names {
    /// The stream of the incarnations, which is also its subject with dots.
    pub(crate) fn incarnations(cluster: &str) -> (String, String) {
        (format!("celeris-{cluster}-incarnations"), format!("celeris.{cluster}.incarnations"))
    }

    /// The cluster whose stream of incarnations has this name.
    pub(crate) fn cluster_of(stream: &str) -> Option<&str> {
        stream.strip_prefix("celeris-")?.strip_suffix("-incarnations")
    }

    /// The incarnation whose log has this stream, if it is one of this cluster.
    pub(crate) fn incarnation_of(cluster: &str, stream: &str) -> Option<u64> {
        let (incarnation, log) =
            stream.strip_prefix("celeris-")?.strip_prefix(cluster)?.strip_prefix('-')?.split_once('-')?;
        let is_shard = || log.strip_prefix('s').is_some_and(|shard| shard.parse::<u8>().is_ok());
        (log == "catalog" || is_shard()).then(|| incarnation.parse().ok())?
    }

    pub(crate) fn stream(&self, log: LogId) -> String {
        format!("celeris-{}-{}-{}", self.cluster, self.incarnation, short_name(log))
    }

    pub(crate) fn subject(&self, log: LogId) -> String {
        format!("celeris.{}.{}.log.{}", self.cluster, self.incarnation, short_name(log))
    }

    /// The stream of a log.
    pub(crate) fn link(&self, access: &Access, log: LogId) -> Link {
        Link { access: access.clone(), stream: self.stream(log), subject: self.subject(log) }
    }

    /// Where a node, or with `*` each, publishes its heartbeats.
    pub(crate) fn heartbeat(&self, node: &str) -> String {
        format!("celeris.{}.{}.heartbeat.{node}", self.cluster, self.incarnation)
    }

    /// Where the nodes of all incarnations of a cluster publish their heartbeats.
    pub(crate) fn all_heartbeats(cluster: &str) -> String {
        format!("celeris.{cluster}.*.heartbeat.*")
    }

    /// Where a node takes the questions of others.
    pub(crate) fn questions(&self, node: &str) -> String {
        format!("celeris.{}.{}.questions.{node}", self.cluster, self.incarnation)
    }
}

/// `catalog`, or `s00` to `s63`: a log's name in streams, heartbeats and metrics.
#[must_use]
pub fn short_name(log: LogId) -> String {
    match log {
        LogId::Catalog => "catalog".to_owned(),
        LogId::Shard(shard) => format!("s{:02}", shard.index()),
    }
}

/// Access to JetStream, with its two limits of time.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) client: Client,
    ack_timeout: Duration,
    /// For appends.
    pub(crate) appends: Context,
    /// For everything else.
    pub(crate) requests: Context,
}

impl Access {
    pub(crate) fn new(client: &Client, timing: &Timing) -> Self {
        // The context's timeout is what bounds an acknowledgement that is waited for.
        let with = |timeout| context::ContextBuilder::new().timeout(timeout).build(client.clone());
        Self {
            client: client.clone(),
            ack_timeout: timing.ack_timeout,
            appends: with(timing.ack_timeout),
            requests: with(REQUEST_TIMEOUT),
        }
    }

    /// After this time an append has no answer.
    pub(crate) fn appends_timeout(&self) -> Duration {
        self.ack_timeout
    }
}

/// One stream of one subject.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) access: Access,
    pub(crate) stream: String,
    pub(crate) subject: String,
}

/// What is known of a stream at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages missing in between.
    pub(crate) deleted: u64,
}

impl Link {
    /// Creates the stream unless it exists.
    pub(crate) async fn create(&self, options: &StreamOptions) -> Result<(), ClusterError> {
        let config = stream::Config {
            name: self.stream.clone(),
            subjects: vec![self.subject.clone()],
            num_replicas: options.replicas,
            storage: stream::StorageType::File,
            discard: stream::DiscardPolicy::New,
            max_bytes: i64::try_from(options.bytes_max).unwrap_or(i64::MAX),
            max_message_size: i32::try_from(options.message_bytes_max).unwrap_or(i32::MAX),
            // Messages carry no id; the window is the smallest that servers take.
            duplicate_window: Duration::from_millis(100),
            deny_delete: true,
            allow_direct: true,
            ..stream::Config::default()
        };
        patiently(async || {
            let created = self.access.requests.get_or_create_stream(config.clone()).await;
            created.map(|_| ()).map_err(|error| self.failed("create", error.to_string()))
        })
        .await
    }

    /// Whether the servers have the stream.
    pub(crate) async fn exists(&self) -> Result<bool, ClusterError> {
        let started = Instant::now();
        let is_missing = |error: &GetStreamError| {
            let GetStreamErrorKind::JetStream(problem) = error.kind() else { return false };
            problem.error_code() == ErrorCode::STREAM_NOT_FOUND
        };
        patiently(async || match self.access.requests.get_stream(&self.stream).await {
            Ok(_) => Ok(true),
            Err(error) if is_missing(&error) && started.elapsed() > FIND_TIMEOUT => Ok(false),
            Err(error) => Err(self.failed("find", error.to_string())),
        })
        .await
    }

    /// [`Link::extent`], tried for as long as a start may take.
    pub(crate) async fn extent_at_start(&self) -> Result<Extent, ClusterError> {
        patiently(async || self.extent().await).await
    }

    pub(crate) async fn handle(&self) -> Result<stream::Stream<()>, ClusterError> {
        let found = self.access.requests.get_stream_no_info(&self.stream).await;
        found.map_err(|error| self.failed("find", error.to_string()))
    }

    /// What the leader says of the stream. A deposed leader may say less than there is.
    pub(crate) async fn extent(&self) -> Result<Extent, ClusterError> {
        let info = self.handle().await?.get_info().await;
        let state = info.map_err(|error| self.failed("read the state of", error.to_string()))?.state;
        Ok(Extent {
            first: state.first_sequence,
            last: state.last_sequence,
            messages: state.messages,
            bytes: state.bytes,
            deleted: state.deleted_count.unwrap_or(0),
        })
    }

    /// A text that the stream is marked with.
    pub(crate) async fn metadata(&self, name: &str) -> Result<Option<String>, ClusterError> {
        patiently(async || {
            let info = self.handle().await?.get_info().await;
            let config = info.map_err(|error| self.failed("read the settings of", error.to_string()))?.config;
            Ok(config.metadata.get(name).cloned())
        })
        .await
    }

    /// Marks the stream with a text, or takes it away.
    pub(crate) async fn set_metadata(&self, name: &str, text: Option<&str>) -> Result<(), ClusterError> {
        patiently(async || {
            let info = self.handle().await?.get_info().await;
            let mut config = info.map_err(|error| self.failed("read the settings of", error.to_string()))?.config;
            match text {
                Some(text) => drop(config.metadata.insert(name.to_owned(), text.to_owned())),
                None => drop(config.metadata.remove(name)),
            }
            let updated = self.access.requests.update_stream(&config).await;
            updated.map(|_| ()).map_err(|error| self.failed("mark", error.to_string()))
        })
        .await
    }

    /// Removes the messages before `sequence`.
    pub(crate) async fn trim(&self, sequence: u64) -> Result<(), ClusterError> {
        let purged = self.handle().await?.purge().sequence(sequence).await;
        purged.map(|_| ()).map_err(|error| self.failed("trim", error.to_string()))
    }

    /// The message at this position, from the leader or any copy; `None` says nothing: it may be on
    /// its way.
    pub(crate) async fn message(&self, sequence: u64) -> Option<jetstream::message::StreamMessage> {
        let stream = self.handle().await.ok()?;
        match stream.get_raw_message(sequence).await {
            Ok(message) => Some(message),
            Err(_) => stream.direct_get(sequence).await.ok(),
        }
    }

    fn failed(&self, action: &'static str, reason: String) -> ClusterError {
        ClusterError::Stream { action, stream: self.stream.clone(), reason }
    }
}

/// Tries something until it succeeds or [`START_TIMEOUT`] has passed.
async fn patiently<T>(attempt: impl AsyncFn() -> Result<T, ClusterError>) -> Result<T, ClusterError> {
    let started = Instant::now();
    let mut has_warned = false;
    loop {
        match attempt().await {
            Err(error) if started.elapsed() < START_TIMEOUT => {
                if !has_warned && started.elapsed() > START_WARN {
                    tracing::warn!("{error}; tried again, for at most {} s", START_TIMEOUT.as_secs());
                    has_warned = true;
                }
                tokio::time::sleep(START_RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::Shards;

    use super::*;

    #[test]
    fn streams_of_logs_tell_their_incarnation() {
        let of = |stream: &str| Names::incarnation_of("main", stream);
        assert_eq!((of("celeris-main-3-s07"), of("celeris-main-12-catalog")), (Some(3), Some(12)));
        for other in [
            "celeris-main-incarnations",
            "celeris-main-2-1-s00",
            "celeris-main-eu-1-s00",
            "celeris-mainly-1-s00",
            "main-1-s00",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn the_logs_of_incarnations_have_streams_of_their_own() {
        let names = Names { cluster: "main".to_owned(), incarnation: 3 };
        let shard = LogId::Shard(Shards::new(8).unwrap().get(7).unwrap());
        assert_eq!(names.stream(LogId::Catalog), "celeris-main-3-catalog");
        assert_eq!(names.stream(shard), "celeris-main-3-s07");
        assert_eq!(names.subject(shard), "celeris.main.3.log.s07");
        assert_ne!(names.heartbeat("*"), names.questions("*"));
    }
}
