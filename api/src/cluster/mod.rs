//! The cluster as one node sees it: which node owns which users, how old the local copies are, and
//! requests to other nodes.
//!
//! What the operations of the API make of it is in `routing`. A node on its own has none of this.

mod connector;
pub mod context_fields;
mod download;
pub mod events;
mod forward;
mod freshness;
mod headers;
mod kept;
mod member;
mod moved_decisions;
mod replies;
mod router;
mod settings;
mod store_copy;
mod tls;
mod upstream;
mod versions;
mod written_body;

use std::sync::Arc;

use axum::http::Uri;
use celeris_model::{ClusterView, DecisionId, LogId, ModelId, NodeName, Partition, PlacementRevision};
use celeris_storage::{Storage, StorageError};
use tokio::sync::{Semaphore, watch};

use self::moved_decisions::MovedDecisions;
use crate::access::NodeSecret;
use crate::hosts::without_port;

pub use celeris_cluster::{check_syncing, check_version};
pub use download::{Downloader, Reply};
pub use forward::{Answered, Failure, Forwarder, url_at};
pub use freshness::{Confirming, Freshness, STALE_AFTER, Settling, Unmeasured};
pub use headers::{HOP, Hop, MODEL_ID, OWNER, asks_for_redirect, owner, placement_of, set_placement};
pub use kept::{Kept, NDJSON};
pub use member::{JoinError, Member, Parts};
pub use replies::{LineReply, Outcome};
pub use router::{Late, Peer, Place, Watching, log_of};
pub use settings::{begin_incarnation, check_recovery, replace_secret};
pub use store_copy::{StoreCopy, erase_left_decisions, finish_replacing, receive, remove_outgoing, set_aside};
pub use tls::NodeTls;
pub use upstream::{End, Target, Upstream, busy, send_lines};
pub use versions::PeerVersions;
pub use written_body::{PACE, written_body};

/// What a node takes from its cluster.
#[derive(Clone)]
pub struct Membership {
    /// What the node knows of the cluster, from now on.
    pub views: watch::Receiver<ClusterView>,
    /// The age of the copies of this node.
    pub freshness: Arc<dyn Freshness>,
}

/// The cluster of a node.
pub struct Cluster {
    views: watch::Receiver<ClusterView>,
    freshness: Arc<dyn Freshness>,
    forwarder: Arc<Forwarder>,
    streams: Arc<Semaphore>,
    moved_decisions: MovedDecisions,
}

/// The number of other nodes that may each have as many streams open to this one as clients may.
const SENDERS: usize = 15;

impl Cluster {
    /// The cluster that the node is a member of; clients may have `streams` open to each node.
    #[must_use]
    pub fn new(
        Membership { views, freshness }: Membership,
        streams: usize,
        (secret, tls): (NodeSecret, NodeTls),
    ) -> Self {
        let streams = Arc::new(Semaphore::new(streams.saturating_mul(SENDERS).min(Semaphore::MAX_PERMITS)));
        Self {
            views,
            freshness,
            forwarder: Arc::new(Forwarder::new(secret, tls)),
            streams,
            moved_decisions: MovedDecisions::default(),
        }
    }

    /// The newest view.
    pub fn view(&self) -> watch::Ref<'_, ClusterView> {
        self.views.borrow()
    }

    /// The views from now on, for one request.
    #[must_use]
    pub fn watch(&self) -> Watching {
        Watching::new(self.views.clone())
    }

    /// The other nodes; this node, and the revision of its placement.
    #[must_use]
    pub fn peers(&self) -> (Vec<Peer>, NodeName, PlacementRevision) {
        let view = self.view();
        let others = view.placement.nodes.iter().filter(|(node, _)| **node != view.node);
        let peers = others.map(|(node, url)| Peer { node: node.clone(), url: url.clone() }).collect();
        (peers, view.node.clone(), view.placement.revision)
    }

    /// Copies a decision that was made elsewhere to this node, if it is not here and another node has it; within a
    /// bounded time.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn fetch_decision(&self, storage: &Storage, of: (ModelId, &DecisionId)) -> Result<(), StorageError> {
        let (peers, node, revision) = self.peers();
        self.moved_decisions.fetch(storage, of, (&self.forwarder, &peers, (&node, revision))).await
    }

    /// Makes sure that this node owns the users of a partition: what it has found of them then is so. An owner that was
    /// cut off may not know what another has acknowledged since.
    ///
    /// # Errors
    /// `NotOwner` or `Fenced` if another node owns them, others if the log does not answer.
    pub async fn confirm(&self, partition: Partition) -> Result<(), StorageError> {
        let Some(LogId::Shard(shard)) = log_of(&self.view(), partition) else { return Err(StorageError::NotOwner) };
        self.freshness.confirm(shard).await
    }

    /// The age of the copies of this node.
    #[must_use]
    pub fn freshness(&self) -> &dyn Freshness {
        &*self.freshness
    }

    /// One permit for each stream that another node may open, apart from those of clients: nodes whose
    /// clients have all streams open would otherwise refuse each other.
    #[must_use]
    pub fn streams(&self) -> &Arc<Semaphore> {
        &self.streams
    }

    /// The client of the other nodes.
    #[must_use]
    pub fn forwarder(&self) -> &Arc<Forwarder> {
        &self.forwarder
    }
}

/// The host of the URL by which a cluster reaches this node, without its port.
#[must_use]
pub fn own_host(view: &ClusterView) -> Option<String> {
    let url: Uri = view.placement.url(&view.node)?.parse().ok()?;
    let host = without_port(url.authority()?.as_str().as_bytes())?;
    String::from_utf8(host.to_ascii_lowercase()).ok()
}
