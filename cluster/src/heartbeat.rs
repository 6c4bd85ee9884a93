//! What a node says of itself, every half second, to all others.
//!
//! It goes by plain NATS messages, not through a stream, so that it goes on while streams elect
//! leaders. Everything in it is a hint: what is so is decided in the logs.

use std::collections::BTreeMap;

use celeris_model::{NodeName, Placement};
use serde::{Deserialize, Serialize};

/// One heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub node: NodeName,
    /// The number of the process ([`crate::batch::Writer`]).
    pub process: u64,
    /// Increases with each heartbeat of the process.
    pub counter: u64,
    /// The URL that other nodes and clients reach the node by.
    pub url: String,
    /// The formats of batches that the node reads.
    pub formats: Vec<u8>,
    /// Whether the node does not take part yet. The logs are kept for it from where its copy ends.
    pub is_starting: bool,
    /// Whether the node gives its logs up.
    pub is_draining: bool,
    /// Whether the node has stopped: this is its last heartbeat.
    pub is_stopped: bool,
    /// By the short names of the logs.
    pub logs: BTreeMap<String, LogReport>,
    /// What the node is ready for, in the words of its manager.
    pub ready: Vec<String>,
    /// The coordinator's placement.
    pub placement: Option<Placement>,
}

/// What a node says of its copy of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReport {
    /// The last sequence that it has applied.
    pub applied: u64,
    /// The last sequence that survives a power failure of the node.
    pub durable: u64,
    /// The epoch in which it owns the log.
    pub epoch: Option<u64>,
    /// The last sequence of the log, if it owns it.
    pub tail: Option<u64>,
    /// Whether it has stopped following the log.
    pub is_stuck: bool,
}
