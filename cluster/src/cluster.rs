//! A node's membership in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{Client, ConnectOptions};
use celeris_model::{ClusterView, LogId, NodeName, Placement};
use celeris_storage::{ClusterIdentity, Storage};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::append::Appender;
use crate::batch::Writer;
use crate::chain::Cursor;
use crate::error::ClusterError;
use crate::heartbeat::Heartbeat;
use crate::hooks::Hooks;
use crate::incarnations::Origin;
use crate::log_state::LogState;
use crate::log_task::LogTask;
use crate::node::{LogHandle, Node, NodeParts};
use crate::options::ClusterOptions;
use crate::status::{self, ClusterStatus};
use crate::streams::{Access, Names};
use crate::term::TermEnd;
use crate::{beating, incarnations, server_checks, steering, upkeep};

/// How long the first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two looks for a later incarnation.
const LOOK_FOR_INCARNATIONS: Duration = Duration::from_secs(5);

/// How long after the limit of [`Cluster::stop`] the tasks may take to notice it.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Owners look at their streams each few seconds, and hear of what other nodes have synced within a few more.
const TRIM_LATE_MAX: Duration = Duration::from_secs(15);

/// A node that takes part in a cluster.
pub struct Cluster {
    node: Arc<Node>,
    abort: watch::Sender<bool>,
    logs: Mutex<Option<JoinSet<()>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A node that knows its cluster and takes no part in it yet.
pub struct Joined {
    options: ClusterOptions,
    access: Access,
    identity: ClusterIdentity,
    /// Whether the incarnation began with the copy of a node.
    is_from_copy: bool,
    writer: Writer,
    view: watch::Sender<ClusterView>,
    abort: watch::Sender<bool>,
}

impl Joined {
    /// As [`Cluster::view`]; nothing is placed before the start.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<ClusterView> {
        self.view.subscribe()
    }

    /// What the store is opened with.
    #[must_use]
    pub fn identity(&self) -> &ClusterIdentity {
        &self.identity
    }

