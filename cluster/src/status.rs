//! The state of the cluster, as this node sees it.

use std::collections::BTreeMap;

use celeris_model::{ClusterView, LogId, NodeName, PlacementRevision};
use serde::Serialize;
use tokio::time::Instant;

use crate::heartbeat::LogReport;
use crate::log_state::{Phase, Problem};
use crate::node::{Node, report};
use crate::streams::short_name;

/// What a node knows of its cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterStatus {
    pub cluster: String,
    pub incarnation: u64,
    /// The node that tells this.
    pub node: NodeName,
    /// The revision of the placement that it knows.
    pub revision: PlacementRevision,
    pub coordinator: Option<NodeName>,
    /// All nodes ever heard, and this one.
    pub nodes: BTreeMap<NodeName, NodeStatus>,
    /// By their short names.
    pub logs: BTreeMap<String, LogStatus>,
    /// Why this node must end.
    pub failure: Option<String>,
}

/// A node of the cluster, by its last heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    pub is_live: bool,
    /// Whether its process runs, and does not take part yet.
    pub is_starting: bool,
    pub is_draining: bool,
    pub url: String,
    pub ready: Vec<String>,
    pub logs: BTreeMap<String, LogReport>,
}

/// A log, as this node's copy has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogStatus {
    pub phase: Phase,
    /// The node that is to own it.
    pub placed: Option<NodeName>,
    /// The node that owns it, as far as it was read.
    pub owner: Option<NodeName>,
    pub epoch: u64,
    pub applied: u64,
    pub durable: u64,
    /// The batches that this copy lacks, by the last heartbeat of the owner; `None` while none is heard.
    pub lag: Option<u64>,
    /// How old this copy is at most, in seconds; `None` if that is not known.
    pub staleness_seconds: Option<f64>,
    pub problem: Option<Problem>,
}

pub(crate) fn of(node: &Node) -> ClusterStatus {
    let view: ClusterView = node.view.borrow().clone();
    let mut nodes: BTreeMap<NodeName, NodeStatus> = node
        .members
        .lock()
        .all(Instant::now())
        .map(|(heartbeat, is_running)| {
            let status = NodeStatus {
                is_live: is_running && !heartbeat.is_starting,
                is_starting: is_running && heartbeat.is_starting,
                is_draining: heartbeat.is_draining,
                url: heartbeat.url.clone(),
                ready: heartbeat.ready.clone(),
                logs: heartbeat.logs.clone(),
            };
            (heartbeat.node.clone(), status)
        })
        .collect();
    let own = NodeStatus {
        is_live: true,
        is_starting: false,
        is_draining: node.is_draining(),
        url: node.options.url.clone(),
        ready: node.ready.lock().clone(),
        logs: node.logs.iter().map(|(log, handle)| (short_name(*log), report(&handle.state))).collect(),
    };
    nodes.insert(node.writer.node.clone(), own);
    let logs = node.logs.keys().map(|log| (short_name(*log), of_log(node, &view, &nodes, *log))).collect();
    ClusterStatus {
        cluster: node.names.cluster.clone(),
        incarnation: node.names.incarnation,
        node: view.node,
        revision: view.placement.revision,
        coordinator: view.placement.coordinator,
        nodes,
        logs,
        failure: node.failure.borrow().clone(),
    }
}

fn of_log(node: &Node, view: &ClusterView, nodes: &BTreeMap<NodeName, NodeStatus>, log: LogId) -> LogStatus {
    let (state, name) = (&node.logs[&log].state, short_name(log));
    let cursor = state.cursor();
    let live = nodes.values().filter(|node| node.is_live);
    let tail = live.filter_map(|node| node.logs.get(&name)?.tail).max();
    LogStatus {
        phase: state.phase(),
        placed: view.placement.owner(log).cloned(),
        owner: cursor.owner().cloned(),
        epoch: cursor.epoch,
        applied: cursor.sequence,
        durable: state.durable(),
        lag: tail.map(|tail| tail.saturating_sub(cursor.sequence)),
        staleness_seconds: state.staleness(node.options.timing.lease).map(|staleness| staleness.as_secs_f64()),
        problem: state.problem(),
    }
}
