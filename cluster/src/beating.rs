//! Sends and hears heartbeats, and answers for the tails of the logs that this node owns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use celeris_model::LogId;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};

use crate::heartbeat::Heartbeat;
use crate::hooks::Hooks;
use crate::log_state::Phase;
use crate::node::Node;
use crate::streams::short_name;

/// Between attempts to subscribe.
const RETRY: Duration = Duration::from_millis(500);

/// The end of a log that a node owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tail {
    pub(crate) sequence: u64,
    /// How many milliseconds ago the node sent its last successful append: until then the log had nothing
    /// beyond. True of a deposed owner as well.
    pub(crate) confirmed_ms: u64,
}

/// The answer to a question for tails, by the short names of the logs.
pub(crate) type Tails = BTreeMap<String, Tail>;

/// Sends a heartbeat in each interval, and whenever one is asked for.
pub(crate) async fn send(node: Arc<Node>) {
    let mut interval = interval(node.options.timing.heartbeat);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = node.beat.notified() => {}
        }
        send_one(&node).await;
    }
}

pub(crate) async fn send_one(node: &Node) {
    let heartbeat = node.next_heartbeat();
    publish(&node.access.client, node.names.heartbeat(node.writer.node.as_str()), &heartbeat).await;
}

pub(crate) async fn publish(client: &Client, subject: String, heartbeat: &Heartbeat) {
    let message = serde_json::to_vec(heartbeat).expect("numbers and texts become JSON");
    if let Err(error) = client.publish(subject, message.into()).await {
        tracing::debug!(%error, "a heartbeat is not sent");
    }
}

/// Hears the heartbeats of all nodes.
pub(crate) async fn hear(node: Arc<Node>) {
    loop {
        match node.access.client.subscribe(node.names.heartbeat("*")).await {
            Ok(mut heartbeats) => {
                while let Some(message) = heartbeats.next().await {
                    match serde_json::from_slice::<Heartbeat>(&message.payload) {
                        Ok(heartbeat) if *message.subject == node.names.heartbeat(heartbeat.node.as_str()) => {
                            node.hear(&heartbeat);
                        }
                        Ok(_) => tracing::warn!(subject = %message.subject, "a heartbeat of another node's name"),
                        Err(error) => tracing::warn!(%error, subject = %message.subject, "no heartbeat"),
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "heartbeats are not heard"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Answers other nodes that ask where the logs end which this node owns; and those that name a position of the
/// catalog, once this node has applied it.
pub(crate) async fn answer(node: Arc<Node>, hooks: Arc<dyn Hooks>) {
    loop {
        match node.access.client.subscribe(node.names.tails(node.writer.node.as_str())).await {
            Ok(mut questions) => {
                while let Some(question) = questions.next().await {
                    let Some(reply) = question.reply else { continue };
                    if let Some(position) = str::from_utf8(&question.payload).ok().and_then(|text| text.parse().ok()) {
                        tokio::spawn(answer_applied(Arc::clone(&node), Arc::clone(&hooks), position, reply));
                        continue;
                    }
                    let answer = serde_json::to_vec(&tails(&node)).expect("numbers become JSON");
                    if let Err(error) = node.access.client.publish(reply, answer.into()).await {
                        tracing::debug!(%error, "a question for tails is not answered");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "questions for tails are not heard"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Answers once the catalog is applied up to `position` and in force, unless that takes too long.
async fn answer_applied(node: Arc<Node>, hooks: Arc<dyn Hooks>, position: u64, reply: async_nats::Subject) {
    let applied = async {
        node.catalog().state.wait_applied(position).await;
        // A panic of the hook is reported by the task.
        let _ = tokio::task::spawn_blocking(move || hooks.settle(LogId::Catalog)).await;
    };
    if tokio::time::timeout(node.options.timing.settle, applied).await.is_ok()
        && let Err(error) = node.access.client.publish(reply, bytes::Bytes::new()).await
    {
        tracing::debug!(%error, "a question for a position is not answered");
    }
}

/// Waits until the other live nodes have applied what this node has of the catalog, for a bounded time.
pub(crate) async fn settle(node: &Arc<Node>) {
    let position = node.catalog().state.applied().to_string();
    let questions = node.live().into_iter().map(|heartbeat| {
        let subject = node.names.tails(heartbeat.node.as_str());
        node.access.client.request(subject, position.clone().into())
    });
    let answers = futures_util::future::join_all(questions);
    if tokio::time::timeout(node.options.timing.settle, answers).await.is_err() {
        tracing::debug!("not all nodes have applied the catalog in time");
    }
}

fn tails(node: &Node) -> Tails {
    let owned = node.logs.iter().filter(|(_, handle)| handle.state.phase() == Phase::Owning);
    owned
        .filter_map(|(log, handle)| {
            // The age first: if an append comes in between, the end is that of the later one.
            let age = handle.state.staleness(node.options.timing.lease)?;
            let confirmed_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
            Some((short_name(*log), Tail { sequence: handle.state.cursor().sequence, confirmed_ms }))
        })
        .collect()
}
