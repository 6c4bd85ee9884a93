//! A running node, as commands use it.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::Duration;

use celeris_api::tls;
use celeris_model::address::without_login;
use rustls::CertificateError;
use serde_json::Value;
use ureq::http::{HeaderValue, Response, StatusCode};
use ureq::middleware::{Middleware, MiddlewareNext};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, SendBody};

use crate::Failure;

const DEFAULT_URL: &str = "http://127.0.0.1:7117";

/// Bytes of a reply that is read as a whole: the list of the files of a large store has the most.
const REPLY_BYTES_MAX: u64 = 256 << 20;

/// The time for a connection, and for a read or a write on it in which nothing moves.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a request is sent that the node cannot answer now.
const TRIES: u32 = 5;

/// The time between two of them, if the node names none, and at most.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// Whether a response answers a request of many lines, line by line.
pub fn is_of_lines(response: &Response<Body>) -> bool {
    response.headers().get("content-type").is_some_and(|kind| kind == "application/x-ndjson")
}

/// The time after which a request may be sent again.
fn retry_after(response: &Response<Body>) -> Duration {
    let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(RETRY_AFTER, Duration::from_secs).min(RETRY_AFTER_MAX)
}

/// Why a request has no answer to use.
pub enum Unanswered {
    /// The node cannot be reached, or not answer now; it may be back later.
    Away {
        why: String,
        after: Duration,
    },
    Refused(Failure),
}

/// The variable with the key, if no file is named.
const KEY_VARIABLE: &str = "CELERIS_API_KEY";

/// Where the node is, and by which key it knows the caller.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeArgs {
    /// The URL of the node.
    #[arg(long, default_value = DEFAULT_URL)]
    pub url: String,
    /// A file with the API key, if the node needs one and the variable CELERIS_API_KEY has none.
    #[arg(long, value_name = "FILE", value_parser = Key::read)]
    pub key_file: Option<Key>,
    /// A file with the authorities of the node's certificate, in PEM, in place of those of the web.
    #[arg(long, value_name = "FILE", value_parser = Authorities::read)]
    pub ca_file: Option<Authorities>,
}

impl NodeArgs {
    /// Another node, by the same key.
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// What a request says of the caller.
    pub fn authorization(&self) -> Option<String> {
        let key = self.key_file.as_ref().map(|Key(key)| key.clone());
        let key = key.or_else(|| std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()));
        key.map(|key| format!("Bearer {}", key.trim()))
    }
}

