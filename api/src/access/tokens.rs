//! Tokens of an identity provider (OpenID Connect): JSON Web Tokens (RFC 7519) that its keys have signed.
//!
//! The keys are fetched when the first token comes, and again once they are old or a token names one that is not among them.

use std::collections::BTreeSet;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use celeris_manager::{Grant, Role};
use celeris_model::{ModelName, StreamName, Timestamp};
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey, Validation, decode, decode_header};
use parking_lot::RwLock;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use super::Principal;
use crate::config;
use crate::error::ApiError;
use crate::tls;

/// Maximum length of a token, in bytes.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Keys that are older are fetched again; and at most so often.
const KEYS_AGE_MAX: Duration = Duration::from_secs(3600);
const KEYS_AGE_MIN: Duration = Duration::from_secs(10);

/// How long the issuer may take to answer, and the largest answer.
const ISSUER_TIMEOUT: Duration = Duration::from_secs(5);
const ISSUER_BYTES_MAX: u64 = 1 << 20;

/// How far the clocks of issuer and node may differ, in seconds.
const CLOCK_SKEW: u64 = 60;

/// The signatures that are taken; none with a secret that issuer and node would share.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// How much of the subject is in the name of a principal, in characters.
const SUBJECT_MAX: usize = 100;

/// Claims with the names of models and streams that a token is for.
const MODELS_CLAIM: &str = "celeris_models";
const STREAMS_CLAIM: &str = "celeris_streams";

/// The tokens of one issuer.
pub struct Tokens {
    issuer: String,
    audience: String,
    roles_claim: String,
    /// As what the page signs users in, and what it asks for.
    client: Option<(String, String)>,
    agent: Agent,
    keys: RwLock<Option<Keys>>,
    /// When they could not be fetched.
    failed: RwLock<Option<Instant>>,
    /// Held while keys are fetched.
    fetching: Mutex<()>,
}

#[derive(Clone)]
struct Keys {
    set: Arc<JwkSet>,
    description: Arc<Description>,
    fetched: Instant,
}

/// The part of the description of an issuer that is read.
#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
    #[serde(default)]
    authorization_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint: Option<String>,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// Where the page signs its users in.
#[derive(Debug, Clone, Serialize)]
pub struct SignIn {
    /// Of the issuer, to which the browser goes.
    authorize: String,
    client_id: String,
    scopes: String,
}

/// What a sign-in has brought: a code, and the secret of the page that it belongs to (RFC 7636).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redeemed {
    code: String,
    verifier: String,
    /// Where the issuer has sent the browser back to.
    redirect: String,
}

/// What the issuer gives for it.
#[derive(Deserialize)]
struct Given {
    access_token: Option<String>,
    id_token: Option<String>,
}

