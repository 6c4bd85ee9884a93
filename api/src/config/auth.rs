//! The section `[auth]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who may use the node, besides the keys that `celeris keys` manages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// A file with a key that may do everything, as an orchestrator mounts a secret: at least 32 characters, without white
    /// space, as `openssl rand -hex 32` writes them. With it, every request needs a key from the first start on.
    #[schema(value_type = Option<String>)]
    pub admin_key_file: Option<PathBuf>,
    /// An identity provider whose tokens are taken like keys.
    #[schema(inline)]
    pub oidc: Oidc,
}

/// An identity provider (OpenID Connect), if it has an issuer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Oidc {
    /// Its URL, as in the claim `iss` of its tokens; its keys are found by `/.well-known/openid-configuration` there.
    #[schema(value_type = Option<String>)]
    pub issuer: Option<String>,
    /// What tokens for this node have as the claim `aud`.
    #[schema(value_type = Option<String>)]
    pub audience: Option<String>,
    /// The claim with the roles: a list, or names with spaces between them. Others than those of keys are passed over.
    pub roles_claim: String,
    /// The id under which the page signs its users in there: of a public client, by authorization code with PKCE, that may be
    /// sent back to `https://NODE/`. Without it the page asks for a key or a token.
    #[schema(value_type = Option<String>)]
    pub client_id: Option<String>,
    /// What the page asks the provider for, with spaces between them.
    pub scopes: String,
    /// The authorities of the certificate of the issuer, in PEM, in place of those of the web.
    #[schema(value_type = Option<String>)]
    pub ca_file: Option<PathBuf>,
}

impl Default for Oidc {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: None,
            roles_claim: "roles".to_owned(),
            client_id: None,
            scopes: "openid".to_owned(),
            ca_file: None,
        }
    }
}

impl Auth {
    pub(super) fn check(&self) -> Result<(), String> {
        let Oidc { issuer, audience, roles_claim, .. } = &self.oidc;
        if issuer.is_some() != audience.is_some() {
            return Err("auth.oidc: issuer and audience are given together".to_owned());
        }
        if let Some(issuer) = issuer.as_ref().filter(|issuer| !is_secure(issuer)) {
            return Err(format!("auth.oidc.issuer: {issuer:?} must be an https:// URL, or http:// on this machine"));
        }
        if self.oidc.client_id.is_some() && issuer.is_none() {
            return Err("auth.oidc.client_id: needs auth.oidc.issuer and auth.oidc.audience".to_owned());
        }
        if roles_claim.is_empty() {
            return Err("auth.oidc.roles_claim: must name a claim".to_owned());
        }
        Ok(())
    }
}

/// Whether what comes from this URL is what its host has sent.
fn is_secure(url: &str) -> bool {
    let on_this_machine = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let is_prefix =
        |prefix: &&str| url.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']));
    url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) || on_this_machine.iter().any(is_prefix)
}
