//! Appending to a stream on the condition that nothing else was appended.
//!
//! The server accepts a message only if the last sequence is the expected one. An attempt whose
//! outcome is not known is repeated unchanged until it is: with the same condition it can land at
//! one position only. That the position is taken is known when its message is read there, from any
//! copy; that nothing is there proves nothing, since another attempt may be on its way.

use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use celeris_storage::SPANS;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument;

use crate::streams::{Link, short_name};

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the stream.
    Appended {
        /// When it was first sent: no other message was at its position then.
        sent: Instant,
    },
    /// Another message is at its position.
    Taken(Bytes),
    /// Its position was trimmed meanwhile, so what is there cannot be known.
    Trimmed,
    /// The message is larger than the server takes, and is not in the stream.
    TooLarge,
    /// The node stops; the outcome is not known.
    Aborted,
}

/// After this time without an answer, an append is reported.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// What is known of a position.
enum Fate {
    Here,
    Other(Bytes),
    Trimmed,
}

/// How appends are repeated.
#[derive(Clone)]
pub(crate) struct Appender {
    pub(crate) link: Link,
    pub(crate) retry_wait: Duration,
    /// Becomes true when the node gives up.
    pub(crate) abort: watch::Receiver<bool>,
    pub(crate) log: celeris_model::LogId,
    /// The largest message of the stream.
    pub(crate) bytes_max: usize,
}

impl Appender {
    /// Appends `message` after position `last`, however long that takes.
    pub(crate) async fn append(&self, last: u64, message: &Bytes) -> Outcome {
        let name = short_name(self.log);
        if message.len() > self.bytes_max {
            return Outcome::TooLarge;
        }
        let mut abort = self.abort.clone();
        let sent = Instant::now();
        let mut is_ambiguous = false;
        let span = tracing::info_span!(target: SPANS, "log.replicate", celeris.log = name.as_str());
        let outcome = tokio::select! {
            outcome = self.repeat(last, message, &mut is_ambiguous).instrument(span) => outcome,
            _ = abort.wait_for(|abort| *abort) => None,
        };
        if is_ambiguous {
            metrics::counter!("celeris_cluster_ambiguous_total", "log" => name.clone()).increment(1);
        }
        match outcome {
            Some(Fate::Here) => {
                metrics::histogram!("celeris_cluster_append_seconds", "log" => name).record(sent.elapsed());
                Outcome::Appended { sent }
            }
            Some(Fate::Other(other)) => Outcome::Taken(other),
            Some(Fate::Trimmed) => Outcome::Trimmed,
            None => Outcome::Aborted,
        }
    }

    /// Repeats the append until its fate is known.
    async fn repeat(&self, last: u64, message: &Bytes, is_ambiguous: &mut bool) -> Option<Fate> {
        let patience = Instant::now() + WARN_AFTER;
        let mut has_warned = false;
        loop {
            let publish = PublishMessage::build().payload(message.clone()).expected_last_sequence(last);
            let acknowledged = async {
                let ack = self.link.access.appends.send_publish(self.link.subject.clone(), publish).await?;
                ack.await
            };
            // The bound of the context does not cover the queue of a client that is not connected.
            let bound = self.link.access.appends_timeout();
            match tokio::time::timeout(bound, acknowledged).await {
                Ok(Ok(ack)) if ack.sequence == last + 1 => return Some(Fate::Here),
                Ok(Ok(ack)) => tracing::error!(stream = self.link.stream, last, got = ack.sequence, "wrong position"),
                Ok(Err(error)) if error.kind() == PublishErrorKind::WrongLastSequence => {
                    if let Some(found) = self.link.message(last + 1).await {
                        let is_ours = found.payload == message;
                        return Some(if is_ours { Fate::Here } else { Fate::Other(found.payload) });
                    }
                    if self.link.extent().await.is_ok_and(|extent| extent.first > last + 1) {
                        return Some(Fate::Trimmed);
                    }
                }
                Ok(Err(error)) => tracing::debug!(stream = self.link.stream, %error, "an append is repeated"),
                Err(_) => tracing::debug!(stream = self.link.stream, "an append is repeated: no answer"),
            }
            if !has_warned && Instant::now() > patience {
                has_warned = true;
                tracing::warn!(stream = self.link.stream, "the NATS servers do not answer an append; it is repeated");
            }
            *is_ambiguous = true;
            tokio::time::sleep(self.retry_wait).await;
        }
    }
}
