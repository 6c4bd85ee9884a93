//! The section `[cluster.tls]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Encryption of what the node sends to other nodes whose URL is `https://`, and to NATS servers whose address is `tls://`. The
/// files are read again when they change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterTls {
    /// The authorities of the certificates of the other nodes and of the NATS servers, in PEM. Nodes need it; for NATS servers
    /// those of the system count without it.
    #[schema(value_type = Option<String>)]
    pub ca: Option<PathBuf>,
    /// The certificate that the node shows to nodes and servers that ask for one, and those that lead to its authority, in PEM.
    #[schema(value_type = Option<String>)]
    pub cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    #[schema(value_type = Option<String>)]
    pub key: Option<PathBuf>,
}

impl ClusterTls {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.cert.is_some() != self.key.is_some() {
            return Err("cluster.tls: cert and key are given together".to_owned());
        }
        Ok(())
    }
}
