//! Who asks, and whether they may.
//!
//! A node is open until it has a key ([`celeris_manager::access`]), or `auth.admin_key_file` or `auth.oidc` is configured. Then
//! every request needs `Authorization: Bearer KEY`, with a key or a token, except checks of health and the files of the page, which hold
//! no data. What an operation needs is in `table.rs`; `middleware/admission.rs` checks it before the handler, which finds the
//! [`Principal`] among the extensions of the request (`asking.rs`).

mod node_secret;
mod rates;
mod streams;
mod table;
mod tokens;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, header};
use celeris_manager::access::SecretHash;
use celeris_manager::{ApiKey, ApiKeys, Grant};
use celeris_model::Timestamp;
use tokio::sync::Semaphore;

pub use self::node_secret::{NodeSecret, principal_of_node};
pub use self::rates::Counted;
use self::rates::{Rates, Use};
pub use self::streams::KeyStream;
use self::streams::KeyStreams;
#[cfg(test)]
pub use self::table::operations;
pub use self::table::{Needs, needs, role_of};
use self::tokens::Tokens;
pub use self::tokens::{Redeemed, SignIn};
use crate::config::Auth;
use crate::error::ApiError;

/// How long a stream waits for the rate of its key at most, and between two looks whether the key is still valid.
const PACE_MAX: Duration = Duration::from_secs(60);
const PACE_LOOK: Duration = Duration::from_secs(1);

/// Sign-ins that are completed at a time.
const SIGN_INS_MAX: usize = 8;

/// Shortest secret in a file, in bytes.
const SECRET_BYTES_MIN: usize = 32;

/// Begins the name of the principal of a token.
const TOKEN_OF: &str = "token of ";

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
        let name = format!("{TOKEN_OF}{subject}");
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

    /// What stands for it where people are not to be named: the id of its key, or its kind.
    #[must_use]
    pub fn impersonal(&self) -> &str {
        match self.key() {
            Some(key) => key,
            None if self.0.name.starts_with(TOKEN_OF) => "token",
            None => &self.0.name,
        }
    }

    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.0.grant
    }
}

/// The secrets and rates of a node.
pub struct Access {
    admin_key: Option<SecretHash>,
    tokens: Option<Arc<Tokens>>,
    node_secret: NodeSecret,
    rates: Rates,
    streams: KeyStreams,
    /// One permit for each sign-in that is under way.
    signing_in: Semaphore,
}

impl Access {
    /// Reads the key that the configuration names. One key may have `streams_per_key` streams open.
    ///
    /// # Errors
    /// With the name of the setting.
    pub fn open(auth: &Auth, node_secret: NodeSecret, streams_per_key: usize) -> Result<Self, String> {
        let admin_key =
            auth.admin_key_file.as_deref().map(|path| secret_in("auth.admin_key_file", path)).transpose()?;
        let admin_key = admin_key.as_deref().map(SecretHash::of);
        let tokens = Tokens::open(&auth.oidc)?.map(Arc::new);
        let streams = KeyStreams::new(streams_per_key);
        Ok(Self {
            admin_key,
            tokens,
            node_secret,
            rates: Rates::default(),
            streams,
            signing_in: Semaphore::new(SIGN_INS_MAX),
        })
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

    /// Where the page signs its users in; `None` if it does not.
    ///
    /// # Errors
    /// 503 if the identity provider does not answer.
    pub async fn sign_in(&self) -> Result<Option<SignIn>, ApiError> {
        match &self.tokens {
            Some(tokens) => tokens.sign_in().await,
            None => Ok(None),
        }
    }

    /// The token for the code of a sign-in.
    ///
    /// # Errors
    /// 401 if there is none, 404 without a sign-in, 503 if the identity provider does not answer, or others sign in.
    pub async fn redeem(&self, redeemed: Redeemed) -> Result<String, ApiError> {
        let Some(tokens) = &self.tokens else {
            return Err(ApiError::not_found("this node has no sign-in by an identity provider"));
        };
        let Ok(_permit) = self.signing_in.try_acquire() else {
            return Err(ApiError::unavailable("too many sign in at the moment; try again"));
        };
        tokens.redeem(redeemed).await
    }

    /// The open streams of each key.
    #[must_use]
    pub fn streams(&self) -> &KeyStreams {
        &self.streams
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
        if self.admin_key.as_ref().is_some_and(|admin| admin.is_of(key)) {
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

    /// How many observations a stream of a principal is to take at once, at least 1, so that it goes at its rate from the beginning.
    #[must_use]
    pub fn block(principal: Option<&Principal>) -> usize {
        let rated = principal.filter(|principal| principal.0.is_rated && principal.0.key.is_some());
        rated.map_or(usize::MAX, |principal| Rates::block(principal.grant()))
    }

    /// Waits until the rates of a principal allow a block of a stream, and counts its observations.
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
            let taken = self.take_of(principal, (Counted::Observations, Use::Rim), observations as f64);
            let Err(refused) = taken else { return Ok(()) };
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
        self.take_of(principal, (counted, Use::Whole), amount)
    }

    fn take_of(&self, principal: &Principal, (counted, of): (Counted, Use), amount: f64) -> Result<(), ApiError> {
        let Some(key) = principal.0.key.as_ref().filter(|_| principal.0.is_rated) else { return Ok(()) };
        self.rates.take((key, principal.grant()), (counted, of), amount, Instant::now()).map_err(|wait| {
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
