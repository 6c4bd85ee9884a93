//! An HTTP client that takes every answer for an answer, whatever its status.

use std::io::{self, BufRead, BufReader};

use serde_json::Value;
use ureq::http::{HeaderMap, Request, StatusCode};
use ureq::{Agent, Body, BodyReader};

use crate::wait::DEADLINE;

/// Talks to one node.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body, as text.
    pub text: String,
    headers: HeaderMap,
}

/// An answer of JSON lines, read as they come.
pub struct Lines {
    reader: BufReader<BodyReader<'static>>,
}

impl Client {
    pub(crate) fn new(url: String) -> Self {
        let agent = Agent::config_builder().http_status_as_error(false).timeout_global(Some(DEADLINE)).build();
        Self { agent: agent.into(), url }
    }

    /// Where the node listens, `http://HOST:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `HOST:PORT`, for talking to the socket itself.
    ///
    /// # Panics
    /// Where the node announced no such address.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("nodes announce an http address").trim_end_matches('/')
    }

    /// The calls under one model.
    #[must_use]
    pub fn model(&self, name: &str) -> ModelClient {
        ModelClient { client: self.clone(), name: name.to_owned() }
    }

    /// Sends any request and reads the whole answer.
    ///
    /// # Errors
    /// Where no whole answer came, as when the node is killed meanwhile.
    pub fn try_send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Result<Reply, ureq::Error> {
        let mut response = self.start(method, path, content_type, body)?;
        let text = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
        Ok(Reply { status: response.status().as_u16(), text, headers: response.headers().clone() })
    }

    fn start(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> Result<ureq::http::Response<Body>, ureq::Error> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if body.is_empty() && method != "POST" {
            return self.agent.run(request.body(())?);
        }
        self.agent.run(request.header("content-type", content_type).body(body)?)
    }

    /// Sends a JSON request and reads the whole answer.
    ///
    /// # Errors
    /// As [`Client::try_send`].
    pub fn try_json(&self, method: &str, path: &str, body: &Value) -> Result<Reply, ureq::Error> {
        self.try_send(method, path, "application/json", &body.to_string())
    }

    /// `GET`.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn get(&self, path: &str) -> Reply {
        self.try_send("GET", path, "", "").unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// `POST` of JSON.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.try_json("POST", path, body).unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }
}

/// Talks to one model of a node; paths are those behind `/v1/models/{model}/`.
#[derive(Clone)]
pub struct ModelClient {
    client: Client,
    name: String,
}

impl ModelClient {
    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client of the node.
    #[must_use]
    pub fn node(&self) -> &Client {
        &self.client
    }

    /// The whole path of a call.
    #[must_use]
    pub fn path(&self, call: &str) -> String {
        if call.is_empty() { format!("/v1/models/{}", self.name) } else { format!("/v1/models/{}/{call}", self.name) }
    }

    /// `GET`.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn get(&self, call: &str) -> Reply {
        self.client.get(&self.path(call))
    }

    /// `POST` of JSON.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn post(&self, call: &str, body: &Value) -> Reply {
        self.client.post(&self.path(call), body)
    }

    /// `PUT` of JSON.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn put(&self, call: &str, body: &Value) -> Reply {
        let path = self.path(call);
        self.client.try_json("PUT", &path, body).unwrap_or_else(|error| panic!("PUT {path}: {error}"))
    }

    /// `PATCH` of JSON.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn patch(&self, call: &str, body: &Value) -> Reply {
        let path = self.path(call);
        self.client.try_json("PATCH", &path, body).unwrap_or_else(|error| panic!("PATCH {path}: {error}"))
    }

    /// `DELETE`.
    ///
    /// # Panics
    /// Where no whole answer comes.
    #[track_caller]
    #[must_use]
    pub fn delete(&self, call: &str) -> Reply {
        let path = self.path(call);
        let reply = self.client.try_send("DELETE", &path, "application/json", "");
        reply.unwrap_or_else(|error| panic!("DELETE {path}: {error}"))
    }

    /// Observes, and answers what the node said.
    ///
    /// # Errors
    /// As [`Client::try_send`].
    pub fn try_observe(&self, observation: &Value) -> Result<Reply, ureq::Error> {
        self.client.try_json("POST", &self.path("observe"), observation)
    }

    /// Observes, and expects that to succeed.
    ///
    /// # Panics
    /// Where it does not.
    #[track_caller]
    pub fn observe(&self, observation: &Value) -> Value {
        self.post("observe", observation).expect(200)
    }

    /// Sends observations as JSON lines and reads the results as they come.
    ///
    /// # Errors
    /// Where not even the beginning of an answer came.
    ///
    /// # Panics
    /// Where the node refuses the request as a whole.
    #[track_caller]
    pub fn observe_lines(&self, body: &str) -> Result<Lines, ureq::Error> {
        let response = self.client.start("POST", &self.path("observations"), "application/x-ndjson", body)?;
        assert_eq!(response.status(), StatusCode::OK, "{} refuses JSON lines", self.path("observations"));
        let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Lines { reader: BufReader::new(reader) })
    }

    /// The user's state with up to `history` of the last events.
    ///
    /// # Panics
    /// Where the node does not tell.
    #[track_caller]
    #[must_use]
    pub fn user(&self, user: &str, history: usize) -> Value {
        self.get(&format!("users/{user}?history={history}")).expect(200)
    }
}

impl Reply {
    /// The body, where the status is this one.
    ///
    /// # Panics
    /// Where it is another, or the body is not JSON.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "the answer was {}", self.text);
        self.json()
    }

    /// The body.
    ///
    /// # Panics
    /// Where it is not JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text))
    }

    /// A header's value, where there is one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Iterator for Lines {
    type Item = io::Result<Value>;

    /// The next whole line. A line that the connection broke off in is an error, never a value.
    fn next(&mut self) -> Option<io::Result<Value>> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) if line.ends_with('\n') => Some(serde_json::from_str(&line).map_err(io::Error::other)),
            Ok(_) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Some(Err(error)),
        }
    }
}
