//! What nodes ask each other: where the logs end that a node owns, and when it has what another one has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use celeris_model::LogId;
use celeris_storage::Storage;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};

use crate::hooks::Hooks;
use crate::log_state::Phase;
use crate::node::Node;
use crate::streams::short_name;

/// How long the owner of a log waits, at most, until the other nodes have synced it.
pub(crate) const SYNCED_WITHIN: Duration = Duration::from_millis(250);

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

/// What a node asks another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// Where the logs end that it owns: [`Tails`].
    Tails,
    /// An answer once it has applied the catalog up to this position, and that is in force.
    CatalogApplied(u64),
    /// An answer once it has applied this log up to the position, and synced it. By the index of the shard.
    Synced(u8, u64),
}

impl Question {
    pub(crate) fn encode(self) -> Bytes {
        serde_json::to_vec(&self).expect("numbers become JSON").into()
    }
}

/// Answers the questions of other nodes.
pub(crate) async fn answer(node: Arc<Node>, storage: Arc<Storage>, hooks: Arc<dyn Hooks>) {
    loop {
        match node.access.client.subscribe(node.names.questions(node.writer.node.as_str())).await {
            Ok(mut questions) => {
                while let Some(question) = questions.next().await {
                    let Some(reply) = question.reply else { continue };
                    let (node, storage, hooks) = (Arc::clone(&node), Arc::clone(&storage), Arc::clone(&hooks));
                    match serde_json::from_slice(&question.payload) {
                        Ok(Question::Tails) => {
                            let answer = serde_json::to_vec(&tails(&node)).expect("numbers become JSON");
                            send_answer(&node, reply, answer.into()).await;
                        }
                        Ok(Question::CatalogApplied(position)) => {
                            tokio::spawn(answer_applied(node, hooks, position, reply));
                        }
                        Ok(Question::Synced(shard, position)) => {
                            tokio::spawn(answer_synced(node, storage, (shard, position), reply));
                        }
                        Err(error) => tracing::warn!(%error, "a question of another node is not understood"),
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the questions of other nodes are not heard"),
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
    if tokio::time::timeout(node.options.timing.settle, applied).await.is_ok() {
        send_answer(&node, reply, Bytes::new()).await;
    }
}

/// Answers once a log is applied up to a position and synced, unless that takes too long.
async fn answer_synced(
    node: Arc<Node>,
    storage: Arc<Storage>,
    (shard, position): (u8, u64),
    reply: async_nats::Subject,
) {
    let Some((log, handle)) = node.logs.iter().find(|(log, _)| matches!(log, LogId::Shard(of) if of.index() == shard))
    else {
        return;
    };
    let synced = async {
        handle.state.wait_applied(position).await;
        node.sync(&storage).await;
        handle.state.durable() >= position
    };
    if tokio::time::timeout(SYNCED_WITHIN, synced).await == Ok(true) {
        send_answer(&node, reply, Bytes::new()).await;
    } else {
        tracing::debug!(%log, position, "the copy is not synced in time");
    }
}

async fn send_answer(node: &Node, reply: async_nats::Subject, answer: Bytes) {
    if let Err(error) = node.access.client.publish(reply, answer).await {
        tracing::debug!(%error, "a question of another node is not answered");
    }
}

/// Waits until the other live nodes have applied what this node has of the catalog, for a bounded time.
pub(crate) async fn settle(node: &Arc<Node>) {
    let question = Question::CatalogApplied(node.catalog().state.applied()).encode();
    let questions = node.live().into_iter().map(|heartbeat| {
        let subject = node.names.questions(heartbeat.node.as_str());
        node.access.client.request(subject, question.clone())
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
