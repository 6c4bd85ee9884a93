//! What a node's membership in a cluster needs.

use std::time::Duration;

use celeris_model::{NodeName, Shards};

use crate::login::{Login, ServerTls};

/// How a node takes part in a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The name of the cluster, of the characters that node names have.
    pub cluster: String,
    /// The name of this node, the same after each restart and of no other node.
    pub node: NodeName,
    /// The URL that other nodes and clients reach this node by.
    pub url: String,
    /// The URLs of the NATS servers, with user and password if they ask for them.
    pub servers: Vec<String>,
    /// What the servers ask for instead.
    pub login: Option<Login>,
    /// How connections to the servers are encrypted.
    pub tls: ServerTls,
    /// Proves that this node has the secret of the cluster, without telling it.
    pub secret_proof: Option<String>,
    /// The URLs of the NATS servers' monitoring ports, as `http://host:8222`. From them the node
    /// reads whether the servers sync each write.
    pub monitor_urls: Vec<String>,
    /// Accepts servers that do not sync each write, or of which that is not known. A power failure
    /// of several servers may then lose acknowledged records.
    pub unsafe_no_sync: bool,
    /// The incarnation of the copy that this node has; a node with one founds no cluster.
    pub copy: Option<u64>,
    /// The number of shards of the cluster, if this node is its first.
    pub shards: Shards,
    pub streams: StreamOptions,
    pub timing: Timing,
}

/// How the streams of the logs are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOptions {
    /// The copies of each stream in NATS: 3, or 1 without fault tolerance.
    pub replicas: usize,
    /// Maximum size of a stream; appends are refused beyond it.
    pub bytes_max: u64,
    /// Maximum size of a message.
    pub message_bytes_max: u32,
    /// A stream is trimmed once it is larger.
    pub trim_bytes: u64,
    /// A stream is trimmed at the latest after this time.
    pub trim_delay: Duration,
    /// The number of live nodes that must have synced a batch before it is trimmed.
    pub copies_min: usize,
}

/// The intervals and limits of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats of a node.
    pub heartbeat: Duration,
    /// A node of which nothing new was heard for this time is taken for dead.
    pub dead_after: Duration,
    /// The k-th node in the order of names waits k times this long before it claims the catalog.
    pub election_step: Duration,
    /// An append is repeated if its outcome is not known after this time.
    pub ack_timeout: Duration,
    /// Between an append that failed and its repetition.
    pub retry_wait: Duration,
    /// How long an owner may take no other owner to exist, from when it sent its last successful append.
    pub lease: Duration,
    /// An owner appends that it is one, if it has appended nothing for this time: no copy is known to be current for
    /// longer than that.
    pub renew: Duration,
    /// How long a new owner waits for the release of the previous one, if that is alive.
    pub release_wait: Duration,
    /// Between two syncs of the store, checks of the streams, and inquiries for tails.
    pub upkeep: Duration,
    /// How long a change of the catalog waits for the other nodes to apply it.
    pub settle: Duration,
    /// Maximum duration of [`crate::Cluster::stop`].
    pub stop: Duration,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            replicas: 3,
            bytes_max: 4 << 30,
            message_bytes_max: 1 << 20,
            trim_bytes: 64 << 20,
            trim_delay: Duration::from_secs(600),
            copies_min: 2,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            dead_after: Duration::from_secs(4),
            election_step: Duration::from_secs(1),
            ack_timeout: Duration::from_millis(250),
            retry_wait: Duration::from_millis(20),
            lease: Duration::from_secs(1),
            renew: Duration::from_secs(2),
            release_wait: Duration::from_secs(3),
            upkeep: Duration::from_secs(1),
            settle: Duration::from_secs(2),
            stop: Duration::from_secs(10),
        }
    }
}

impl ClusterOptions {
    /// Options with the defaults.
    #[must_use]
    pub fn new(cluster: impl Into<String>, node: NodeName, url: impl Into<String>, servers: Vec<String>) -> Self {
        Self {
            cluster: cluster.into(),
            node,
            url: url.into(),
            servers,
            login: None,
            tls: ServerTls::default(),
            secret_proof: None,
            monitor_urls: Vec::new(),
            unsafe_no_sync: false,
            copy: None,
            shards: Shards::new(6).expect("6 is a number of shards"),
            streams: StreamOptions::default(),
            timing: Timing::default(),
        }
    }
}
