//! The section `[server.tls]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Encryption of connections, if there are a certificate and its key. The files are read again when they change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// The certificate of the node and those that lead to its authority, in PEM.
    #[schema(value_type = Option<String>)]
    pub cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    #[schema(value_type = Option<String>)]
    pub key: Option<PathBuf>,
    /// The authorities of which clients must have a certificate, in PEM; without them, clients need none.
    #[schema(value_type = Option<String>)]
    pub client_ca: Option<PathBuf>,
}

impl Tls {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.cert.is_some() != self.key.is_some() {
            return Err("server.tls: cert and key are given together".to_owned());
        }
        if self.client_ca.is_some() && self.cert.is_none() {
            return Err("server.tls.client_ca: needs server.tls.cert and server.tls.key".to_owned());
        }
        Ok(())
    }
}
