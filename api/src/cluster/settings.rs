//! What the configuration says of a cluster, and what is done with it while the node does not run.

use celeris_cluster::{ClusterOptions, Login, ServerTls, StreamOptions};
use celeris_model::Shards;
use celeris_storage::{ClusterIdentity, Storage, StorageError};

use super::JoinError;
use crate::access::NodeSecret;
use crate::config;

/// Maximum size of a log in NATS, which the servers reserve for each. Appends beyond it wait until it is trimmed.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// `own` is the URL of the node unless the configuration names another.
pub(super) fn options(config: &config::Cluster, own: &str, secret: &NodeSecret) -> Option<ClusterOptions> {
    let (cluster, node) = (config.name.clone()?, config.node.clone()?);
    let url = config.url.clone().unwrap_or_else(|| own.to_owned());
    let password = config.nats_user.clone().zip(config.nats_password_file.clone());
    let login = password.map(|(user, file)| Login::Password { user, file });
    Some(ClusterOptions {
        login: login.or_else(|| config.nats_token_file.clone().map(|file| Login::Token { file })),
        tls: ServerTls {
            is_required: config.encrypts_nats(),
            ca: config.tls.ca.clone(),
            certificate: config.tls.cert.clone().zip(config.tls.key.clone()),
        },
        secret_proof: secret.proof(&cluster),
        monitor_urls: config.nats_monitor.clone(),
        unsafe_no_sync: config.unsafe_no_sync,
        shards: Shards::new(config.shards)?,
        streams: StreamOptions {
            replicas: config.replicas,
            trim_delay: config.trim_delay,
            bytes_max: LOG_BYTES_MAX,
            // Without copies in NATS, one node is enough.
            copies_min: config.replicas.min(2),
            ..StreamOptions::default()
        },
        ..ClusterOptions::new(cluster, node, url, config.nats.clone())
    })
}

/// Begins the next incarnation of the cluster of the configuration with this store, which is to be closed by
/// [`Storage::begin_incarnation`] next. What the logs in the servers have beyond it is lost with `discard_logs`, and an error
/// without.
///
/// # Errors
/// Those of the cluster or the store.
pub async fn begin_incarnation(
    config: &config::Cluster,
    storage: &Storage,
    discard_logs: bool,
) -> Result<ClusterIdentity, JoinError> {
    Ok(celeris_cluster::begin_incarnation(recovery_options(config)?, storage, discard_logs).await?)
}

/// Gives the cluster of the configuration the secret of the configuration in place of the one it has, or none. Its nodes do not
/// run. Returns whether it has one now.
///
/// # Errors
/// Those of the cluster, or `Directory` for a file that cannot be read.
pub async fn replace_secret(config: &config::Cluster) -> Result<bool, JoinError> {
    let options = recovery_options(config)?;
    let has_secret = options.secret_proof.is_some();
    celeris_cluster::replace_secret(&options).await?;
    Ok(has_secret)
}

/// Checks that the cluster of the configuration may begin again with this store, and returns how many batches the logs in the
/// servers have beyond it.
///
/// # Errors
/// Those of the cluster or the store.
pub async fn check_recovery(config: &config::Cluster, storage: &Storage) -> Result<u64, JoinError> {
    Ok(celeris_cluster::check_recovery(&recovery_options(config)?, storage).await?)
}

fn recovery_options(config: &config::Cluster) -> Result<ClusterOptions, JoinError> {
    let secret = NodeSecret::open(config.secret_file.as_deref()).map_err(JoinError::Directory)?;
    // Its address is of no use here.
    Ok(options(config, "http://127.0.0.1", &secret).ok_or(StorageError::NotOwner)?)
}

/// Says that the log can be read on its way to the servers, if it can.
pub(super) fn warn_of_open_servers(config: &config::Cluster) {
    if !config.encrypts_nats() && config.nats.iter().any(|server| !is_of_this_machine(server)) {
        tracing::warn!("what is sent to the NATS servers is not encrypted: their addresses do not begin with tls://");
    }
}

/// Whether a server is reached without a network.
fn is_of_this_machine(server: &str) -> bool {
    let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let host = host.split_once("://").map_or(host, |(_, host)| host);
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host.starts_with(name))
}
