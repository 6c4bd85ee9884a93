//! What a node does each second: it syncs its copies, asks owners where their logs end, and, for the
//! logs that it owns, confirms that, and trims and checks the streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use celeris_model::{LogId, NodeName, Shard};
use celeris_storage::{Replica, Storage, StorageError};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::chain::Cursor;
use crate::heartbeat::LogReport;
use crate::log_state::Problem;
use crate::node::{LogHandle, Node};
use crate::questions::{Question, SYNCED_WITHIN, Tails};
use crate::streams::short_name;
use crate::term::Term;

/// Rounds of upkeep between two looks at the streams.
const ROUNDS_PER_LOOK: u64 = 5;

/// A node that is paused for less finds the logs as far back as it needs them.
const HOLD_MAX: Duration = Duration::from_secs(60);

/// How long it may take to empty a log.
const CLEAR_WITHIN: Duration = Duration::from_secs(1);

/// How often it is looked whether a group that was appended is written, and how long between.
const GROUP_LOOKS: usize = 20;
const GROUP_LOOK: Duration = Duration::from_millis(1);

/// How long the answer of an owner may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn keep(node: Arc<Node>, storage: Arc<Storage>) {
    let mut interval = interval(node.options.timing.upkeep);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trimmed: BTreeMap<LogId, Instant> = BTreeMap::new();
    for round in 0_u64.. {
        interval.tick().await;
        node.sync(&storage).await;
        node.set_full(matches!(storage.check_accepts(), Err(StorageError::StorageFull { .. })));
        ask_for_tails(&node).await;
        for (log, handle) in &node.logs {
            let staleness = handle.state.staleness(node.options.timing.lease);
            if let Some(staleness) = staleness {
                metrics::gauge!("celeris_cluster_staleness_seconds", "log" => short_name(*log))
                    .set(staleness.as_secs_f64());
            }
            let Some(term) = handle.term.lock().clone() else { continue };
            if staleness.is_none_or(|staleness| staleness >= node.options.timing.renew) {
                term.renew();
            }
            if round % ROUNDS_PER_LOOK == 0 {
                let since = trimmed.entry(*log).or_insert_with(Instant::now);
                look(&node, &storage, (*log, handle, &term), since).await;
            }
        }
    }
}

/// Asks each owner where its logs end. What this copy has applied by then tells how old it is at most.
async fn ask_for_tails(node: &Arc<Node>) {
    let live = node.live();
    let mut owners: BTreeMap<NodeName, Vec<LogId>> = BTreeMap::new();
    for (log, handle) in &node.logs {
        let cursor = handle.state.cursor();
        if let Some(owner) = cursor.owner()
            && live.iter().any(|heartbeat| heartbeat.node == *owner)
        {
            owners.entry(owner.clone()).or_default().push(*log);
        }
    }
    let questions = owners.into_iter().map(|(owner, logs)| async move {
        let asked = Instant::now();
        let question = node.access.client.request(node.names.questions(owner.as_str()), Question::Tails.encode());
        let Ok(Ok(answer)) = tokio::time::timeout(ANSWER_TIMEOUT, question).await else { return };
        let Ok(tails) = serde_json::from_slice::<Tails>(&answer.payload) else { return };
        for log in logs {
            let state = &node.logs[&log].state;
            if let Some(tail) = tails.get(&short_name(log)) {
                let (applied, name) = (state.applied(), short_name(log));
                let lag = tail.sequence.saturating_sub(applied);
                metrics::gauge!("celeris_cluster_follower_lag_batches", "log" => name).set(lag as f64);
                if let Some(confirmed) = asked.checked_sub(Duration::from_millis(tail.confirmed_ms)) {
                    state.note_tail(confirmed, tail.sequence);
                }
            }
        }
    });
    futures_util::future::join_all(questions).await;
}

/// Checks the stream of an owned log, and trims what enough copies have synced.
async fn look(
    node: &Node,
    storage: &Arc<Storage>,
    (log, handle, term): (LogId, &LogHandle, &Term),
    trimmed: &mut Instant,
) {
    let name = short_name(log);
    let extent = match handle.link.extent().await {
        Ok(extent) => extent,
        Err(error) => {
            tracing::debug!(%error, "a stream is not looked at");
            return;
        }
    };
    metrics::gauge!("celeris_cluster_stream_bytes", "log" => name.clone()).set(extent.bytes as f64);
    metrics::gauge!("celeris_cluster_stream_interior_deletes", "log" => name.clone()).set(extent.deleted as f64);
    if extent.deleted > 0 {
        handle.state.report(Problem::Deleted { messages: extent.deleted });
    }
    let streams = &node.options.streams;
    if extent.bytes <= streams.trim_bytes && trimmed.elapsed() < streams.trim_delay {
        return;
    }
    if let LogId::Shard(shard) = log
        && extent.messages > 0
        && clear(node, storage, (shard, handle, term)).await
    {
        *trimmed = Instant::now();
        metrics::gauge!("celeris_cluster_trimmed_sequence", "log" => name).set((handle.state.applied() + 1) as f64);
        return;
    }
    let of_others = copies_of_others(node, log).into_iter().map(|(_, report)| report).collect();
    let enough = if extent.bytes > streams.bytes_max / 2 { Enough::Copies } else { Enough::All };
    let Some(durable) = durable_in_copies(of_others, handle.state.durable(), (streams.copies_min, enough)) else {
        return;
    };
    let first = extent.last.min(durable) + 1;
    if first <= extent.first {
        return;
    }
    match handle.link.trim(first).await {
        Ok(()) => {
            *trimmed = Instant::now();
            tracing::debug!(log = name, first, "the stream is trimmed");
            metrics::gauge!("celeris_cluster_trimmed_sequence", "log" => name).set(first as f64);
        }
        Err(error) => tracing::warn!(%error, "a stream is not trimmed"),
    }
}

