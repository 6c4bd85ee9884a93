//! The secret by which the nodes of a cluster know each other.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use celeris_manager::access::SecretHash;
use ring::hmac;

use super::{Principal, secret_in};

/// The secret, in requests of nodes.
const SECRET: HeaderName = HeaderName::from_static("celeris-node-secret");

/// Who asked the node that has forwarded a request.
const PRINCIPAL: HeaderName = HeaderName::from_static("celeris-principal");

/// The id of their key.
const PRINCIPAL_KEY: HeaderName = HeaderName::from_static("celeris-principal-key");

/// The secret of a cluster; none if its nodes are not to know each other.
#[derive(Clone, Default)]
pub struct NodeSecret(Option<Arc<Known>>);

struct Known {
    hash: SecretHash,
    /// As requests have it.
    header: HeaderValue,
    /// Signs proofs of it.
    key: hmac::Key,
}

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
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Ok(Self(Some(Arc::new(Known { hash: SecretHash::of(&secret), header: value, key }))))
    }

    #[must_use]
    pub fn exists(&self) -> bool {
        self.0.is_some()
    }

    /// Shows that this node has the secret of a cluster, without telling it: a keyed hash of the name.
    #[must_use]
    pub fn proof(&self, cluster: &str) -> Option<String> {
        let known = self.0.as_ref()?;
        let tag = hmac::sign(&known.key, format!("celeris cluster {cluster}").as_bytes());
        Some(tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether a request has the secret; `None` if it has none.
    #[must_use]
    pub fn is_in(&self, headers: &HeaderMap) -> Option<bool> {
        let sent = headers.get(SECRET)?;
        let is_own = |known: &Arc<Known>| sent.to_str().is_ok_and(|sent| known.hash.is_of(sent));
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
        headers.remove(PRINCIPAL_KEY);
        headers.remove(SECRET);
        let Some(secret) = &self.0 else { return };
        headers.insert(SECRET, secret.header.clone());
        let Some(principal) = principal else { return };
        // A subject of a token may have characters that a header has not.
        let name = HeaderValue::from_bytes(principal.name().as_bytes());
        headers.insert(PRINCIPAL, name.unwrap_or_else(|_| HeaderValue::from_static("not printable")));
        if let Some(id) = principal.key().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(PRINCIPAL_KEY, id);
        }
    }
}

/// The principal that another node names; `None` if it names none, as a node that is open.
#[must_use]
pub fn principal_of_node(headers: &HeaderMap) -> Option<Principal> {
    let text =
        |name: &HeaderName| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    Some(Principal::trusted(text(&PRINCIPAL)?, text(&PRINCIPAL_KEY)))
}

impl Principal {
    /// Another node itself.
    #[must_use]
    pub fn node() -> Self {
        Self::trusted("another node".to_owned(), None)
    }
}
