//! The secret by which the nodes of a cluster know each other.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use celeris_manager::access::is_same_secret;

use super::{Principal, secret_in};

/// The secret, in requests of nodes.
const SECRET: HeaderName = HeaderName::from_static("celeris-node-secret");

/// Who asked the node that has forwarded a request.
const PRINCIPAL: HeaderName = HeaderName::from_static("celeris-principal");

/// The secret of a cluster; none if its nodes are not to know each other.
#[derive(Clone, Default)]
pub struct NodeSecret(Option<Arc<(String, HeaderValue)>>);

impl NodeSecret {
    /// Reads the secret of `cluster.secret_file`.
    ///
    /// # Errors
    /// With the name of the setting.
    pub fn open(file: Option<&Path>) -> Result<Self, String> {
        let Some(file) = file else { return Ok(Self::default()) };
        let secret = secret_in("cluster.secret_file", file)?;
        let mut value = HeaderValue::from_str(&secret).map_err(|_| {
            "cluster.secret_file: a secret consists of visible ASCII characters, as `openssl rand -hex 32` writes"
                .to_owned()
        })?;
        value.set_sensitive(true);
        Ok(Self(Some(Arc::new((secret, value)))))
    }

    #[must_use]
    pub fn exists(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a request has the secret; `None` if it has none.
    #[must_use]
    pub fn is_in(&self, headers: &HeaderMap) -> Option<bool> {
        let sent = headers.get(SECRET)?;
        let is_own =
            |known: &Arc<(String, HeaderValue)>| sent.to_str().is_ok_and(|sent| is_same_secret(&known.0, sent));
        Some(self.0.as_ref().is_some_and(is_own))
    }

    /// The headers of a request that the node makes by itself.
    #[must_use]
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.sign(&mut headers, None);
        headers
    }

    /// Gives a request to another node the secret, and the name of who asks, in place of the key.
    pub fn sign(&self, headers: &mut HeaderMap, principal: Option<&Principal>) {
        headers.remove(header::AUTHORIZATION);
        headers.remove(PRINCIPAL);
        headers.remove(SECRET);
        let Some(secret) = &self.0 else { return };
        headers.insert(SECRET, secret.1.clone());
        if let Some(name) = principal.and_then(|principal| HeaderValue::from_bytes(principal.name().as_bytes()).ok()) {
            headers.insert(PRINCIPAL, name);
        }
    }
}

/// The principal that another node names.
#[must_use]
pub fn principal_of_node(headers: &HeaderMap) -> Principal {
    let name = headers.get(PRINCIPAL).map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    Principal::trusted(name.unwrap_or_else(|| "another node".to_owned()))
}
