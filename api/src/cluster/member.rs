//! A node joins its cluster, and takes part in it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use celeris_cluster::{Cluster as Replication, ClusterError, Hooks, Joined};
use celeris_manager::{Manager, Peers, Readiness};
use celeris_model::{LogId, NodeName, Shard};
use celeris_predictor::{DefineElsewhere, Predictor};
use celeris_storage::{Applied, AppliedGroup, DirectoryContents, DirectoryLock, Storage, StorageError, StorageOptions};
use tokio::runtime::Handle;

use super::context_fields::define_at_coordinator;
use super::freshness::{Confirming, Freshness, Settling};
use super::settings::{options, warn_of_open_servers};
use super::versions::PeerVersions;
use super::{
    Downloader, Membership, NodeTls, erase_left_decisions, finish_replacing, receive, remove_outgoing, set_aside,
};
use crate::access::NodeSecret;
use crate::config;

/// How long another node's change waits for this node to bring it in force.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// How long a node waits for its copy of the store while the others make copies for other nodes, and between
/// two attempts.
const BUSY_MAX: Duration = Duration::from_secs(600);
const BUSY_RETRY: Duration = Duration::from_secs(2);

/// Between two reports of the versions that this node is ready to serve.
const READY_EVERY: Duration = Duration::from_millis(500);

/// Why a node cannot take part in its cluster.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Directory(String),
    #[error("the node needs a copy of the store of another node: {0}")]
    Copy(io::Error),
}

/// A node that knows its cluster, and does not take part yet.
pub struct Member {
    joined: Joined,
    downloader: Downloader,
    running: Running,
    ready_within: Duration,
}

/// The replication, once it runs.
type Running = Arc<OnceLock<Arc<Replication>>>;

impl Member {
    /// Connects to the cluster of the configuration; `None` if it names none. `own` is the URL of the node's
    /// socket, `dir` the data directory. Must be called in a runtime, on a thread that may block.
    ///
    /// # Errors
    /// `Directory`, before a cluster is founded that the node cannot take part in, or those of [`Joined::join`].
    pub fn join(
        config: &config::Cluster,
        own: &str,
        dir: &Path,
        (secret, tls): (&NodeSecret, &NodeTls),
    ) -> Result<Option<Self>, JoinError> {
        let Some(mut options) = options(config, own, secret) else { return Ok(None) };
        let unfit = |what: String| Err(JoinError::Directory(format!("the data directory {} {what}", dir.display())));
        match DirectoryContents::of(dir)? {
            DirectoryContents::Store => {
                let begin = "begin the cluster with it by `celeris cluster recover`";
                return unfit(format!("belongs to a node on its own: {begin}, or start with an empty directory"));
            }
            DirectoryContents::Copy { cluster, .. } if cluster != options.cluster => {
                let name = options.cluster;
                return unfit(format!(
                    "has a copy of cluster {cluster}, and `cluster.name` is {name}: correct the name, or start with an empty directory"
                ));
            }
            // The other nodes do not hear of a process that cannot have its directory.
            DirectoryContents::Copy { incarnation, .. } => {
                options.copy = Some(incarnation);
                drop(DirectoryLock::take(dir)?);
            }
            DirectoryContents::Nothing => {}
        }
        warn_of_open_servers(config);
        let joined = Handle::current().block_on(Joined::join(options))?;
        let downloader = Downloader::start(secret.headers(), tls.clone());
        // To hear of the other nodes takes seconds.
        let peers = if secret.exists() { Handle::current().block_on(joined.peers()) } else { BTreeMap::default() };
        for url in peers.values() {
            if url.starts_with("https://") && !tls.has_authorities() {
                return Err(JoinError::Directory(format!(
                    "cluster.tls.ca: name the authorities of the certificates of the nodes: {url} is one of them"
                )));
            }
            if downloader.is_refused(url) {
                return Err(JoinError::Directory(format!(
                    "the node at {url} has another cluster.secret_file: give all nodes the same, or none"
                )));
            }
        }
        Handle::current().block_on(joined.keep_secret())?;
        Ok(Some(Self { joined, downloader, running: Running::default(), ready_within: config.ready_within }))
    }