/// Certificates of authorities.
#[derive(Debug, Clone)]
pub struct Authorities(Vec<Certificate<'static>>);

impl Authorities {
    fn read(path: &str) -> Result<Self, String> {
        tls::authorities(Path::new(path)).map(Self)
    }
}

/// An API key, which is not shown.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    fn read(path: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let key = text.trim();
        if key.is_empty() || !key.is_ascii() || key.contains(char::is_whitespace) {
            return Err("it must hold one key".to_owned());
        }
        Ok(Self(key.to_owned()))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

/// A client of one node.
pub struct NodeClient {
    agent: Agent,
    /// The beginning of the URLs of requests.
    base: String,
    /// The same as messages show it: without a password that it may have.
    url: String,
}

/// Adds the key to every request.
struct Authorize(HeaderValue);

impl Middleware for Authorize {
    fn handle(
        &self,
        mut request: ureq::http::Request<SendBody<'_>>,
        next: MiddlewareNext<'_>,
    ) -> Result<Response<Body>, ureq::Error> {
        request.headers_mut().insert("authorization", self.0.clone());
        next.handle(request)
    }
}

impl NodeClient {
    /// A client of the node at this URL; `http://` may be left out. Does not connect.
    pub fn new(args: &NodeArgs) -> Self {
        let base = args.url.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(STALL_TIMEOUT))
            .timeout_per_write(Some(STALL_TIMEOUT));
        if let Some(mut value) = args.authorization().and_then(|value| HeaderValue::from_str(&value).ok()) {
            value.set_sensitive(true);
            config = config.middleware(Authorize(value));
        }
        if let Some(Authorities(authorities)) = &args.ca_file {
            let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(authorities)).build();
            config = config.tls_config(tls);
        }
        Self { agent: config.build().into(), url: without_login(&base), base }
    }

    /// Its URL, as messages show it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The option that names this node in a command, with a space before it; nothing if it is the default.
    pub fn option(&self) -> String {
        if self.base == DEFAULT_URL { String::new() } else { format!(" --url {}", self.url) }
    }

    /// Sends a `GET` request; `None` if there is no such resource.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn find(&self, path: &str) -> Result<Option<Value>, Failure> {
        let response = self.patiently(|| self.agent.get(format!("{}{path}", self.base)).call())?;
        if response.status() == StatusCode::NOT_FOUND { Ok(None) } else { self.accepted(response).map(Some) }
    }

    /// Sends a `GET` request; `None` if there is no answer within this time, or no such resource.
    pub fn find_within(&self, path: &str, wait: Duration) -> Option<Value> {
        let request = self.agent.get(format!("{}{path}", self.base)).config().timeout_global(Some(wait)).build();
        self.accepted(request.call().ok()?).ok()
    }

    /// Sends a `GET` request.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        let response =
            self.agent.get(format!("{}{path}", self.base)).call().map_err(|error| self.unreachable(&error))?;
        self.accepted(response)
    }

    /// The bytes that a `GET` request returns, as they arrive.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn open(&self, path: &str) -> Result<impl Read + use<>, Failure> {
        let response = self.patiently(|| self.agent.get(format!("{}{path}", self.base)).call())?;
        if response.status().is_success() {
            return Ok(response.into_body().into_with_config().limit(u64::MAX).reader());
        }
        Err(match self.accepted(response) {
            Err(failure) => failure,
            Ok(_) => Failure::other("the node answered in an unexpected way"),
        })
    }

    /// Posts a JSON body.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let response = self.post_as(path, "application/json", body.to_string().as_bytes())?;
        self.accepted(response)
    }

    /// Posts a body of this media type, and returns the response whatever its status.
    ///
    /// # Errors
    /// If no node answers.
    pub fn post_as(&self, path: &str, media_type: &str, body: &[u8]) -> Result<Response<Body>, Failure> {
        self.patiently(|| self.agent.post(format!("{}{path}", self.base)).header("content-type", media_type).send(body))
    }

    /// Sends a `DELETE` request.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn delete(&self, path: &str) -> Result<Value, Failure> {
        let response = self.patiently(|| self.agent.delete(format!("{}{path}", self.base)).call())?;
        self.accepted(response)
    }

    /// Puts bytes.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn put_bytes(&self, path: &str, bytes: &[u8]) -> Result<Value, Failure> {
        let put = || {
            let request = self.agent.put(format!("{}{path}", self.base));
            request.header("content-type", "application/octet-stream").send(bytes)
        };
        let response = self.patiently(put)?;
        self.accepted(response)
    }

    /// Sends a `GET` request once; `None` if there is no such resource.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn find_once(&self, path: &str) -> Result<Option<Value>, Unanswered> {
        let response = self.once(self.agent.get(format!("{}{path}", self.base)).call())?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.accepted(response).map(Some).map_err(Unanswered::Refused)
    }

    /// Posts a body of this media type once, and returns the response whatever its status, unless it says that there may be
    /// another later.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn post_once(&self, path: &str, media_type: &str, body: &[u8]) -> Result<Response<Body>, Unanswered> {
        let request = self.agent.post(format!("{}{path}", self.base)).header("content-type", media_type);
        self.once(request.send(body))
    }

    /// Puts a JSON body once, and returns the response whatever its status, unless it says that there may be another later.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn put_once(&self, path: &str, body: &[u8]) -> Result<Response<Body>, Unanswered> {
        let request = self.agent.put(format!("{}{path}", self.base)).header("content-type", "application/json");
        self.once(request.send(body))
    }

    fn once(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Unanswered> {
        let response = match response {
            Ok(response) => response,
            Err(error) if tls_problem(&error).is_some() || is_no_url(&error) => {
                return Err(Unanswered::Refused(self.unreachable(&error)));
            }
            Err(error) => return Err(Unanswered::Away { why: error.to_string(), after: RETRY_AFTER }),
        };
        let status = response.status();
        // 502 and 504 are answers of a proxy in front of a node that starts.
        if !matches!(status.as_u16(), 429 | 502..=504) || is_of_lines(&response) {
            return Ok(response);
        }
        Err(Unanswered::Away { why: format!("it answered {status}"), after: retry_after(&response) })
    }

    /// Sends a request, and again if the node cannot answer now, after the time that it names.
    fn patiently(&self, request: impl Fn() -> Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Failure> {
        for _ in 1..TRIES {
            let response = request().map_err(|error| self.unreachable(&error))?;
            if response.status() != StatusCode::SERVICE_UNAVAILABLE || is_of_lines(&response) {
                return Ok(response);
            }
            thread::sleep(retry_after(&response));
        }
        request().map_err(|error| self.unreachable(&error))
    }

    /// The JSON body of a response whose status is a success; null if the body is not JSON.
    ///
    /// # Errors
    /// The detail of the problem otherwise.
    pub fn accepted(&self, mut response: Response<Body>) -> Result<Value, Failure> {
        let status = response.status();
        let body: Value = response.body_mut().with_config().limit(REPLY_BYTES_MAX).read_json().unwrap_or_default();
        if status.is_success() {
            return Ok(body);
        }
        let hint = match status {
            StatusCode::UNAUTHORIZED => format!("; give the key by {KEY_VARIABLE} or --key-file"),
            _ => String::new(),
        };
        let detail = body["detail"].as_str().unwrap_or("no detail");
        let message = format!("{} answered {status}: {detail}{hint}", self.url);
        Err(if status.is_client_error() { Failure::bad_input(message) } else { Failure::other(message) })
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let url = &self.url;
        if is_no_url(error) {
            let problem = format!("--url {url} is not a URL ({error}); write it like http://127.0.0.1:7117");
            return Failure::bad_input(problem);
        }
        match tls_problem(error) {
            Some(problem) => Failure::bad_input(format!("{url}: {problem}")),
            None => Failure::other(format!(
                "no node answers at {url} ({error}); start one by `celeris serve --data-dir data`, or name another by --url"
            )),
        }
    }
}

fn is_no_url(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_))
}