impl Tokens {
    /// `None` without an issuer.
    ///
    /// # Errors
    /// With the name of the setting.
    pub fn open(config: &config::Oidc) -> Result<Option<Self>, String> {
        let (Some(issuer), Some(audience)) = (config.issuer.clone(), config.audience.clone()) else { return Ok(None) };
        install_verifiers();
        let mut agent = Agent::config_builder().timeout_global(Some(ISSUER_TIMEOUT)).max_redirects(0);
        if let Some(file) = &config.ca_file {
            let authorities = tls::authorities(file)
                .map_err(|problem| format!("auth.oidc.ca_file: {}: {problem}", file.display()))?;
            let roots = RootCerts::new_with_certs(&authorities);
            agent = agent.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let (agent, roles_claim) = (agent.build().into(), config.roles_claim.clone());
        Ok(Some(Self {
            issuer,
            audience,
            roles_claim,
            client: config.client_id.clone().map(|client| (client, config.scopes.clone())),
            agent,
            keys: RwLock::default(),
            failed: RwLock::default(),
            fetching: Mutex::default(),
        }))
    }

    /// Who a token is of.
    ///
    /// # Errors
    /// 401 if it is not valid, 503 if the keys of the issuer cannot be fetched.
    pub async fn principal(self: &Arc<Self>, token: &str) -> Result<Principal, ApiError> {
        let refused = |problem: String| ApiError::unauthenticated(format!("the token is not valid: {problem}"));
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused(format!("it has more than {TOKEN_BYTES_MAX} bytes")));
        }
        let header = decode_header(token).map_err(|error| refused(words(error.kind())))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refused(format!("its algorithm {:?} is not taken", header.alg)));
        }
        if header.crit.is_some() {
            return Err(refused("it has extensions (crit), which are not known here".to_owned()));
        }
        let keys = self.keys_with(header.kid.as_deref()).await?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.validate_nbf = true;
        validation.leeway = CLOCK_SKEW;
        let may_sign = |use_: &Option<PublicKeyUse>| matches!(use_, None | Some(PublicKeyUse::Signature));
        let candidates = keys.set.keys.iter().filter(|key| match &header.kid {
            Some(kid) => key.common.key_id.as_ref() == Some(kid),
            None => true,
        });
        let mut problem = "the issuer has no such key".to_owned();
        for jwk in candidates.filter(|key| may_sign(&key.common.public_key_use)) {
            let decoded =
                DecodingKey::from_jwk(jwk).and_then(|key| decode::<Map<String, Value>>(token, &key, &validation));
            match decoded {
                Ok(decoded) => {
                    let subject = decoded.claims.get("sub").and_then(Value::as_str).unwrap_or_default();
                    if subject.is_empty() || subject.chars().any(char::is_control) {
                        return Err(refused("sub must be a text without control characters".to_owned()));
                    }
                    return Ok(self.principal_of(subject, &decoded.claims));
                }
                Err(error) => problem = words(error.kind()),
            }
        }
        Err(refused(problem))
    }

    fn principal_of(&self, subject: &str, claims: &Map<String, Value>) -> Principal {
        let names = |claim: &str| -> Vec<String> {
            match claims.get(claim) {
                Some(Value::String(text)) => text.split_whitespace().map(str::to_owned).collect(),
                Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                _ => Vec::new(),
            }
        };
        let roles: BTreeSet<Role> = names(&self.roles_claim).iter().filter_map(|name| name.parse().ok()).collect();
        // A claim of no valid name must not open everything.
        let is_bounded = [MODELS_CLAIM, STREAMS_CLAIM].iter().any(|claim| claims.contains_key(*claim));
        let models: BTreeSet<ModelName> =
            names(MODELS_CLAIM).iter().filter_map(|name| ModelName::new(name.as_str()).ok()).collect();
        let streams: BTreeSet<StreamName> =
            names(STREAMS_CLAIM).iter().filter_map(|name| StreamName::new(name.as_str()).ok()).collect();
        let is_empty = is_bounded && models.is_empty() && streams.is_empty();
        let roles = if is_empty { BTreeSet::new() } else { roles };
        let subject: String = subject.chars().take(SUBJECT_MAX).collect();
        let seconds = claims.get("exp").and_then(Value::as_f64).unwrap_or_default() + CLOCK_SKEW as f64;
        let grant = Grant { roles, models, streams, requests_per_second: None, observations_per_second: None };
        Principal::of_token(&subject, grant, Some(Timestamp((seconds * 1000.0) as i64)))
    }

    /// The keys, with one of this id if the issuer has it.
    async fn keys_with(self: &Arc<Self>, kid: Option<&str>) -> Result<Keys, ApiError> {
        let is_enough = |keys: &Keys| {
            let has = kid.is_none_or(|kid| keys.set.find(kid).is_some());
            let age = keys.fetched.elapsed();
            age < KEYS_AGE_MIN || (has && age < KEYS_AGE_MAX)
        };
        let known = || self.keys.read().clone();
        if let Some(keys) = known().filter(is_enough) {
            return Ok(keys);
        }
        let _fetching = self.fetching.lock().await;
        // Another request may have fetched them meanwhile.
        if let Some(keys) = known().filter(is_enough) {
            return Ok(keys);
        }
        let unavailable = || ApiError::unavailable("the keys of the identity provider cannot be fetched; try again");
        // Requests that have waited for an attempt do not make more of them.
        if self.failed.read().is_some_and(|failed| failed.elapsed() < KEYS_AGE_MIN) {
            return known().ok_or_else(unavailable);
        }
        let tokens = Arc::clone(self);
        let fetched = tokio::task::spawn_blocking(move || tokens.fetch()).await;
        match fetched.unwrap_or_else(|error| Err(error.to_string())) {
            Ok((description, set)) => {
                let keys = Keys { set: Arc::new(set), description: Arc::new(description), fetched: Instant::now() };
                *self.keys.write() = Some(keys.clone());
                Ok(keys)
            }
            Err(problem) => {
                tracing::warn!(issuer = self.issuer, problem, "the keys of the identity provider were not fetched");
                // Those known remain in force while the issuer is down.
                known().ok_or_else(unavailable)
            }
        }
    }

    /// Where and as what the page signs its users in; `None` if it does not.
    ///
    /// # Errors
    /// 503 if the description of the issuer cannot be fetched.
    pub async fn sign_in(self: &Arc<Self>) -> Result<Option<SignIn>, ApiError> {
        let Some((client_id, scopes)) = self.client.clone() else { return Ok(None) };
        let description = self.keys_with(None).await?.description;
        let authorize = description.authorization_endpoint.clone();
        Ok(authorize.map(|authorize| SignIn { authorize, client_id, scopes }))
    }

    /// The token that the issuer gives for the code of a sign-in; it is valid on this node.
    ///
    /// # Errors
    /// 401 if the issuer refuses the code, or gives no token that is valid here; 503 if it does not answer.
    pub async fn redeem(self: &Arc<Self>, redeemed: Redeemed) -> Result<String, ApiError> {
        let description = self.keys_with(None).await?.description;
        let (Some((client_id, _)), Some(url)) = (self.client.clone(), description.token_endpoint.clone()) else {
            return Err(ApiError::not_found("this node has no sign-in by an identity provider"));
        };
        let agent = self.agent.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let Redeemed { code, verifier, redirect } = &redeemed;
            let form = [
                ("grant_type", "authorization_code"),
                ("code", code.as_str()),
                ("code_verifier", verifier.as_str()),
                ("redirect_uri", redirect.as_str()),
                ("client_id", client_id.as_str()),
            ];
            let mut reply = agent.post(&url).send_form(form)?;
            reply.body_mut().with_config().limit(ISSUER_BYTES_MAX).read_to_vec()
        });
        let text = match asked.await {
            Ok(Ok(text)) => text,
            Ok(Err(ureq::Error::StatusCode(status))) if (400..500).contains(&status) => {
                return Err(ApiError::unauthenticated("the identity provider refuses the sign-in; try it again"));
            }
            Ok(Err(error)) => {
                tracing::warn!(issuer = self.issuer, %error, "a sign-in was not completed");
                return Err(ApiError::unavailable("the identity provider does not answer; try again"));
            }
            Err(error) => return Err(ApiError::unavailable(error)),
        };
        let given: Given = serde_json::from_slice(&text)
            .map_err(|_| ApiError::unavailable("the identity provider answers with no tokens; try again"))?;
        let mut problem = ApiError::unauthenticated("the identity provider gives no token");
        // Which one has the audience of the node depends on the provider.
        for token in [given.access_token, given.id_token].into_iter().flatten() {
            match self.principal(&token).await {
                Ok(_) => return Ok(token),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    fn fetch(&self) -> Result<(Description, JwkSet), String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let description: Description = self.get(&url)?;
        if description.issuer != self.issuer {
            return Err(format!("{url} is of the issuer {:?}", description.issuer));
        }
        let KeySet { keys } = self.get(&description.jwks_uri)?;
        // Keys of kinds that are not known here are of no use.
        let set = JwkSet { keys: keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect() };
        Ok((description, set))
    }

    fn get<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let mut reply = self.agent.get(url).call().map_err(|error| format!("{url}: {error}"))?;
        let text = reply.body_mut().with_config().limit(ISSUER_BYTES_MAX).read_to_vec();
        let text = text.map_err(|error| format!("{url}: {error}"))?;
        serde_json::from_slice(&text).map_err(|error| format!("{url}: {error}"))
    }
}

