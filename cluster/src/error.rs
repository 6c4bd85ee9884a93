//! The error type of this crate.

use celeris_model::{LogId, NodeName};
use celeris_storage::StorageError;
use thiserror::Error;

impl ClusterError {
    /// Whether servers do not answer, which may pass.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::MonitorSilent { .. })
    }

    /// Whether a setting, or what it names, has to be changed.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Name { .. }
                | Self::Address { .. }
                | Self::ServerVersion { .. }
                | Self::NoSync { .. }
                | Self::SyncUnknown { .. }
                | Self::OutdatedCopy { .. }
                | Self::OtherCluster { .. }
                | Self::OtherFounding { .. }
                | Self::NoCluster { .. }
                | Self::NodesRun { .. }
                | Self::LogsGoOn { .. }
                | Self::NameTaken { .. }
                | Self::Login { .. }
                | Self::Refused { .. }
                | Self::SecretMissing { .. }
                | Self::SecretDiffers { .. }
        )
    }
}

#[derive(Debug, Error)]
pub enum ClusterError {
    #[error("{what} {name:?} must consist of 1 to 64 ASCII letters, digits, `-` and `_`")]
    Name { what: &'static str, name: String },
    #[error("the addresses of the NATS servers, {servers}, are not valid: {reason}")]
    Address { servers: String, reason: String },
    #[error("cannot connect to the NATS servers {servers}: {reason}")]
    Connect { servers: String, reason: String },
    #[error("what this node shows the NATS servers cannot be read: {problem}")]
    Login { problem: String },
    #[error(
        "the NATS servers {servers} refuse this node, or it refuses them: {reason}. Check `cluster.nats_user`, \
         `cluster.nats_password_file`, `cluster.nats_token_file` and the files of `cluster.tls`"
    )]
    Refused { servers: String, reason: String },
    #[error(
        "the nodes of cluster {cluster} know each other by a secret, and this node has none: set `cluster.secret_file` to the \
         file that the other nodes have"
    )]
    SecretMissing { cluster: String },
    #[error(
        "this node has another secret than cluster {cluster}: set `cluster.secret_file` to the file that the other nodes have. \
         To change the secret of all nodes, stop them, give them the new file, and run `celeris cluster secret`"
    )]
    SecretDiffers { cluster: String },
    #[error("the NATS server {server} has version {version}, and {needed} or later is needed: update it")]
    ServerVersion { server: String, version: String, needed: &'static str },
    #[error(
        "the NATS server {server} does not sync each write: set `sync_interval: always` in its `jetstream` section, or \
         accept the loss of acknowledged records with `cluster.unsafe_no_sync`"
    )]
    NoSync { server: String },
    #[error(
        "whether the NATS servers sync each write is not known ({reason}): name their monitoring ports in \
         `cluster.nats_monitor`, or accept the loss of acknowledged records with `cluster.unsafe_no_sync`"
    )]
    SyncUnknown { reason: String },
    #[error(
        "too few of the NATS servers' monitoring ports answer ({reason}): start the servers, and check `cluster.nats_monitor`"
    )]
    MonitorSilent { reason: String },
    #[error("cannot {action} the stream {stream}: {reason}")]
    Stream { action: &'static str, stream: String, reason: String },
    #[error("the identity of the cluster in the stream {stream} cannot be read: {reason}")]
    Identity { stream: String, reason: String },
    #[error(
        "cluster {cluster} is at incarnation {last}, and the store is {of}: take a copy or a backup of that incarnation, or \
         begin another cluster with it, by another `cluster.name`"
    )]
    OutdatedCopy { cluster: String, last: u64, of: String },
    #[error("the store is a copy of cluster {of}, and `cluster.name` is {cluster}: correct one of them")]
    OtherCluster { cluster: String, of: String },
    #[error(
        "the store is a copy of another cluster of the name {cluster}, of other NATS servers or founded at another time. If \
         what these servers have of it is not needed, delete the streams celeris-{cluster}-* there, and recover again"
    )]
    OtherFounding { cluster: String },
    #[error(
        "the NATS servers do not have the cluster {cluster} that this node has a copy of, and the copy is kept: check \
         `cluster.nats`; if the servers have lost their data, begin the cluster again with the most complete copy, by \
         `celeris cluster recover`"
    )]
    NoCluster { cluster: String },
    #[error(
        "these nodes of cluster {cluster} run: {nodes}. Stop them first, and start them again when the node with this store runs"
    )]
    NodesRun { cluster: String, nodes: String },
    #[error(
        "the NATS servers have {batches} batches of cluster {cluster} that this store lacks, with changes that may have been \
         acknowledged: start the node with this store, without a recovery, and it reads them. To lose them, if they are \
         damaged, add --discard-logs"
    )]
    LogsGoOn { cluster: String, batches: u64 },
    #[error("another process is node {node} of this cluster: stop it, or give this node another name")]
    NameTaken { node: NodeName },
    #[error("the store is none of a cluster: open it with Storage::open_replica")]
    NotAReplica,
    #[error("another node owns {log}")]
    NotOwner { log: LogId },
    #[error("the log of {log} takes no appends from this node: {reason}")]
    Stopped { log: LogId, reason: String },
    #[error("no random number can be drawn: {reason}")]
    Random { reason: String },
    #[error(transparent)]
    Storage(#[from] StorageError),
}
