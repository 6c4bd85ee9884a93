//! The cluster of a node.

use celeris_cluster::{ClusterStatus, LogStatus, NodeStatus, Phase};
use celeris_model::{ClusterView, LogId, NodeName, Placement, Shards};
use serde::Serialize;
use utoipa::ToSchema;

use super::ids::Name;

/// The nodes of a cluster and their users.
///
/// A user is in partition `xxh3_64(id) mod 64`, with seed 0 over the bytes of the id. Clients that
/// send requests to the owner of that partition save a hop; every node answers all of them.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterReply {
    /// Whether the node is in a cluster.
    pub enabled: bool,
    /// The map of the cluster; absent if the node is in none, and answers for all users itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub map: Option<ClusterMap>,
    /// How the logs and the nodes are, as this node knows it; absent if the node is in no cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<ClusterState>,
}

/// The answer to a request to drain a node.
#[derive(Debug, Serialize, ToSchema)]
pub struct DrainReply {
    /// Always true.
    pub draining: bool,
    /// The logs that the node owns still.
    pub owned: usize,
}

/// The logs and the nodes of a cluster, as one node knows them.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterState {
    /// The name of the cluster.
    pub cluster: String,
    /// Increases with every recovery from the copy of a node.
    pub incarnation: u64,
    /// All nodes that were heard of, live or not.
    pub nodes: Vec<NodeState>,
    /// The copies of the logs on this node: the catalog, and then the shards.
    pub logs: Vec<LogState>,
    /// Why this node must be started again; null if all is well.
    pub failure: Option<String>,
}

/// A node, by what it said last.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodeState {
    #[schema(value_type = Name)]
    pub node: NodeName,
    pub url: String,
    /// Whether it was heard of in the last seconds.
    pub live: bool,
    /// Whether its process runs, and gets ready to take part.
    pub starting: bool,
    /// Whether it gives its users up.
    pub draining: bool,
    /// The number of logs that it owns: its shards, and the catalog if it is the coordinator.
    pub owns: usize,
}

/// A log, as the copy of this node has it.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogState {
    /// `catalog`, or `s00` to `s63`.
    pub log: String,
    /// `following`, `claiming`, `owning`, `releasing`, or `stuck` after a problem.
    #[schema(value_type = String)]
    pub phase: Phase,
    /// The node that owns it, as far as the copy was read.
    #[schema(value_type = Option<Name>)]
    pub owner: Option<NodeName>,
    /// Increases with every change of the owner.
    pub epoch: u64,
    /// The last batch of the copy.
    pub applied: u64,
    /// The last batch of the copy that survives a power failure.
    pub durable: u64,
    /// The batches that the copy lacks, by what the owner said last; null while no node says that it owns the log.
    pub lag: Option<u64>,
    /// The age of the copy in seconds, at most; null if it is not known.
    pub staleness_seconds: Option<f64>,
    /// What is wrong; null if nothing is.
    pub problem: Option<String>,
}

impl From<ClusterStatus> for ClusterState {
    fn from(status: ClusterStatus) -> Self {
        let node = |(node, status): (NodeName, NodeStatus)| NodeState {
            node,
            // What a node said last before it died is not so any more.
            owns: status.logs.values().filter(|log| status.is_live && log.epoch.is_some()).count(),
            url: status.url,
            live: status.is_live,
            starting: status.is_starting,
            draining: status.is_draining,
        };
        let log = |(log, status): (String, LogStatus)| LogState {
            log,
            phase: status.phase,
            owner: status.owner,
            epoch: status.epoch,
            applied: status.applied,
            durable: status.durable,
            lag: status.lag,
            staleness_seconds: status.staleness_seconds,
            problem: status.problem.as_ref().map(ToString::to_string),
        };
        Self {
            cluster: status.cluster,
            incarnation: status.incarnation,
            nodes: status.nodes.into_iter().map(node).collect(),
            logs: status.logs.into_iter().map(log).collect(),
            failure: status.failure,
        }
    }
}

/// The map of a cluster, as this node knows it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterMap {
    /// This node.
    #[schema(value_type = Name)]
    pub node: NodeName,
    /// The node that writes models and items, and trains; null while there is none.
    #[schema(value_type = Option<Name>)]
    pub coordinator: Option<NodeName>,
    /// The revision of the map; of two, the greater is the newer.
    pub revision: Revision,
    /// The live nodes.
    pub nodes: Vec<ClusterNode>,
    /// The ranges of partitions that have one owner, in order.
    pub shards: Vec<ClusterShard>,
}

/// The revision of a map: ordered by `epoch`, then by `number`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Revision {
    /// Increases with every change of the coordinator.
    pub epoch: u64,
    /// Counts the maps of one coordinator.
    pub number: u64,
}

/// A live node.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterNode {
    #[schema(value_type = Name)]
    pub node: NodeName,
    /// By which clients and other nodes reach it.
    pub url: String,
}

/// A range of partitions.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterShard {
    /// Its number, from 0.
    pub shard: u8,
    /// The first partition.
    #[schema(maximum = 63)]
    pub first: u8,
    /// The last partition.
    #[schema(maximum = 63)]
    pub last: u8,
    /// The node that answers for its users; null while there is none.
    #[schema(value_type = Option<Name>)]
    pub owner: Option<NodeName>,
    /// Whether this node answers for its users now.
    pub owned: bool,
}

impl From<&ClusterView> for ClusterMap {
    fn from(ClusterView { node, placement, owned }: &ClusterView) -> Self {
        let Placement { revision, nodes, coordinator, shards } = placement;
        let division = u8::try_from(shards.len()).ok().and_then(Shards::new);
        let ranges = division.into_iter().flat_map(|division| division.all().map(move |shard| (division, shard)));
        let range = |(division, shard): (Shards, _)| {
            let mut partitions = division.partitions(shard).map(|partition| partition.index());
            let first = partitions.next().unwrap_or_default();
            ClusterShard {
                shard: shard.index(),
                first,
                last: partitions.last().unwrap_or(first),
                owner: placement.owner(LogId::Shard(shard)).cloned(),
                owned: owned.contains(&LogId::Shard(shard)),
            }
        };
        Self {
            node: node.clone(),
            coordinator: coordinator.clone(),
            revision: Revision { epoch: revision.epoch, number: revision.number },
            nodes: nodes.iter().map(|(node, url)| ClusterNode { node: node.clone(), url: url.clone() }).collect(),
            shards: ranges.map(range).collect(),
        }
    }
}