/// Removes all messages of a log that no write comes in between: a server does not rewrite the file that it appends to,
/// and removes it with its last message. Writes wait meanwhile, for some milliseconds. Whether that was possible.
async fn clear(node: &Node, storage: &Arc<Storage>, of: (Shard, &LogHandle, &Term)) -> bool {
    // Without an answer of the servers all other work of this task would wait too.
    tokio::time::timeout(CLEAR_WITHIN, clear_held(node, storage, of)).await.unwrap_or(false)
}

async fn clear_held(node: &Node, storage: &Arc<Storage>, (shard, handle, term): (Shard, &LogHandle, &Term)) -> bool {
    let log = LogId::Shard(shard);
    let Some(replica) = storage.replica() else { return false };
    let Ok(noted) = replica.note_end(shard) else { return false };
    if noted.durable().await.is_err() {
        return false;
    }
    let tail = term.hold().await;
    let end = tail.sequence;
    if !ends_at(&replica, log, end).await {
        return false;
    }
    let mut others = copies_of_others(node, log);
    others.retain(|(_, report)| !report.is_stuck);
    if others.len() + 1 < node.options.streams.copies_min {
        return false;
    }
    let question = Question::Synced(shard.index(), end).encode();
    let asked = others.iter().map(|(other, _)| {
        let asked = node.access.client.request(node.names.questions(other.as_str()), question.clone());
        async { tokio::time::timeout(SYNCED_WITHIN, asked).await.is_ok_and(|answer| answer.is_ok()) }
    });
    let (answers, ()) = tokio::join!(futures_util::future::join_all(asked), node.sync(storage));
    if !answers.into_iter().all(|is_synced| is_synced) || handle.state.durable() < end {
        return false;
    }
    match handle.link.trim(end + 1).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "a stream is not trimmed");
            false
        }
    }
}

/// The copies of a log that other nodes have which run, start, or may only be paused: it is kept for them.
fn copies_of_others(node: &Node, log: LogId) -> Vec<(NodeName, LogReport)> {
    let (name, hold) = (short_name(log), HOLD_MAX.min(node.options.streams.trim_delay));
    let members = node.members.lock();
    let heard = members.heard_within(Instant::now(), hold);
    heard.map(|other| (other.node.clone(), other.logs.get(&name).copied().unwrap_or_default())).collect()
}

/// Whether this node's copy ends at the end of the log, at the latest once the last group that was appended is written.
async fn ends_at(replica: &Replica<'_>, log: LogId, end: u64) -> bool {
    for _ in 0..GROUP_LOOKS {
        let cursor = replica.cursor(log).ok().flatten().and_then(|cursor| Cursor::decode(&cursor));
        if cursor.is_some_and(|cursor| cursor.sequence == end) {
            return true;
        }
        tokio::time::sleep(GROUP_LOOK).await;
    }
    false
}

/// How many copies must have synced what is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enough {
    /// Those of all live nodes.
    All,
    /// The least number that is allowed: a stream that is full takes no more writes, so one that is filling up does not
    /// wait for a node that is far behind.
    Copies,
}

/// The position of a log up to which enough copies have synced it: this node's, and [`copies_of_others`]. One that
/// has stopped following does not count: it needs the copy of another node anyway.
fn durable_in_copies(of_others: Vec<LogReport>, own: u64, (copies_min, enough): (usize, Enough)) -> Option<u64> {
    let of_others = of_others.into_iter().filter(|report| !report.is_stuck).map(|report| report.durable);
    let mut durable: Vec<u64> = of_others.chain([own]).collect();
    durable.sort_unstable_by(|a, b| b.cmp(a));
    let least = copies_min.max(1);
    let counted = match enough {
        Enough::All => least.max(durable.len()),
        Enough::Copies => least,
    };
    durable.get(counted - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_trimmed_to_what_enough_copies_have() {
        let report = |durable, is_stuck| LogReport { durable, is_stuck, ..LogReport::default() };
        let durable = |others: &[(u64, bool)], copies_min, enough| {
            let others = others.iter().map(|(durable, is_stuck)| report(*durable, *is_stuck)).collect();
            durable_in_copies(others, 100, (copies_min, enough))
        };
        assert_eq!(durable(&[(90, false), (70, false)], 2, Enough::All), Some(70));
        assert_eq!(durable(&[(120, false), (110, false)], 2, Enough::All), Some(100));
        // A node that is stuck holds nothing up, and is no copy either.
        assert_eq!(durable(&[(90, false), (3, true)], 2, Enough::All), Some(90));
        assert_eq!(durable(&[(90, true), (3, true)], 2, Enough::All), None);
        assert_eq!(durable(&[], 2, Enough::All), None);
        assert_eq!(durable(&[], 0, Enough::All), Some(100));
        // A node that is behind holds nothing up once the stream is filling up, if enough others are not.
        assert_eq!(durable(&[(90, false), (3, false)], 2, Enough::Copies), Some(90));
        assert_eq!(durable(&[(3, false)], 2, Enough::Copies), Some(3));
    }
}