    /// Whether an empty store lacks what the cluster had before its logs began.
    ///
    /// # Errors
    /// `Stream`.
    pub async fn needs_copy(&self) -> Result<bool, ClusterError> {
        if self.is_from_copy {
            return Ok(true);
        }
        for log in logs(&self.identity) {
            if self.first(log).await? > 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a log does not reach back to where the store ends, so that the store of another node has to be
    /// copied.
    ///
    /// # Errors
    /// `NotAReplica`, `Stream` or `Storage`.
    pub async fn is_behind(&self, storage: &Storage) -> Result<bool, ClusterError> {
        let replica = storage.replica().ok_or(ClusterError::NotAReplica)?;
        for log in replica.logs() {
            let cursor = replica.cursor(log)?.and_then(|cursor| Cursor::decode(&cursor)).unwrap_or_default();
            if cursor.sequence + 1 < self.first(log).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first sequence that the stream of a log has or will have.
    async fn first(&self, log: LogId) -> Result<u64, ClusterError> {
        Ok(self.names().link(&self.access, log).extent().await?.first)
    }

    fn names(&self) -> Names {
        Names { cluster: self.options.cluster.clone(), incarnation: self.identity.incarnation }
    }

    /// The other live nodes with their URLs: listens for their heartbeats.
    pub async fn peers(&self) -> BTreeMap<NodeName, String> {
        let mut peers = BTreeMap::new();
        let subscribed = self.access.client.subscribe(self.names().heartbeat("*")).await;
        let Ok(mut heartbeats) = subscribed else { return peers };
        let listen = async {
            while let Some(message) = heartbeats.next().await {
                if let Ok(heartbeat) = serde_json::from_slice::<Heartbeat>(&message.payload)
                    && !heartbeat.is_stopped
                    && heartbeat.node != self.options.node
                {
                    peers.insert(heartbeat.node, heartbeat.url);
                }
            }
        };
        // It ends with the time only.
        let _ = tokio::time::timeout(self.options.timing.heartbeat * 5 / 2, listen).await;
        peers
    }

    /// Begins to take part. `storage` is of
    /// [`Storage::open_replica`] with [`Joined::identity`]. Must be called in a runtime.
    ///
    /// # Errors
    /// `NotAReplica` or `Stream`.
    pub async fn start(self, storage: Arc<Storage>, hooks: Arc<dyn Hooks>) -> Result<Arc<Cluster>, ClusterError> {
        let names = self.names();
        let Self { options, access, writer, view, abort, .. } = self;
        let ids: Vec<LogId> = storage.replica().ok_or(ClusterError::NotAReplica)?.logs().collect();
        let changed = watch::Sender::new(());
        let mut logs = BTreeMap::new();
        for log in ids {
            let link = names.link(&access, log);
            let state = Arc::new(LogState::new(log, changed.clone()));
            logs.insert(log, LogHandle { state, term: Arc::default(), link });
        }
        let node = Arc::new(Node::new(NodeParts { options, names, writer, access, logs, view }));
        let mut tasks = JoinSet::new();
        for (log, handle) in &node.logs {
            let appender = Appender {
                link: handle.link.clone(),
                retry_wait: node.options.timing.retry_wait,
                abort: abort.subscribe(),
                log: *log,
                bytes_max: usize::try_from(node.options.streams.message_bytes_max).unwrap_or(usize::MAX),
            };
            let task = LogTask {
                place: (*log, node.names.incarnation),
                writer: node.writer.clone(),
                storage: Arc::clone(&storage),
                hooks: Arc::clone(&hooks),
                state: Arc::clone(&handle.state),
                catalog: Arc::clone(&node.catalog().state),
                term: Arc::clone(&handle.term),
                appender,
                members: Arc::clone(&node.members),
                timing: node.options.timing.clone(),
            };
            tasks.spawn(task.run());
        }
        let others = vec![
            tokio::spawn(beating::send(Arc::clone(&node))),
            tokio::spawn(beating::hear(Arc::clone(&node))),
            tokio::spawn(beating::answer(Arc::clone(&node), Arc::clone(&hooks))),
            tokio::spawn(steering::steer(Arc::clone(&node), changed.subscribe())),
            tokio::spawn(upkeep::keep(Arc::clone(&node), storage)),
            tokio::spawn(notice_incarnations(Arc::clone(&node))),
        ];
        Ok(Arc::new(Cluster { node, abort, logs: Mutex::new(Some(tasks)), tasks: Mutex::new(others) }))
    }
}

impl Cluster {
    /// Connects to the NATS servers, checks them, reads the identity of the cluster, or founds it, and
    /// creates the logs' streams unless they exist.
    ///
    /// # Errors
    /// `Name`, `Connect`, `ServerVersion`, `NoSync`, `SyncUnknown`, `Stream`,
    /// `Identity`, `Random`; `NameTaken` if another process has the node's name.
    pub async fn join(options: ClusterOptions) -> Result<Joined, ClusterError> {
        let (client, access) = Self::connect(&options).await?;
        let writer = Writer { node: options.node.clone(), process: process_number()? };
        let abort = watch::Sender::new(false);
        let (identity, is_from_copy) = incarnations::find_or_found(&access, &options, abort.subscribe()).await?;
        let names = Names { cluster: options.cluster.clone(), incarnation: identity.incarnation };
        check_name(&client, &names, &options).await?;
        for log in logs(&identity) {
            names.link(&access, log).create(&options.streams).await?;
        }
        let view =
            ClusterView { node: options.node.clone(), placement: Placement::default(), owned: BTreeSet::default() };
        let view = watch::Sender::new(view);
        Ok(Joined { options, access, identity, is_from_copy, writer, view, abort })
    }

    /// Begins the next incarnation of a cluster with the copy of a node, which does not run.
    ///
    /// # Errors
    /// `Identity` if the copy is of an earlier incarnation than the last, or as [`Cluster::join`].
    pub async fn begin_incarnation(options: ClusterOptions, origin: &Origin) -> Result<ClusterIdentity, ClusterError> {
        let (_client, access) = Self::connect(&options).await?;
        incarnations::begin(&access, &options, origin, watch::Sender::new(false).subscribe()).await
    }

    /// Connects to the servers and checks them.
    async fn connect(options: &ClusterOptions) -> Result<(Client, Access), ClusterError> {
        if NodeName::new(options.cluster.as_str()).is_err() {
            let name = options.cluster.clone();
            return Err(ClusterError::Name { what: "the name of the cluster", name });
        }
        let client = connect(options).await?;
        let server = client.server_info();
        server_checks::check_version(&server.server_name, &server.version)?;
        if options.unsafe_no_sync {
            tracing::warn!("whether the NATS servers sync each write is not checked (unsafe_no_sync)");
        } else {
            server_checks::check_syncing(&options.monitor_urls).await?;
        }
        let access = Access::new(&client, &options.timing);
        Ok((client, access))
    }

    /// What this node knows: the placement, and what it owns itself.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<ClusterView> {
        self.node.view.subscribe()
    }

    /// Set once the node cannot take part any more: it has given its logs up and must be stopped.
    #[must_use]
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.node.failure.subscribe()
    }

    /// The state of the cluster, as this node sees it.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        status::of(&self.node)
    }

    /// The last heartbeats of the other live nodes.
    #[must_use]
    pub fn live(&self) -> Vec<Heartbeat> {
        self.node.live()
    }

    /// Tells the other nodes what this one is ready for.
    pub fn set_ready(&self, ready: Vec<String>) {
        *self.node.ready.lock() = ready;
        self.node.beat.notify_one();
    }

    /// Waits until the other live nodes have applied what this node has of the catalog, for a bounded time.
    pub async fn settle(&self) {
        beating::settle(&self.node).await;
    }

    /// Gives the logs up to other nodes, as soon as there are any.
    pub fn drain(&self) {
        self.node.is_draining.store(true, Ordering::Relaxed);
        self.node.beat.notify_one();
    }

    /// Whether this node owns the log and no other can have acknowledged writes since.
    #[must_use]
    pub fn lease_valid(&self, log: LogId) -> bool {
        self.node.logs.get(&log).is_some_and(|handle| handle.state.is_leased())
    }

    /// Makes sure that this node owns the log: what it reads afterwards is the latest.
    ///
    /// # Errors
    /// `NotOwner` or `Stopped`.
    pub async fn confirm(&self, log: LogId) -> Result<(), ClusterError> {
        if self.lease_valid(log) {
            return Ok(());
        }
        let term = self.node.logs.get(&log).and_then(|handle| handle.term.lock().clone());
        let Some(term) = term else { return Err(ClusterError::NotOwner { log }) };
        term.confirm().await.map_err(|end| match end {
            TermEnd::Fenced | TermEnd::Released => ClusterError::NotOwner { log },
            TermEnd::Stopped(reason) => ClusterError::Stopped { log, reason },
        })
    }

    /// How old this node's copy of a log is at most; `None` if that is not known.
    #[must_use]
    pub fn staleness(&self, log: LogId) -> Option<Duration> {
        self.node.logs.get(&log)?.state.staleness(self.node.options.timing.lease)
    }

    /// How long after a change the logs in NATS hold what it has removed, if the live nodes sync it at once: they
    /// are trimmed this often.
    #[must_use]
    pub fn trimmed_within(&self) -> Duration {
        self.node.options.streams.trim_delay + TRIM_LATE_MAX
    }

    /// Gives all logs up and disconnects, within a bounded time; idempotent. What is not appended by
    /// then fails, and whether the last batch of each log is in it is not known.
    pub async fn stop(&self) {
        let logs = self.logs.lock().take();
        let Some(mut logs) = logs else { return };
        self.node.stop_logs();
        let end = async { while logs.join_next().await.is_some() {} };
        let limit = self.node.options.timing.stop;
        if tokio::time::timeout(limit, end).await.is_err() {
            tracing::warn!("the logs are not released in time");
            self.abort.send_replace(true);
            let end = async { while logs.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(ABORT_TIMEOUT, end).await;
        }
        self.node.is_stopped.store(true, Ordering::Relaxed);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        let farewell = async {
            beating::send_one(&self.node).await;
            self.node.access.client.flush().await
        };
        if !matches!(tokio::time::timeout(Duration::from_secs(1), farewell).await, Ok(Ok(()))) {
            tracing::debug!("the other nodes are not told of the end");
        }
        // Its tasks end with the last of the client's clones.
        let _ = self.node.access.client.drain().await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.abort.send_replace(true);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }
}

/// See [`Writer::process`].
fn process_number() -> Result<u64, ClusterError> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| ClusterError::Random { reason: error.to_string() })?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Ok(u64::try_from(started).unwrap_or_default() << 20 | u64::from(u32::from_le_bytes(random) >> 12))
}