/// What is wrong with a token, without what is in it.
fn words(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::ExpiredSignature => "it has expired".to_owned(),
        ErrorKind::ImmatureSignature => "it is not valid yet".to_owned(),
        ErrorKind::InvalidIssuer => "it is of another issuer".to_owned(),
        ErrorKind::InvalidAudience => "it is for another audience".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no claim {claim}"),
        _ => "its signature or its form is wrong".to_owned(),
    }
}

/// Has the library verify by ring, which is in the program already.
fn install_verifiers() {
    static INSTALLED: Once = Once::new();
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: no_signer,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    INSTALLED.call_once(|| {
        // Fails if there is one already, and nothing else in the program installs one.
        let _ = PROVIDER.install_default();
    });
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> jsonwebtoken::errors::Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

/// A key with the algorithm that it verifies by.
struct Verifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> jsonwebtoken::errors::Result<Box<dyn JwtVerifier>> {
    Ok(Box::new(Verifier { algorithm: *algorithm, key: key.clone() }))
}

impl JwtVerifier for Verifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl ::signature::Verifier<Vec<u8>> for Verifier {
    fn verify(&self, message: &[u8], sent: &Vec<u8>) -> Result<(), ::signature::Error> {
        let is_valid = match (self.key.kind(), self.algorithm) {
            (DecodingKeyKind::RsaModulusExponent { n, e }, algorithm) => {
                let by = match algorithm {
                    Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
                    _ => return Err(::signature::Error::new()),
                };
                RsaPublicKeyComponents { n, e }.verify(by, message, sent).is_ok()
            }
            (DecodingKeyKind::SecretOrDer(point), Algorithm::ES256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, sent).is_ok()
            }
            (DecodingKeyKind::SecretOrDer(point), Algorithm::ES384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, sent).is_ok()
            }
            (DecodingKeyKind::SecretOrDer(point), Algorithm::EdDSA) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(message, sent).is_ok()
            }
            _ => false,
        };
        if is_valid { Ok(()) } else { Err(::signature::Error::new()) }
    }
}
