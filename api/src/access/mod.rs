//! Who asks, and whether they may.
//!
//! A node is open until it has a key ([`celeris_manager::access`]), or `auth.admin_key_file` or `auth.oidc` is configured. Then
//! every request needs `Authorization: Bearer KEY`, with a key or a token, except checks of health and the files of the page, which hold
//! no data. What an operation needs is in `table.rs`; `middleware/admission.rs` checks it before the handler, which finds the
//! [`Principal`] among the extensions of the request (`asking.rs`).

mod node_secret;
mod rates;
mod table;
mod tokens;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, header};
use celeris_manager::access::is_same_secret;
use celeris_manager::{ApiKey, ApiKeys, Grant};
use celeris_model::Timestamp;

pub use self::node_secret::{NodeSecret, principal_of_node};
pub use self::rates::Counted;
use self::rates::Rates;
#[cfg(test)]
pub use self::table::operations;
pub use self::table::{Needs, needs, role_of};
use self::tokens::Tokens;
use crate::config::Auth;
use crate::error::ApiError;

/// How long a stream waits for the rate of its key at most, and between two looks whether the key is still valid.
const PACE_MAX: Duration = Duration::from_secs(60);
const PACE_LOOK: Duration = Duration::from_secs(1);

/// Shortest secret in a file, in bytes.
const SECRET_BYTES_MIN: usize = 32;

/// Who asks.
#[derive(Debug, Clone)]
pub struct Principal(Arc<Identity>);

#[derive(Debug)]
struct Identity {
    /// As audit events name it.
    name: String,
    grant: Grant,
    /// The id of the key.
    key: Option<String>,
    /// Whether the rates of the key count here; those of a forwarded request have counted.
    is_rated: bool,
    /// When a token expires.
    expires: Option<Timestamp>,
}

impl Principal {
    fn of_key(key: &ApiKey) -> Self {
        let name = format!("key {} ({})", key.id, key.name);
        let (grant, key) = (key.grant.clone(), Some(key.id.clone()));
        Self(Arc::new(Identity { name, grant, key, is_rated: true, expires: None }))
    }

    fn of_token(subject: &str, grant: Grant, expires: Option<Timestamp>) -> Self {
        let name = format!("token of {subject}");
        Self(Arc::new(Identity { name, grant, key: None, is_rated: false, expires }))
    }

    /// May do everything: another node has checked the key, if there is one.
    fn trusted(name: String, key: Option<String>) -> Self {
        Self(Arc::new(Identity { name, grant: Grant::all(), key, is_rated: false, expires: None }))
    }

    /// The id of the key, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.0.grant
    }
}

/// The secrets and rates of a node.
pub struct Access {
    admin_key: Option<String>,
    tokens: Option<Arc<Tokens>>,
    node_secret: NodeSecret,
    rates: Rates,
}

impl Access {
    /// Reads the key that the configuration names.
    ///
    /// # Errors
    /// With the name of the setting.
    pub fn open(auth: &Auth, node_secret: NodeSecret) -> Result<Self, String> {
        let admin_key =
            auth.admin_key_file.as_deref().map(|path| secret_in("auth.admin_key_file", path)).transpose()?;
        let tokens = Tokens::open(&auth.oidc)?.map(Arc::new);
        Ok(Self { admin_key, tokens, node_secret, rates: Rates::default() })
    }

    /// Whether requests need a key.
    #[must_use]
    pub fn is_required(&self, keys: &ApiKeys) -> bool {
        self.admin_key.is_some() || self.tokens.is_some() || keys.are_required()
    }

    /// Whether a key of the configuration stays when all others are revoked.
    #[must_use]
    pub fn has_admin_key(&self) -> bool {
        self.admin_key.is_some()
    }

    /// The secret by which the nodes of the cluster know each other.
    #[must_use]
    pub fn node_secret(&self) -> &NodeSecret {
        &self.node_secret
    }

