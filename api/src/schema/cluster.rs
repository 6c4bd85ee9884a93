//! The cluster of a node.

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
