//! What the tasks of a node share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use celeris_model::{ClusterView, LogId, NodeName, Placement};
use celeris_storage::{Storage, StorageError};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::batch::{FORMAT, Writer};
use crate::chain::Cursor;
use crate::heartbeat::{Heartbeat, LogReport};
use crate::log_state::{LogState, Phase, Wish};
use crate::log_task::TermSlot;
use crate::members::{Heard, Members};
use crate::options::ClusterOptions;
use crate::streams::{Access, Link, Names, short_name};

/// A log of the node.
pub(crate) struct LogHandle {
    pub(crate) state: Arc<LogState>,
    pub(crate) term: Arc<TermSlot>,
    pub(crate) link: Link,
}

pub(crate) struct Node {
    pub(crate) options: ClusterOptions,
    pub(crate) names: Names,
    pub(crate) writer: Writer,
    pub(crate) access: Access,
    pub(crate) logs: BTreeMap<LogId, LogHandle>,
    pub(crate) members: Arc<Mutex<Members>>,
    pub(crate) view: watch::Sender<ClusterView>,
    pub(crate) is_draining: AtomicBool,
    /// The disk has no room for further changes.
    is_full: AtomicBool,
    pub(crate) is_stopped: AtomicBool,
    counter: Arc<AtomicU64>,
    pub(crate) ready: Mutex<Vec<String>>,
    /// Asks for a heartbeat at once.
    pub(crate) beat: Notify,
    /// Why the node must end.
    pub(crate) failure: watch::Sender<Option<String>>,
}

/// What a node is made of.
pub(crate) struct NodeParts {
    pub(crate) options: ClusterOptions,
    pub(crate) names: Names,
    pub(crate) writer: Writer,
    pub(crate) access: Access,
    pub(crate) logs: BTreeMap<LogId, LogHandle>,
    pub(crate) view: watch::Sender<ClusterView>,
    /// Counts the heartbeats of the process.
    pub(crate) counter: Arc<AtomicU64>,
}

impl Node {
    pub(crate) fn new(parts: NodeParts) -> Self {
        let NodeParts { options, names, writer, access, logs, view, counter } = parts;
        let members = Arc::new(Mutex::new(Members::new(writer.clone(), options.timing.dead_after)));
        Self {
            options,
            names,
            writer,
            access,
            logs,
            members,
            view,
            is_draining: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            counter,
            ready: Mutex::default(),
            beat: Notify::new(),
            failure: watch::Sender::new(None),
        }
    }