    /// Who sends a request.
    ///
    /// # Errors
    /// 401 without a valid key or token.
    pub async fn principal_of(&self, keys: &ApiKeys, headers: &HeaderMap) -> Result<Principal, ApiError> {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(first), None) = (sent.next(), sent.next()) else {
            return Err(ApiError::unauthenticated("this node needs a key: send it as Authorization: Bearer KEY"));
        };
        let text = first.to_str().unwrap_or_default();
        let key = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some(key) = key.map(|(_, key)| key.trim()) else {
            return Err(ApiError::unauthenticated("send the key as Authorization: Bearer KEY"));
        };
        if self.admin_key.as_deref().is_some_and(|admin| is_same_secret(admin, key)) {
            return Ok(Principal::trusted("auth.admin_key_file".to_owned(), None));
        }
        if let Some(tokens) = self.tokens.as_ref().filter(|_| key.split('.').count() == 3) {
            return tokens.principal(key).await;
        }
        let found = keys.find(key, Timestamp::from(SystemTime::now()));
        found.map(|key| Principal::of_key(&key)).ok_or_else(|| {
            ApiError::unauthenticated(
                "the key is not known, was revoked or has expired; `celeris keys list` shows the keys",
            )
        })
    }

    /// Fails if a request may not go on any more: its key was revoked or has expired, or the node was open when it came.
    ///
    /// # Errors
    /// 401.
    pub fn check_goes_on(&self, keys: &ApiKeys, principal: Option<&Principal>) -> Result<(), ApiError> {
        let now = Timestamp::from(SystemTime::now());
        let is_over = match principal.map(|principal| &*principal.0) {
            None => self.is_required(keys),
            Some(Identity { key: Some(id), .. }) => keys.is_refused(id, now),
            Some(Identity { expires, .. }) => expires.is_some_and(|expires| now >= expires),
        };
        if is_over {
            return Err(ApiError::unauthenticated("the key is not valid any more, or the node needs one by now"));
        }
        Ok(())
    }

    /// Waits until the rates of a principal allow a number of observations, and counts them.
    ///
    /// # Errors
    /// 401 if its key is not valid any more, 429 if that would take too long.
    pub async fn pace(
        &self,
        keys: &ApiKeys,
        principal: Option<&Principal>,
        observations: usize,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        loop {
            self.check_goes_on(keys, principal)?;
            let Some(principal) = principal else { return Ok(()) };
            let Err(refused) = self.take(principal, Counted::Observations, observations as f64) else { return Ok(()) };
            let wait = refused.retry_after().unwrap_or(PACE_LOOK);
            if begun.elapsed() + wait > PACE_MAX {
                return Err(refused);
            }
            tokio::time::sleep(wait.min(PACE_LOOK)).await;
        }
    }

    /// Takes some of what a principal may use.
    ///
    /// # Errors
    /// 429 if nothing is left.
    pub fn take(&self, principal: &Principal, counted: Counted, amount: f64) -> Result<(), ApiError> {
        let Some(key) = principal.0.key.as_ref().filter(|_| principal.0.is_rated) else { return Ok(()) };
        self.rates.take(key, principal.grant(), counted, amount, Instant::now()).map_err(|wait| {
            let what = match counted {
                Counted::Requests => "requests",
                Counted::Observations => "observations",
            };
            ApiError::too_many(format!("the key has no {what} left now; wait as long as Retry-After says"), wait)
        })
    }
}

/// The secret in a file, without white space around it.
fn secret_in(setting: &str, path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{setting}: {}: {error}", path.display()))?;
    let secret = text.trim();
    if secret.len() < SECRET_BYTES_MIN || secret.contains(char::is_whitespace) {
        return Err(format!(
            "{setting}: {} must hold one secret of at least {SECRET_BYTES_MIN} characters, as `openssl rand -hex 32` writes",
            path.display()
        ));
    }
    Ok(secret.to_owned())
}
