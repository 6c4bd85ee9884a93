//! Which node of a cluster serves which users.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::NodeName;
use crate::shards::LogId;

/// The assignment of the logs of a cluster to its nodes, as the coordinator decided it.
///
/// It is a hint: which node owns a log is decided in the log. The owner of the catalog is the
/// coordinator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Of two placements, the one with the greater revision is the newer.
    pub revision: PlacementRevision,
    /// The live nodes, with the URLs that other nodes and clients reach them by.
    pub nodes: BTreeMap<NodeName, String>,
    /// The node that owns the catalog.
    pub coordinator: Option<NodeName>,
    /// The owner of each shard, by its number.
    pub shards: Vec<Option<NodeName>>,
}

/// Orders the placements of a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PlacementRevision {
    /// The epoch of the catalog that the coordinator owned.
    pub epoch: u64,
    /// Counts the placements of the coordinator in that epoch, from 1.
    pub number: u64,
}

impl Placement {
    /// The node that is to own a log.
    #[must_use]
    pub fn owner(&self, log: LogId) -> Option<&NodeName> {
        match log {
            LogId::Catalog => self.coordinator.as_ref(),
            LogId::Shard(shard) => self.shards.get(usize::from(shard.index()))?.as_ref(),
        }
    }

    /// The URL of a live node.
    #[must_use]
    pub fn url(&self, node: &NodeName) -> Option<&str> {
        self.nodes.get(node).map(String::as_str)
    }
}

/// What one node knows of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// This node.
    pub node: NodeName,
    /// The newest placement that the node knows.
    pub placement: Placement,
    /// The logs that the node owns: it accepts their writes.
    pub owned: BTreeSet<LogId>,
}
