//! Opens and closes a node: storage, predictor and manager over one data directory.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use celeris_export::{Sealer, SealingOptions};
use celeris_manager::{Manager, ManagerError, ManagerOptions, names_by_id};
use celeris_predictor::{DecisionLogging, Predictor, PredictorOptions};
use celeris_storage::{Storage, StorageError, StorageOptions};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::access::{Access, NodeSecret};
use crate::backups::Backups;
use crate::cluster::{Cluster, JoinError, Member, Membership, NodeTls, Parts};
use crate::compute_pool::ComputePool;
use crate::config::Config;
use crate::ingest_pool::IngestPool;
use crate::ingests::Ingests;
use crate::personalizer::Personalizer;
use crate::scope::Sampling;
use crate::series::{Live, Series};
use crate::state::{AppState, Node, WeakNode};

/// An error when a node starts.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The node cannot take part in its cluster.
    #[error(transparent)]
    Cluster(#[from] JoinError),
    /// The models cannot be loaded.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// A setting is not valid.
    #[error("{0}")]
    Setting(String),
    /// The path of the data directory cannot be made absolute.
    #[error("{}: {source}", path.display())]
    DataDir {
        /// The path as given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Threads cannot be spawned.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Maximum bytes of a group of records in a replicated log.
const REPLICATED_COMMIT_BYTES: usize = 256 << 10;

/// Maximum number of concurrent metric renderings: enough for two scrapers, and few because each is
/// expensive.
const METRICS_AT_ONCE: usize = 2;

/// Interval of metrics upkeep, which bounds their memory on a node that is never scraped.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

async fn keep_up(node: WeakNode) {
    let mut ticks = tokio::time::interval(UPKEEP_EVERY);
    loop {
        ticks.tick().await;
        let Some(node) = node.upgrade() else { return };
        keep_series(&node);
        node.backups.expire();
    }
}

/// Drains the histograms and removes the series of deleted models and streams. Blocks on disk
/// reads.
pub fn keep_series(node: &Node) {
    let registry = || {
        let models = node.manager.registry().models()?.into_iter().map(|record| record.config.name.to_string());
        let selections = node.manager.registry().selections()?.into_iter().map(|record| record.name.to_string());
        Ok::<_, ManagerError>(models.chain(selections).collect())
    };
    // If the registry cannot be read, try again at the next tick.
    let Ok(models) = registry() else { return };
    let served = node.predictor.catalog().catalogs().into_iter().map(|catalog| catalog.stream.to_string());
    let sealed = node.sealer.iter().flat_map(|sealer| sealer.status()).map(|(stream, _)| stream.to_string());
    node.series.keep_up(&Live { models, streams: served.chain(sealed).collect() });
}

/// What a node takes from its process, in addition to the configuration.
pub struct NodeOptions {
    /// The data directory; created if missing.
    pub data_dir: PathBuf,
    /// Path of the binary `celeris`, from which the node starts its trainers.
    pub binary: PathBuf,
    /// The metrics that the node renders. The caller decides whether they are those of the process,
    /// see [`Series::install`].
    pub series: Arc<Series>,
    /// The address of the socket on which the node is to be served.
    pub address: SocketAddr,
    /// What the node takes of a cluster instead of the one that the configuration names, for tests.
    pub cluster: Option<Membership>,
}

/// Opens the data directory and loads all models, so that the node can serve. Must be called within
/// a multi-threaded runtime, and blocks. A process may open several nodes on different directories.
///
/// # Errors
/// [`StartError`]: the directory is in use, damaged or of another format, or a setting is invalid.
pub fn open(options: NodeOptions, config: &Config) -> Result<Node, StartError> {
    let NodeOptions { data_dir, binary, series, address, cluster } = options;
    let bytes = |size: bytesize::ByteSize| usize::try_from(size.as_u64()).unwrap_or(usize::MAX);
    let memory = &config.memory;
    let decisions = &config.decisions;
    let storage_options = StorageOptions {
        block_cache_bytes: bytes(memory.blocks),
        decision_queue_max: decisions.queue,
        decision_bytes_per_second: decisions.bytes_per_second.as_u64(),
        decision_retention: decisions.retention,
        verification_delay: config.verification.delay,
        verification_interval: config.verification.interval,
        verification_bytes_per_second: config.verification.bytes_per_second.as_u64(),
        ..StorageOptions::default()
    };
    // The trainer runs in another working directory and must find the same files.
    let data_dir = std::path::absolute(&data_dir).map_err(|source| StartError::DataDir { path: data_dir, source })?;
    let secret = NodeSecret::open(config.cluster.secret_file.as_deref()).map_err(StartError::Setting)?;
    let streams_per_key = config.limits.streams_per_key;
    let access = Access::open(&config.auth, secret.clone(), streams_per_key).map_err(StartError::Setting)?;
    let node_tls = NodeTls::open(&config.cluster.tls).map_err(StartError::Setting)?;
    let scheme = if config.server.tls.cert.is_some() { "https" } else { "http" };
    let own = format!("{scheme}://{address}");
    let member = Member::join(&config.cluster, &own, &data_dir, (&secret, &node_tls))?;
    let storage = match &member {
        // A batch is one message, of limited size.
        Some(member) => {
            let commit_bytes_max = storage_options.commit_bytes_max.min(REPLICATED_COMMIT_BYTES);
            member.open_store(&data_dir, &StorageOptions { commit_bytes_max, ..storage_options })?
        }
        None => Storage::open(data_dir, &storage_options)?,
    };
    let predictor_options = PredictorOptions {
        user_bytes_max: bytes(memory.users),
        feature_bytes_max: bytes(memory.features),
        prediction_bytes_max: bytes(memory.predictions),
        prediction_items_max: memory.prediction_items,
        selection_bytes_max: bytes(memory.selections),
        seen_bytes_max: bytes(memory.seen),
        decisions: DecisionLogging {
            enabled: decisions.enabled,
            candidates_in_full: decisions.candidates_in_full,
            candidates_sampled: decisions.candidates_sampled,
        },
        earliest_time: config.limits.earliest_time,
        clock_skew_max: config.limits.clock_skew,
        ..PredictorOptions::default()
    };
    let (predictor, losses) = Predictor::new(storage.clone(), &predictor_options);
    let predictor = Arc::new(predictor);
    if let Some(member) = &member {
        predictor.catalog().define_elsewhere_by(member.define_fields());
    }
    let manager_options = ManagerOptions {
        models_max: config.limits.models,
        trainer: binary,
        training: config.training.options().map_err(StartError::Setting)?,
        import_dir: config.training.import_dir.clone(),
    };
    let manager = match &member {
        Some(member) => Manager::join(storage.clone(), predictor.clone(), manager_options, member.peers())?,
        None => Manager::open(storage.clone(), predictor.clone(), manager_options)?,
    };
    let compute = ComputePool::start()?;
    compute.spawn(manager.clone().listen(losses));
    compute.spawn(manager.decisions().clone().run());
    let sealing = SealingOptions { interval: config.sealing.interval, records: config.sealing.records };
    let sealer = config.sealing.enabled.then(|| Sealer::start(storage.clone(), sealing, names_by_id)).transpose()?;
    let ingest_pool = IngestPool::start(predictor.clone())?;
    let ingests = Ingests::open(&config.ingest, storage.dir()).map_err(StartError::Setting)?;
    // From here on, other nodes may hand logs over to this one.
    let started = member.map(|member| {
        member.start(Parts { storage: storage.clone(), predictor: predictor.clone(), manager: manager.clone() })
    });
    let (cluster, replication) = match started.transpose()? {
        Some((membership, replication)) => (Some(membership), Some(replication)),
        None => (cluster, None),
    };
    let node = Node::new(AppState {
        backups: Backups::open(storage.dir()),
        storage,
        predictor,
        manager,
        sealer,
        cluster: cluster.map(|cluster| Cluster::new(cluster, config.limits.streams, (secret, node_tls))),
        replication,
        compute,
        ingest_pool,
        ingests: ingests.statuses(),
        access,
        sampling: Sampling::open(&config.tracing),
        personalizer: Personalizer::new(config.personalizer.clone()),
        limits: config.limits.clone(),
        permits: Arc::new(Semaphore::new(config.limits.requests)),
        arriving: Arc::new(Semaphore::new(
            usize::try_from(config.limits.arriving.as_u64()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
        )),
        stream_permits: Arc::new(Semaphore::new(config.limits.streams)),
        copy_permits: Arc::new(Semaphore::new(1)),
        metrics_permits: Semaphore::new(METRICS_AT_ONCE),
        series,
    });
    node.compute.spawn(keep_up(node.downgrade()));
    ingests.start(&node);
    Ok(node)
}

/// How long a node that is to stop waits at most until other nodes own its logs.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks whether a node that starts has joined its cluster.
const JOINED_LOOK: Duration = Duration::from_millis(50);

impl Node {
    /// Whether the node has what it needs to answer and forward requests: on its own at once, in a cluster once it has
    /// the map of the owners and the catalog.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        self.replication.as_ref().is_none_or(|replication| replication.has_joined())
    }

    /// Completes once [`Node::has_joined`].
    pub async fn joined(&self) {
        while !self.has_joined() {
            tokio::time::sleep(JOINED_LOOK).await;
        }
    }

    /// Completes if the node cannot take part in its cluster any more, and has to be started again.
    pub async fn failed(&self) -> String {
        let Some(replication) = &self.replication else { return std::future::pending().await };
        let mut failure = replication.failure();
        let failed = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match failed {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    /// Gives the logs of a cluster up to other nodes, and goes on answering meanwhile: requests are forwarded to
    /// the new owners. Returns at once on its own, or if no other node is up.
    pub async fn leave(&self) {
        let Some(replication) = self.replication.as_ref().filter(|replication| !replication.live().is_empty()) else {
            return;
        };
        replication.drain();
        let mut views = replication.view();
        let left = views.wait_for(|view| view.owned.is_empty());
        if !matches!(tokio::time::timeout(LEAVE_TIMEOUT, left).await, Ok(Ok(_))) {
            tracing::warn!("the other nodes did not take over in time");
        }
    }

    /// Cancels requests and trainings, stops the threads of the node, and closes the store:
    /// acknowledged data is durable, and later writes fail. Blocks. The data directory can be
    /// opened again when the runtime of the caller, whose tasks hold the node, is dropped too.
    ///
    /// # Errors
    /// As [`celeris_storage::Storage::close`].
    pub fn close(&self) -> Result<(), StorageError> {
        self.compute.stop();
        if let Some(replication) = &self.replication {
            Handle::current().block_on(replication.stop());
        }
        // Before the store is closed, because the sealer reads from it.
        if let Some(sealer) = &self.sealer {
            sealer.stop();
        }
        if let Err(error) = self.predictor.selections().store() {
            tracing::warn!(%error, "states of selections were not stored; the next start reads more of the log");
        }
        self.storage.close()
    }
}