    /// Opens this node's copy of the store. A node without one, or with one that the logs do not reach back to,
    /// gets that of another node first.
    ///
    /// # Errors
    /// Those of the store, or `Copy` if no other node can be reached that has one.
    pub fn open_store(&self, dir: &Path, options: &StorageOptions) -> Result<Storage, JoinError> {
        let identity = self.joined.identity();
        // What the logs have now is there when this node begins to read them, however long it takes to get there.
        Handle::current().block_on(self.joined.announce(None))?;
        let lock = DirectoryLock::take(dir)?;
        finish_replacing(dir).map_err(JoinError::Copy)?;
        match DirectoryContents::of(dir)? {
            DirectoryContents::Nothing => {
                if Handle::current().block_on(self.joined.needs_copy())? {
                    self.fetch_copy(dir)?;
                }
            }
            DirectoryContents::Copy { cluster, incarnation }
                if cluster == identity.name && incarnation < identity.incarnation =>
            {
                if Handle::current().block_on(self.joined.peers()).is_empty() {
                    return Err(JoinError::Copy(no_other_node()));
                }
                tracing::warn!(incarnation, "the store is of an earlier incarnation of the cluster; it is set aside");
                set_aside(dir, incarnation).map_err(JoinError::Copy)?;
                self.fetch_copy(dir)?;
            }
            // The store says what is wrong with it.
            DirectoryContents::Copy { .. } | DirectoryContents::Store => {}
        }
        drop(lock);
        let mut storage = Storage::open_replica(dir, options, identity)?;
        remove_outgoing(dir).map_err(JoinError::Copy)?;
        if Handle::current().block_on(self.joined.is_behind(&storage))? {
            tracing::warn!("the logs do not reach back to what this node has");
            storage.close()?;
            drop(storage);
            let lock = DirectoryLock::take(dir)?;
            self.fetch_copy(dir)?;
            drop(lock);
            storage = Storage::open_replica(dir, options, identity)?;
        }
        erase_left_decisions(&storage)?;
        Handle::current().block_on(self.joined.announce(Some(&storage)))?;
        Ok(storage)
    }

    /// Replaces the database by a copy of that of another node. Nodes that start at the same time get theirs one
    /// after the other.
    fn fetch_copy(&self, dir: &Path) -> Result<(), JoinError> {
        let until = Instant::now() + BUSY_MAX;
        loop {
            match self.fetch_copy_once(dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    std::thread::sleep(BUSY_RETRY);
                }
                outcome => return outcome.map_err(JoinError::Copy),
            }
        }
    }

    fn fetch_copy_once(&self, dir: &Path) -> io::Result<()> {
        let mut failure = no_other_node();
        for (node, url) in Handle::current().block_on(self.joined.peers()) {
            tracing::info!(%node, url, "getting a copy of the store");
            match self.downloader.get(&url, "/v1/cluster/copy").and_then(|archive| receive(dir, archive)) {
                Ok(()) => {
                    tracing::info!(%node, "the copy of the store is complete");
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(%node, %error, "no copy of the store from this node");
                    // The one that is worth another attempt.
                    if failure.kind() != io::ErrorKind::ResourceBusy {
                        failure = error;
                    }
                }
            }
        }
        Err(failure)
    }

    /// The other nodes, for the manager.
    #[must_use]
    pub fn peers(&self) -> Peers {
        let source = PeerVersions { views: self.joined.view(), downloader: self.downloader.clone() };
        Peers {
            source: Arc::new(source),
            readiness: Arc::new(Reported(Arc::clone(&self.running))),
            ready_within: self.ready_within,
        }
    }

    /// How this node has fields of contexts defined, for the predictor.
    #[must_use]
    pub fn define_fields(&self) -> DefineElsewhere {
        define_at_coordinator(self.joined.view(), self.downloader.clone())
    }

    /// Takes part in the cluster with these components from now on.
    ///
    /// # Errors
    /// `Cluster`.
    pub fn start(self, parts: Parts) -> Result<(Membership, Arc<Replication>), JoinError> {
        let Self { joined, running, .. } = self;
        let storage = Arc::new(parts.storage.clone());
        let manager = Arc::downgrade(&parts.manager);
        let replication = Handle::current().block_on(joined.start(storage, Arc::new(parts)))?;
        // A node has one replication.
        let _ = running.set(Arc::clone(&replication));
        let membership =
            Membership { views: replication.view(), freshness: Arc::new(Measured(Arc::clone(&replication))) };
        tokio::spawn(report_ready(manager, Arc::downgrade(&replication)));
        Ok((membership, replication))
    }
}

