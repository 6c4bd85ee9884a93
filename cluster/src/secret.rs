//! The proof of the secret by which the nodes of a cluster know each other.
//!
//! It lies in the servers, in the metadata of the stream of incarnations, and every node that joins compares it with its own:
//! a node without the secret of its cluster, or with another one, takes no part. The proof does not tell the secret. Who has
//! the servers has the logs anyway; this keeps a node out whose configuration is wrong.

use crate::error::ClusterError;
use crate::options::ClusterOptions;
use crate::streams::{Access, Link, Names};

/// Its name in the metadata.
const PROOF: &str = "celeris-secret";

fn link(access: &Access, options: &ClusterOptions) -> Link {
    let (stream, subject) = Names::incarnations(&options.cluster);
    Link { access: access.clone(), stream, subject }
}

/// Checks that the cluster, if it has a secret, has that of this node.
///
/// # Errors
/// `SecretMissing` or `SecretDiffers`, or `Stream`.
pub(crate) async fn check(access: &Access, options: &ClusterOptions) -> Result<(), ClusterError> {
    let known = link(access, options).metadata(PROOF).await?;
    let cluster = options.cluster.clone();
    match (&known, &options.secret_proof) {
        (Some(_), None) => Err(ClusterError::SecretMissing { cluster }),
        (Some(known), Some(own)) if known != own => Err(ClusterError::SecretDiffers { cluster }),
        _ => Ok(()),
    }
}

/// Gives the cluster the secret of this node, if it has none yet.
///
/// # Errors
/// As [`check`]; another node may have given it one meanwhile.
pub(crate) async fn keep(access: &Access, options: &ClusterOptions) -> Result<(), ClusterError> {
    let link = link(access, options);
    if options.secret_proof.is_some() && link.metadata(PROOF).await?.is_none() {
        link.set_metadata(PROOF, options.secret_proof.as_deref()).await?;
        tracing::info!(cluster = options.cluster, "the cluster has a secret from now on: nodes without it do not join");
    }
    check(access, options).await
}

/// Gives the cluster the secret of this node in place of the one it has, or none if this node has none.
///
/// # Errors
/// `NoCluster` or `Stream`.
pub(crate) async fn replace(access: &Access, options: &ClusterOptions) -> Result<(), ClusterError> {
    let link = link(access, options);
    if !link.exists().await? {
        return Err(ClusterError::NoCluster { cluster: options.cluster.clone() });
    }
    link.set_metadata(PROOF, options.secret_proof.as_deref()).await
}