async fn connect(options: &ClusterOptions) -> Result<Client, ClusterError> {
    let failed = |reason: String| ClusterError::Connect { servers: options.servers.join(", "), reason };
    let connect = ConnectOptions::new()
        .name(format!("celeris {} {}", options.cluster, options.node))
        .connection_timeout(Duration::from_secs(2))
        .ping_interval(Duration::from_secs(2))
        .request_timeout(Some(Duration::from_secs(3)))
        .reconnect_delay_callback(|attempts| Duration::from_millis(100 * (attempts as u64).min(10)));
    let servers: Result<Vec<async_nats::ServerAddr>, _> = options.servers.iter().map(|server| server.parse()).collect();
    let servers = servers.map_err(|error| failed(error.to_string()))?;
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect.connect(servers)).await;
    connected.map_err(|_| failed("no answer".to_owned()))?.map_err(|error| failed(error.to_string()))
}

/// The logs of an incarnation.
fn logs(identity: &ClusterIdentity) -> impl Iterator<Item = LogId> + use<> {
    std::iter::once(LogId::Catalog).chain(identity.shards.all().map(LogId::Shard))
}

/// Ends the part of this node in the cluster once a later incarnation has begun.
async fn notice_incarnations(node: Arc<Node>) {
    let mut ticks = tokio::time::interval(LOOK_FOR_INCARNATIONS);
    loop {
        ticks.tick().await;
        let Ok(last) = incarnations::last(&node.access, &node.names.cluster).await else { continue };
        if last > node.names.incarnation {
            let failure = format!("incarnation {last} of the cluster has begun: start this node again");
            tracing::error!("{failure}");
            node.failure.send_replace(Some(failure));
            node.stop_logs();
            return;
        }
    }
}

/// Listens whether another process has this node's name: two heartbeats, as one may be the last of
/// a process that has ended.
async fn check_name(client: &Client, names: &Names, options: &ClusterOptions) -> Result<(), ClusterError> {
    let subscribed = client.subscribe(names.heartbeat(options.node.as_str())).await;
    let failed = |reason: String| ClusterError::Connect { servers: options.servers.join(", "), reason };
    let mut heartbeats = subscribed.map_err(|error| failed(error.to_string()))?;
    let listen = async {
        let mut alive = 0;
        while let Some(message) = heartbeats.next().await {
            let heartbeat = serde_json::from_slice::<Heartbeat>(&message.payload);
            alive += u32::from(heartbeat.is_ok_and(|heartbeat| !heartbeat.is_stopped));
            if alive == 2 {
                return;
            }
        }
    };
    match tokio::time::timeout(options.timing.heartbeat * 5 / 2, listen).await {
        Ok(()) => Err(ClusterError::NameTaken { node: options.node.clone() }),
        Err(_) => Ok(()),
    }
}
