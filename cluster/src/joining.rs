//! How a node becomes a member of a cluster: it connects, checks the servers, learns the identity of the cluster or
//! founds it, and begins to take part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{Client, ConnectErrorKind};
use celeris_model::address::without_login;
use celeris_model::{ClusterView, LogId, NodeName, Placement};
use celeris_storage::{ClusterIdentity, Storage};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::batch::{FORMAT, Writer};
use crate::beating;
use crate::chain::Cursor;
use crate::error::ClusterError;
use crate::follower::end_of;
use crate::heartbeat::{Heartbeat, LogReport};
use crate::incarnations::{self, Identified, Origin};
use crate::login;
use crate::options::ClusterOptions;
use crate::secret;
use crate::server_checks;
use crate::streams::{Access, Names, short_name};

/// How long the first connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long servers that do not answer yet are waited for, and how often they are tried and reported.
const SERVERS_WAIT: Duration = Duration::from_secs(60);
const SERVERS_RETRY: Duration = Duration::from_secs(1);
const SERVERS_REPORT: Duration = Duration::from_secs(10);

/// A node that knows its cluster and takes no part in it yet.
pub struct Joined {
    pub(crate) options: ClusterOptions,
    pub(crate) access: Access,
    identified: Identified,
    pub(crate) writer: Writer,
    pub(crate) view: watch::Sender<ClusterView>,
    pub(crate) abort: watch::Sender<bool>,
    /// Counts the heartbeats of the process.
    pub(crate) counter: Arc<AtomicU64>,
    pub(crate) starting: Mutex<Option<Starting>>,
}

