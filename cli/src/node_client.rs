//! A running node, as commands use it.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use crate::Failure;

const DEFAULT_URL: &str = "http://127.0.0.1:7117";

/// How often a request is sent that the node cannot answer now.
pub const TRIES: u32 = 5;

/// The time between two of them, if the node names none, and at most.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

/// Whether a response answers a request of many lines, line by line.
pub fn is_of_lines(response: &Response<Body>) -> bool {
    response.headers().get("content-type").is_some_and(|kind| kind == "application/x-ndjson")
}

/// Where the node is.
#[derive(Debug, clap::Args)]
pub struct NodeArgs {
    /// The URL of the node.
    #[arg(long, default_value = DEFAULT_URL)]
    pub url: String,
}

/// A client of one node.
pub struct NodeClient {
    agent: Agent,
    url: String,
}

impl NodeClient {
    /// A client of the node at this URL; `http://` may be left out. Does not connect.
    pub fn new(args: &NodeArgs) -> Self {
        let url = args.url.trim_end_matches('/');
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        Self { agent: Agent::config_builder().http_status_as_error(false).build().into(), url }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The option that names this node in a command, with a space before it; nothing if it is the default.
    pub fn option(&self) -> String {
        if self.url == DEFAULT_URL { String::new() } else { format!(" --url {}", self.url) }
    }

    /// Sends a `GET` request; `None` if there is no such resource.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn find(&self, path: &str) -> Result<Option<Value>, Failure> {
        let response = self.patiently(|| self.agent.get(format!("{}{path}", self.url)).call())?;
        if response.status() == StatusCode::NOT_FOUND { Ok(None) } else { self.accepted(response).map(Some) }
    }

    /// Sends a `GET` request; `None` if there is no answer within this time, or no such resource.
    pub fn find_within(&self, path: &str, wait: Duration) -> Option<Value> {
        let request = self.agent.get(format!("{}{path}", self.url)).config().timeout_global(Some(wait)).build();
        self.accepted(request.call().ok()?).ok()
    }

    /// Sends a `GET` request.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        let response =
            self.agent.get(format!("{}{path}", self.url)).call().map_err(|error| self.unreachable(&error))?;
        self.accepted(response)
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
        self.patiently(|| self.agent.post(format!("{}{path}", self.url)).header("content-type", media_type).send(body))
    }

    /// Puts bytes.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn put_bytes(&self, path: &str, bytes: &[u8]) -> Result<Value, Failure> {
        let put = || {
            let request = self.agent.put(format!("{}{path}", self.url));
            request.header("content-type", "application/octet-stream").send(bytes)
        };
        let response = self.patiently(put)?;
        self.accepted(response)
    }

    /// Sends a request, and again if the node cannot answer now, after the time that it names.
    fn patiently(&self, request: impl Fn() -> Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Failure> {
        for _ in 1..TRIES {
            let response = request().map_err(|error| self.unreachable(&error))?;
            if response.status() != StatusCode::SERVICE_UNAVAILABLE || is_of_lines(&response) {
                return Ok(response);
            }
            let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
            thread::sleep(seconds.map_or(RETRY_AFTER, Duration::from_secs).min(RETRY_AFTER_MAX));
        }
        request().map_err(|error| self.unreachable(&error))
    }

    /// The JSON body of a response whose status is a success; null if the body is not JSON.
    ///
    /// # Errors
    /// The detail of the problem otherwise.
    pub fn accepted(&self, mut response: Response<Body>) -> Result<Value, Failure> {
        let status = response.status();
        let body: Value = response.body_mut().read_json().unwrap_or_default();
        if status.is_success() {
            return Ok(body);
        }
        let message = format!("{} answered {status}: {}", self.url, body["detail"].as_str().unwrap_or("no detail"));
        Err(if status.is_client_error() { Failure::bad_input(message) } else { Failure::other(message) })
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let url = &self.url;
        match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                Failure::bad_input(format!("--url {url} is not a URL ({error}); write it like http://127.0.0.1:7117"))
            }
            _ => Failure::other(format!(
                "no node answers at {url} ({error}); start one by `celeris serve --data-dir data`, or name another by --url"
            )),
        }
    }
}