fn no_other_node() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no other node is up; start one that has the store first")
}

/// Reports to the other nodes which versions this node has ready.
async fn report_ready(manager: Weak<Manager>, replication: Weak<Replication>) {
    let mut ticks = tokio::time::interval(READY_EVERY);
    let mut reported = Vec::new();
    loop {
        ticks.tick().await;
        let (Some(manager), Some(replication)) = (manager.upgrade(), replication.upgrade()) else { return };
        let ready = manager.ready();
        if ready != reported {
            replication.set_ready(ready.clone());
            reported = ready;
        }
    }
}

/// The components that are brought in line with the logs.
pub struct Parts {
    pub storage: Storage,
    pub predictor: Arc<Predictor>,
    pub manager: Arc<Manager>,
}

impl Hooks for Parts {
    fn applying(&self, group: &AppliedGroup) -> Result<(), StorageError> {
        self.predictor.applying(group)
    }

    fn applied(&self, log: LogId, applied: Applied) {
        match applied {
            Applied::Group(group) => {
                if let (Err(error), LogId::Shard(shard)) = (self.predictor.applied(&group), log) {
                    tracing::warn!(%error, %log, "what is in memory of the users may be outdated; it is dropped");
                    self.predictor.forget_shard(shard);
                }
                self.manager.observed(&group.records);
            }
            Applied::Catalog { documents, items } => {
                if let Err(error) = self.predictor.catalog().take_in_fields(&documents) {
                    tracing::warn!(%error, "fields of contexts that were defined cannot be read");
                }
                self.manager.applied(&documents, &items);
            }
        }
    }

    fn settle(&self, _log: LogId) {
        self.manager.settle(SETTLE_MAX);
    }

    fn term_began(&self, log: LogId) {
        if log == LogId::Catalog {
            let manager = Arc::clone(&self.manager);
            // It may take long, and ends by itself if another node takes over meanwhile.
            let led = std::thread::Builder::new().name("celeris-lead".to_owned()).spawn(move || {
                if let Err(error) = manager.lead() {
                    tracing::warn!(%error, "this node owns the catalog and cannot lead");
                }
            });
            if let Err(error) = led {
                tracing::error!(%error, "no thread for the beginning of the lead can be started");
            }
        }
    }

    fn releasing(&self, log: LogId) {
        if log == LogId::Catalog {
            self.manager.follow();
        }
    }

    fn term_ended(&self, log: LogId) {
        match log {
            LogId::Catalog => self.manager.follow(),
            LogId::Shard(shard) => self.predictor.forget_shard(shard),
        }
    }
}

/// The ages that the replication measures.
struct Measured(Arc<Replication>);

impl Freshness for Measured {
    fn staleness(&self, shard: Shard) -> Option<Duration> {
        self.0.staleness(LogId::Shard(shard))
    }

    fn confirm(&self, shard: Shard) -> Confirming<'_> {
        Box::pin(async move {
            self.0.confirm(LogId::Shard(shard)).await.map_err(|error| match error {
                ClusterError::Stopped { reason, .. } => StorageError::Poisoned { cause: reason.into() },
                _ => StorageError::NotOwner,
            })
        })
    }

    fn settle(&self) -> Settling<'_> {
        Box::pin(self.0.settle())
    }
}

/// What the other nodes have reported.
struct Reported(Running);

impl Readiness for Reported {
    fn lagging(&self, version: &str) -> Vec<NodeName> {
        let Some(replication) = self.0.get() else { return Vec::new() };
        let lags = |ready: &Vec<String>| !ready.iter().any(|other| other == version);
        replication
            .live()
            .into_iter()
            .filter(|heartbeat| lags(&heartbeat.ready))
            .map(|heartbeat| heartbeat.node)
            .collect()
    }
}
