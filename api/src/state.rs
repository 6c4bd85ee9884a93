//! State shared by all handlers.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use celeris_cluster::Cluster as Replication;
use celeris_export::Sealer;
use celeris_manager::Manager;
use celeris_predictor::Predictor;
use celeris_storage::Storage;
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::backups::Backups;
use crate::cluster::Cluster;
use crate::compute_pool::ComputePool;
use crate::config::Limits;
use crate::ingest_pool::IngestPool;
use crate::ingest_status::Statuses;
use crate::personalizer::Personalizer;
use crate::scope::Sampling;
use crate::series::Series;

/// A handle to the shared state. It is cloned several times per request, so it is a single pointer.
#[derive(Clone)]
pub struct Node(Arc<AppState>);

impl Node {
    /// A handle to this state.
    pub fn new(state: AppState) -> Self {
        Self(Arc::new(state))
    }

    /// A weak handle to this state.
    pub fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.0))
    }
}

/// A handle that does not keep the node alive, for maintenance that runs on the node's own threads.
#[derive(Clone)]
pub struct WeakNode(Weak<AppState>);

impl WeakNode {
    /// The node, unless it was dropped.
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(Node)
    }
}

impl Deref for Node {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.0
    }
}

/// The components of a node.
pub struct AppState {
    pub storage: Storage,
    /// User states and versions that answer requests.
    pub predictor: Arc<Predictor>,
    /// Life cycle of models.
    pub manager: Arc<Manager>,
    /// Copies the log to Parquet segments; `None` if sealing is disabled.
    pub sealer: Option<Arc<Sealer>>,
    /// The cluster of the node; `None` if it is on its own.
    pub cluster: Option<Cluster>,
    /// Replicates the logs of the cluster.
    pub replication: Option<Arc<Replication>>,
    /// Threads on which requests compute.
    pub compute: ComputePool,
    /// Threads that ingest NDJSON streams.
    pub ingest_pool: IngestPool,
    /// Observations from message brokers.
    pub ingests: Vec<Arc<Statuses>>,
    /// Who may do what.
    pub access: Access,
    /// Which requests are recorded; `None` if nothing collects traces.
    pub sampling: Option<Sampling>,
    /// Requests in the form of Azure Personalizer.
    pub personalizer: Personalizer,
    /// Limits of requests.
    pub limits: Limits,
    /// One permit per concurrent request.
    pub permits: Arc<Semaphore>,
    /// One permit per byte of partially received bodies.
    pub arriving: Arc<Semaphore>,
    /// One permit per open NDJSON stream.
    pub stream_permits: Arc<Semaphore>,
    /// Copies for backups, and the backups that were made.
    pub backups: Backups,
    /// One permit per copy of the store that another node gets.
    pub copy_permits: Arc<Semaphore>,
    /// One permit per concurrent rendering of the metrics.
    pub metrics_permits: Semaphore,
    /// Metrics of the process.
    pub series: Arc<Series>,
}