    /// Whether other nodes are to own the logs, if there are any.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed) || self.is_full.load(Ordering::Relaxed)
    }

    /// Notes whether the disk has room for changes. As long as it has none, the node owns nothing that
    /// another one can own.
    pub(crate) fn set_full(&self, is_full: bool) {
        if self.is_full.swap(is_full, Ordering::Relaxed) != is_full {
            tracing::warn!(is_full, "the logs of this node are placed again, by the room on its disk");
            self.beat.notify_one();
        }
    }

    pub(crate) fn catalog(&self) -> &LogHandle {
        &self.logs[&LogId::Catalog]
    }

    /// What this node says of itself, with the next counter.
    pub(crate) fn next_heartbeat(&self) -> Heartbeat {
        let placement = self.view.borrow().placement.clone();
        let is_coordinator = self.catalog().state.phase() == Phase::Owning;
        Heartbeat {
            node: self.writer.node.clone(),
            process: self.writer.process,
            counter: self.counter.fetch_add(1, Ordering::Relaxed) + 1,
            url: self.options.url.clone(),
            formats: vec![FORMAT],
            is_starting: false,
            is_draining: self.is_draining(),
            is_stopped: self.is_stopped.load(Ordering::Relaxed),
            logs: self.logs.iter().map(|(log, handle)| (short_name(*log), report(&handle.state))).collect(),
            ready: self.ready.lock().clone(),
            placement: is_coordinator.then_some(placement),
        }
    }

    /// Takes in what a node says of itself.
    pub(crate) fn hear(&self, heartbeat: &Heartbeat) {
        match self.members.lock().hear(Instant::now(), heartbeat.clone()) {
            Heard::New => {}
            Heard::Nothing => return,
            Heard::NameTakenByNewer => {
                tracing::error!(node = %self.writer.node, "another process with the name of this node was started");
                return;
            }
            Heard::NameTakenByOlder => {
                let node = &self.writer.node;
                self.fail(&format!("another process is node {node} of this cluster; this one gives its logs up"));
                return;
            }
        }
        self.adopt_of(heartbeat);
        for (log, handle) in &self.logs {
            let Some(epoch) = heartbeat.logs.get(&short_name(*log)).and_then(|report| report.epoch) else { continue };
            let term = handle.term.lock().clone();
            // Another owns it: an append finds that out.
            if let Some(term) = term
                && epoch > handle.state.cursor().epoch
            {
                tokio::spawn(async move { term.probe().await });
            }
        }
    }

    /// Adopts the placement of a heartbeat if its node is the coordinator, as far as the catalog was read. A node that
    /// reads the catalog no further takes it from any node that has one.
    pub(crate) fn adopt_of(&self, heartbeat: &Heartbeat) {
        let Some(placement) = &heartbeat.placement else { return };
        let (cursor, phase) = (self.catalog().state.cursor(), self.catalog().state.phase());
        let is_coordinator = cursor.owner() == Some(&heartbeat.node) && cursor.epoch == placement.revision.epoch;
        if is_coordinator || phase == Phase::Stuck {
            self.adopt(placement);
        }
    }

    /// Keeps a placement if it is newer than the known one.
    pub(crate) fn adopt(&self, placement: &Placement) {
        self.view.send_if_modified(|view| {
            let is_newer = placement.revision > view.placement.revision;
            if is_newer {
                view.placement = placement.clone();
                metrics::gauge!("celeris_cluster_placement_epoch").set(placement.revision.epoch as f64);
                metrics::gauge!("celeris_cluster_placement_number").set(placement.revision.number as f64);
            }
            is_newer
        });
    }

    /// Publishes which logs this node owns.
    pub(crate) fn publish_owned(&self) {
        let owned: BTreeSet<LogId> =
            self.logs.iter().filter(|(_, handle)| handle.state.phase() == Phase::Owning).map(|(log, _)| *log).collect();
        let shards = owned.iter().filter(|log| **log != LogId::Catalog).count();
        metrics::gauge!("celeris_cluster_owned_shards").set(shards as f64);
        let is_changed = self.view.send_if_modified(|view| {
            let is_changed = view.owned != owned;
            view.owned = owned;
            is_changed
        });
        if is_changed {
            self.beat.notify_one();
        }
    }

    /// Syncs the store, and notes which positions survive a power failure from then on.
    pub(crate) async fn sync(&self, storage: &Arc<Storage>) {
        let storage = Arc::clone(storage);
        let sync = move || {
            storage.health()?;
            storage.replica().ok_or(StorageError::Closed)?.sync()
        };
        let synced = tokio::task::spawn_blocking(sync).await;
        match synced {
            Ok(Ok(cursors)) => {
                for (log, cursor) in cursors {
                    if let (Some(handle), Some(cursor)) = (self.logs.get(&log), Cursor::decode(&cursor)) {
                        handle.state.set_durable(cursor.sequence);
                    }
                }
            }
            // The store takes no more writes, and other nodes can.
            Ok(Err(error)) => self.fail(&format!("the store fails: {error}")),
            Err(error) => tracing::error!(%error, "the copies are not synced"),
        }
    }

    /// Gives all logs up for good, and says why.
    pub(crate) fn fail(&self, failure: &str) {
        let is_first = self.failure.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert_with(|| failure.to_owned());
            is_first
        });
        if is_first {
            tracing::error!("{failure}");
            self.is_draining.store(true, Ordering::Relaxed);
            self.stop_logs();
        }
    }

    /// Gives all logs up.
    pub(crate) fn stop_logs(&self) {
        for handle in self.logs.values() {
            handle.state.wish.send_replace(Wish::Stop);
        }
    }

    /// The other live nodes, with what they said last.
    pub(crate) fn live(&self) -> Vec<Heartbeat> {
        self.members.lock().live(Instant::now()).cloned().collect()
    }

    pub(crate) fn is_self(&self, node: &NodeName) -> bool {
        *node == self.writer.node
    }
}

/// What this node says of its copy of a log.
pub(crate) fn report(state: &LogState) -> LogReport {
    let (cursor, phase) = (state.cursor(), state.phase());
    let owns = phase == Phase::Owning;
    LogReport {
        applied: cursor.sequence,
        durable: state.durable(),
        epoch: owns.then_some(cursor.epoch),
        tail: owns.then_some(cursor.sequence),
        is_stuck: phase == Phase::Stuck,
    }
}