/// The heartbeats of a node that starts. They end when it is dropped.
pub(crate) struct Starting(JoinHandle<()>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Joined {
    /// Connects to the NATS servers, checks them, reads the identity of the cluster, or founds it, and
    /// creates the logs' streams unless they exist. Servers that do not answer yet are waited for.
    ///
    /// # Errors
    /// `Name`, `Connect`, `ServerVersion`, `NoSync`, `SyncUnknown`, `Stream`,
    /// `Identity`, `Random`; `NameTaken` if another process has the node's name; `SecretMissing` or `SecretDiffers` if the
    /// cluster has a secret and this node has not.
    pub async fn join(options: ClusterOptions) -> Result<Self, ClusterError> {
        let (client, access) = connect(&options).await?;
        let writer = Writer { node: options.node.clone(), process: process_number()? };
        let abort = watch::Sender::new(false);
        let identified = incarnations::find_or_found(&access, &options, abort.subscribe()).await?;
        secret::check(&access, &options).await?;
        let identity = &identified.identity;
        let (cluster, shards) = (identity.name.as_str(), identity.shards.count());
        if identified.is_founded {
            tracing::info!(cluster, shards, "a new cluster is founded");
        } else {
            tracing::info!(cluster, shards, incarnation = identity.incarnation, "the node joins the cluster");
        }
        let names = Names { cluster: options.cluster.clone(), incarnation: identity.incarnation };
        check_name(&client, &names, &options).await?;
        for log in logs(identity) {
            names.link(&access, log).create(&options.streams).await?;
        }
        let view =
            ClusterView { node: options.node.clone(), placement: Placement::default(), owned: BTreeSet::default() };
        let view = watch::Sender::new(view);
        let (counter, starting) = (Arc::default(), Mutex::default());
        Ok(Self { options, access, identified, writer, view, abort, counter, starting })
    }

    /// As [`crate::Cluster::view`]; nothing is placed before the start.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<ClusterView> {
        self.view.subscribe()
    }

    /// Gives the cluster the secret of this node, if it has none yet: nodes without it do not join from then on.
    ///
    /// # Errors
    /// `SecretDiffers`, or `Stream`.
    pub async fn keep_secret(&self) -> Result<(), ClusterError> {
        secret::keep(&self.access, &self.options).await
    }

    /// What the store is opened with.
    #[must_use]
    pub fn identity(&self) -> &ClusterIdentity {
        &self.identified.identity
    }

    /// Tells the other nodes, until the start, that this one starts with this store, or none: the logs are not trimmed
    /// past what it has, unless they are full. Must be called in a runtime; syncs the store.
    ///
    /// # Errors
    /// `NotAReplica` or `Storage`.
    pub async fn announce(&self, storage: Option<&Storage>) -> Result<(), ClusterError> {
        let mut reports = BTreeMap::new();
        if let Some(storage) = storage {
            for (log, cursor) in storage.replica().ok_or(ClusterError::NotAReplica)?.sync()? {
                let durable = Cursor::decode(&cursor).unwrap_or_default().sequence;
                reports.insert(short_name(log), LogReport { applied: durable, durable, ..LogReport::default() });
            }
        }
        let mut heartbeat = Heartbeat {
            node: self.writer.node.clone(),
            process: self.writer.process,
            counter: 0,
            url: self.options.url.clone(),
            formats: vec![FORMAT],
            is_starting: true,
            is_draining: false,
            is_stopped: false,
            logs: reports,
            ready: Vec::new(),
            placement: None,
        };
        let (client, subject) = (self.access.client.clone(), self.names().heartbeat(self.writer.node.as_str()));
        let (counter, mut ticks) = (Arc::clone(&self.counter), tokio::time::interval(self.options.timing.heartbeat));
        let mut beat = async move || {
            ticks.tick().await;
            heartbeat.counter = counter.fetch_add(1, Ordering::Relaxed) + 1;
            beating::publish(&client, subject.clone(), &heartbeat).await;
        };
        *self.starting.lock() = None;
        beat().await;
        if let Err(error) = self.access.client.flush().await {
            tracing::debug!(%error, "the start of the node is not announced");
        }
        let beats = tokio::spawn(async move {
            loop {
                beat().await;
            }
        });
        *self.starting.lock() = Some(Starting(beats));
        Ok(())
    }

    /// Whether an empty store lacks what the cluster had before its logs began.
    ///
    /// # Errors
    /// `Stream`.
    pub async fn needs_copy(&self) -> Result<bool, ClusterError> {
        if self.identified.is_from_copy {
            return Ok(true);
        }
        for log in logs(self.identity()) {
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
        for log in logs(self.identity()) {
            if end_of(storage, log)? + 1 < self.first(log).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first sequence that the stream of a log has or will have.
    async fn first(&self, log: LogId) -> Result<u64, ClusterError> {
        Ok(self.names().link(&self.access, log).extent().await?.first)
    }

    pub(crate) fn names(&self) -> Names {
        Names { cluster: self.options.cluster.clone(), incarnation: self.identity().incarnation }
    }

    /// The other live nodes with their URLs: listens for their heartbeats.
    pub async fn peers(&self) -> BTreeMap<NodeName, String> {
        let heartbeats = self.names().heartbeat("*");
        let mut peers = heard(&self.access.client, heartbeats, self.options.timing.heartbeat * 5 / 2).await;
        peers.retain(|node, heartbeat| !heartbeat.is_starting && *node != self.options.node);
        peers.into_iter().map(|(node, heartbeat)| (node, heartbeat.url)).collect()
    }
}

/// Checks that the next incarnation of a cluster may begin with the copy of a node, and returns how many batches the logs
/// in the servers have beyond it: a node that starts with the copy would read them.
///
/// # Errors
/// `OtherCluster` or `OtherFounding`; `OutdatedCopy` if the copy is of an earlier incarnation than the last; or as
/// [`Joined::join`].
pub async fn check_recovery(options: &ClusterOptions, storage: &Storage) -> Result<u64, ClusterError> {
    let origin = Origin::of(storage, options)?;
    let (_client, access) = connect(options).await?;
    incarnations::batches_beyond(&access, options, &origin).await
}

/// Begins the next incarnation of a cluster with the copy of a node, which does not run. The logs of the incarnations before
/// are deleted.
///
/// # Errors
/// As [`check_recovery`]; `NodesRun` if a node of the cluster runs; `LogsGoOn` if the logs have batches beyond the copy,
/// unless they are to be discarded.
pub async fn begin_incarnation(
    options: ClusterOptions,
    storage: &Storage,
    discard_logs: bool,
) -> Result<ClusterIdentity, ClusterError> {
    let cluster = options.cluster.clone();
    let origin = Origin::of(storage, &options)?;
    let (_client, access) = connect(&options).await?;
    check_none_runs(&access, &options).await?;
    let batches = incarnations::batches_beyond(&access, &options, &origin).await?;
    if batches > 0 && !discard_logs {
        return Err(ClusterError::LogsGoOn { cluster, batches });
    }
    incarnations::begin(&access, &options, &origin, watch::Sender::new(false).subscribe()).await
}

/// Gives a cluster the secret of these options in place of the one it has, or none. Its nodes do not run.
///
/// # Errors
/// `NodesRun` if a node of the cluster runs, `NoCluster` if there is none of the name; or as [`Joined::join`].
pub async fn replace_secret(options: &ClusterOptions) -> Result<(), ClusterError> {
    let (_client, access) = connect(options).await?;
    check_none_runs(&access, options).await?;
    secret::replace(&access, options).await
}

async fn check_none_runs(access: &Access, options: &ClusterOptions) -> Result<(), ClusterError> {
    let cluster = options.cluster.clone();
    let nodes = heard(&access.client, Names::all_heartbeats(&cluster), options.timing.heartbeat * 5 / 2).await;
    if nodes.is_empty() {
        return Ok(());
    }
    let nodes = nodes.into_keys().map(|node| node.to_string()).collect::<Vec<_>>().join(", ");
    Err(ClusterError::NodesRun { cluster, nodes })
}

/// Connects to the servers and checks them, once they answer.
async fn connect(options: &ClusterOptions) -> Result<(Client, Access), ClusterError> {
    if NodeName::new(options.cluster.as_str()).is_err() {
        let name = options.cluster.clone();
        return Err(ClusterError::Name { what: "the name of the cluster", name });
    }
    let until = Instant::now() + SERVERS_WAIT;
    let mut reported: Option<Instant> = None;
    loop {
        match connect_once(options).await {
            Err(error) if error.is_silence() && Instant::now() < until => {
                if reported.is_none_or(|at| at.elapsed() > SERVERS_REPORT) {
                    tracing::warn!("{error}; the servers are waited for, at most {} s", SERVERS_WAIT.as_secs());
                    reported = Some(Instant::now());
                }
                tokio::time::sleep(SERVERS_RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

async fn connect_once(options: &ClusterOptions) -> Result<(Client, Access), ClusterError> {
    let client = open(options).await?;
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

async fn open(options: &ClusterOptions) -> Result<Client, ClusterError> {
    let servers = shown(&options.servers);
    let count = options.servers.len();
    let connect = login::begin(options.login.as_ref(), &options.tls)?
        .name(format!("celeris {} {}", options.cluster, options.node))
        .connection_timeout(Duration::from_secs(2))
        .ping_interval(Duration::from_secs(2))
        .request_timeout(Some(Duration::from_secs(3)))
        // Every server is tried without a pause before any is tried again.
        .reconnect_delay_callback(move |attempts| {
            Duration::from_millis(100 * (attempts.saturating_sub(count) as u64).min(10))
        });
    let addresses: Result<Vec<async_nats::ServerAddr>, _> =
        options.servers.iter().map(|server| server.parse()).collect();
    let addresses =
        addresses.map_err(|error| ClusterError::Address { servers: servers.clone(), reason: error.to_string() })?;
    let failed = |reason: String| ClusterError::Connect { servers: servers.clone(), reason };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect.connect(addresses)).await;
    connected.map_err(|_| failed("no answer".to_owned()))?.map_err(|error| match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Tls => {
            ClusterError::Refused { servers: servers.clone(), reason: error.to_string() }
        }
        _ => failed(error.to_string()),
    })
}

/// Addresses as messages name them.
fn shown(servers: &[String]) -> String {
    servers.iter().map(|server| without_login(server)).collect::<Vec<_>>().join(", ")
}

/// See [`Writer::process`].
fn process_number() -> Result<u64, ClusterError> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| ClusterError::Random { reason: error.to_string() })?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Ok(u64::try_from(started).unwrap_or_default() << 20 | u64::from(u32::from_le_bytes(random) >> 12))
}

/// The last heartbeats of the nodes that are heard within this time and have not stopped.
async fn heard(client: &Client, subject: String, time: Duration) -> BTreeMap<NodeName, Heartbeat> {
    let mut heard = BTreeMap::new();
    let Ok(mut heartbeats) = client.subscribe(subject).await else { return heard };
    let listen = async {
        while let Some(message) = heartbeats.next().await {
            if let Ok(heartbeat) = serde_json::from_slice::<Heartbeat>(&message.payload) {
                heard.insert(heartbeat.node.clone(), heartbeat);
            }
        }
    };
    // It ends with the time only.
    let _ = tokio::time::timeout(time, listen).await;
    heard.retain(|_, heartbeat| !heartbeat.is_stopped);
    heard
}

/// The logs of an incarnation.
fn logs(identity: &ClusterIdentity) -> impl Iterator<Item = LogId> + use<> {
    std::iter::once(LogId::Catalog).chain(identity.shards.all().map(LogId::Shard))
}

/// Listens whether another process has this node's name: two heartbeats, as one may be the last of
/// a process that has ended.
async fn check_name(client: &Client, names: &Names, options: &ClusterOptions) -> Result<(), ClusterError> {
    let subscribed = client.subscribe(names.heartbeat(options.node.as_str())).await;
    let failed = |reason: String| ClusterError::Connect { servers: shown(&options.servers), reason };
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