/// Why a connection was not encrypted as it should be, and what to do; `None` if something else is wrong.
fn tls_problem(error: &ureq::Error) -> Option<String> {
    let error = match error {
        // A server that encrypts answers a request that is not encrypted by an alert.
        ureq::Error::Protocol(error) => {
            return Some(format!("the answer is no HTTP ({error}); of a node with TLS, write https:// in the URL"));
        }
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref()?,
        ureq::Error::Rustls(error) => error,
        _ => return None,
    };
    let remedy = match error {
        rustls::Error::InvalidMessage(_) => {
            "the answer is not encrypted: of a node without TLS, write http:// in the URL"
        }
        rustls::Error::AlertReceived(_) => {
            "if the node asks clients for a certificate (server.tls.client_ca), commands have none: reach it by a proxy that has one"
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the authority of the node's certificate is not known here: name the file of the authority by --ca-file"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "call the node by a name of its certificate, or make one with this name (subjectAltName)",
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew the certificate of the node, or set the clock of this machine",
        // rustls has no variant for it.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "the node shows the certificate of an authority, as `openssl req -x509` makes it: make an authority and a \
             certificate that it signs (docs/run/security.md)"
        }
        _ => "look at the certificate of the node (server.tls.cert) and at --ca-file",
    };
    Some(format!("{error}; {remedy}"))
}

/// A text as a part of a path or a value in a query (RFC 3986).
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_escaped_as_parts_of_paths() {
        assert_eq!(escaped("a-b_c~1"), "a-b_c~1");
        assert_eq!(escaped("a/b?c#d e."), "a%2Fb%3Fc%23d%20e%2E");
        assert_eq!(escaped("é"), "%C3%A9");
    }
}
