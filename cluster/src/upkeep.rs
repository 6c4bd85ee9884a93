//! What a node does each second: it syncs its copies, asks owners where their logs end, and, for the
//! logs that it owns, trims and checks the streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use celeris_model::{LogId, NodeName};
use celeris_storage::{Storage, StorageError};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::beating::Tails;
use crate::chain::Cursor;
use crate::log_state::{Phase, Problem};
use crate::node::{LogHandle, Node};
use crate::streams::short_name;

/// Rounds of upkeep between two looks at the streams.
const ROUNDS_PER_LOOK: u64 = 5;

/// How long the answer of an owner may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until it is dropped.
pub(crate) async fn keep(node: Arc<Node>, storage: Arc<Storage>) {
    let mut interval = interval(node.options.timing.upkeep);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trimmed: BTreeMap<LogId, Instant> = BTreeMap::new();
    for round in 0_u64.. {
        interval.tick().await;
        sync(&node, &storage).await;
        node.set_full(matches!(storage.check_accepts(), Err(StorageError::StorageFull { .. })));
        ask_for_tails(&node).await;
        for (log, handle) in &node.logs {
            let name = short_name(*log);
            if let Some(staleness) = handle.state.staleness(node.options.timing.lease) {
                metrics::gauge!("celeris_cluster_staleness_seconds", "log" => name).set(staleness.as_secs_f64());
            }
            if round % ROUNDS_PER_LOOK == 0 && handle.state.phase() == Phase::Owning {
                let since = trimmed.entry(*log).or_insert_with(Instant::now);
                look(&node, *log, handle, since).await;
            }
        }
    }
}

/// Syncs the store, and notes which positions survive a power failure from then on.
async fn sync(node: &Node, storage: &Arc<Storage>) {
    let storage = Arc::clone(storage);
    let sync = move || {
        storage.health()?;
        storage.replica().ok_or(StorageError::Closed)?.sync()
    };
    let synced = tokio::task::spawn_blocking(sync).await;
    match synced {
        Ok(Ok(cursors)) => {
            for (log, cursor) in cursors {
                if let (Some(handle), Some(cursor)) = (node.logs.get(&log), Cursor::decode(&cursor)) {
                    handle.state.set_durable(cursor.sequence);
                }
            }
        }
        // The store takes no more writes, and other nodes can.
        Ok(Err(error)) => node.fail(&format!("the store fails: {error}")),
        Err(error) => tracing::error!(%error, "the copies are not synced"),
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
        let question = node.access.client.request(node.names.tails(owner.as_str()), bytes::Bytes::new());
        let Ok(Ok(answer)) = tokio::time::timeout(ANSWER_TIMEOUT, question).await else { return };
        let Ok(tails) = serde_json::from_slice::<Tails>(&answer.payload) else { return };
        for log in logs {
            let state = &node.logs[&log].state;
            if let Some(tail) = tails.get(&short_name(log)) {
                let (applied, name) = (state.applied(), short_name(log));
                let lag = tail.sequence.saturating_sub(applied);
                metrics::gauge!("celeris_cluster_follower_lag_batches", "log" => name).set(lag as f64);
                // An owner of an earlier epoch does not know the end.
                if tail.epoch == state.cursor().epoch {
                    state.note_tail(asked, tail.sequence);
                }
            }
        }
    });
    futures_util::future::join_all(questions).await;
}

/// Checks the stream of an owned log, and trims what enough copies have synced.
async fn look(node: &Node, log: LogId, handle: &LogHandle, trimmed: &mut Instant) {
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
    let live = node.live();
    let of_others = live.iter().map(|other| other.logs.get(&name).map_or(0, |report| report.durable));
    let durable = of_others.clone().min().unwrap_or(u64::MAX).min(handle.state.durable());
    // The last of the trimmed stays, so that a stream never seems to be new.
    if live.len() + 1 < streams.copies_min || durable <= extent.first {
        return;
    }
    match handle.link.trim(durable).await {
        Ok(()) => {
            *trimmed = Instant::now();
            tracing::debug!(log = name, sequence = durable, "the stream is trimmed");
            metrics::gauge!("celeris_cluster_trimmed_sequence", "log" => name).set(durable as f64);
        }
        Err(error) => tracing::warn!(%error, "a stream is not trimmed"),
    }
}
