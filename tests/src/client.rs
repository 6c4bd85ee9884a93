//! An HTTP client that returns responses of every status; only transport failures are errors.

use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde_json::Value;
use ureq::http::{HeaderMap, Request};
use ureq::tls::{ClientCert, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body, BodyReader};

use crate::wait::DEADLINE;

/// Client of one node.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    key: Option<String>,
}

/// A complete response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// The body, as text.
    pub text: String,
    headers: HeaderMap,
}

/// A response of JSON lines, read as they arrive.
pub struct Lines {
    reader: BufReader<BodyReader<'static>>,
}

fn agent(tls: TlsConfig) -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).timeout_global(Some(DEADLINE));
    config.tls_config(tls).build().into()
}

impl Client {
    pub(crate) fn new(url: String) -> Self {
        Self { agent: agent(TlsConfig::default()), url, key: None }
    }

    /// Base URL of the node, `http://HOST:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `HOST:PORT`, for direct socket connections.
    ///
    /// # Panics
    /// If the announced URL does not begin with `http://`.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("nodes announce an http address").trim_end_matches('/')
    }

    /// The same node, whose certificate is of this authority, by a client that shows this certificate.
    ///
    /// # Panics
    /// If a file is none in PEM.
    #[must_use]
    pub fn trusting(&self, ca: &Path, own: &crate::Certificate) -> Self {
        let items = |path: &Path| -> Vec<PemItem<'static>> {
            let text = std::fs::read(path).expect("the file can be read");
            ureq::tls::parse_pem(&text).map(|item| item.expect("the file is PEM")).collect()
        };
        let certificates = |path: &Path| -> Vec<_> {
            let certificate =
                |item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None };
            items(path).into_iter().filter_map(certificate).collect()
        };
        let key = items(&own.key).into_iter().find_map(|item| match item {
            PemItem::PrivateKey(key) => Some(key),
            _ => None,
        });
        let own = ClientCert::new_with_certs(&certificates(&own.cert), key.expect("the file has a key"));
        let roots = RootCerts::new_with_certs(&certificates(ca));
        let tls = TlsConfig::builder().root_certs(roots).client_cert(Some(own)).build();
        Self { agent: agent(tls), ..self.clone() }
    }

    /// A client of another server.
    #[must_use]
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// The same node, by this API key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// A request with the key.
    fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    /// A client of one model.
    #[must_use]
    pub fn model(&self, name: &str) -> ModelClient {
        ModelClient { client: self.clone(), name: name.to_owned() }
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// If no complete response arrives, for example because the node was killed.
    pub fn try_send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Result<Reply, ureq::Error> {
        let mut response = self.start(method, path, content_type, body)?;
        let text = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
        Ok(Reply { status: response.status().as_u16(), text, headers: response.headers().clone() })
    }

    /// Sends a JSON request with these headers and reads the complete response, which may be a
    /// redirect.
    ///
    /// # Errors
    /// As [`Client::try_send`].
    pub fn try_with(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Reply, ureq::Error> {
        let mut request = self.request(method, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = if body.is_null() {
            self.agent.run(request.body(())?)?
        } else {
            self.agent.run(request.header("content-type", "application/json").body(body.to_string())?)?
        };
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
        let request = self.request(method, path);
        if body.is_empty() && method != "POST" {
            return self.agent.run(request.body(())?);
        }
        self.agent.run(request.header("content-type", content_type).body(body)?)
    }

    /// Sends a JSON request and reads the complete response.
    ///
    /// # Errors
    /// As [`Client::try_send`].
    pub fn try_json(&self, method: &str, path: &str, body: &Value) -> Result<Reply, ureq::Error> {
        self.try_send(method, path, "application/json", &body.to_string())
    }

    /// `GET`.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn get(&self, path: &str) -> Reply {
        self.try_send("GET", path, "", "").unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// `POST` of JSON.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.try_json("POST", path, body).unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }
}

/// Client of one model of a node; paths are relative to `/v1/models/{model}/`.
#[derive(Clone)]
pub struct ModelClient {
    client: Client,
    name: String,
}

impl ModelClient {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client of the node.
    #[must_use]
    pub fn node(&self) -> &Client {
        &self.client
    }

    /// The absolute path of a call.
    #[must_use]
    pub fn path(&self, call: &str) -> String {
        if call.is_empty() { format!("/v1/models/{}", self.name) } else { format!("/v1/models/{}/{call}", self.name) }
    }

    /// `GET`.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn get(&self, call: &str) -> Reply {
        self.client.get(&self.path(call))
    }

    /// `POST` of JSON.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn post(&self, call: &str, body: &Value) -> Reply {
        self.client.post(&self.path(call), body)
    }

    /// `PUT` of JSON.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn put(&self, call: &str, body: &Value) -> Reply {
        let path = self.path(call);
        self.client.try_json("PUT", &path, body).unwrap_or_else(|error| panic!("PUT {path}: {error}"))
    }

    /// `PATCH` of JSON.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn patch(&self, call: &str, body: &Value) -> Reply {
        let path = self.path(call);
        self.client.try_json("PATCH", &path, body).unwrap_or_else(|error| panic!("PATCH {path}: {error}"))
    }

    /// `DELETE`.
    ///
    /// # Panics
    /// If no complete response arrives.
    #[track_caller]
    #[must_use]
    pub fn delete(&self, call: &str) -> Reply {
        let path = self.path(call);
        let reply = self.client.try_send("DELETE", &path, "application/json", "");
        reply.unwrap_or_else(|error| panic!("DELETE {path}: {error}"))
    }

    /// Sends an observation and returns the response.
    ///
    /// # Errors
    /// As [`Client::try_send`].
    pub fn try_observe(&self, observation: &Value) -> Result<Reply, ureq::Error> {
        self.client.try_json("POST", &self.path("observe"), observation)
    }

    /// Sends an observation and expects status 200.
    ///
    /// # Panics
    /// If the status is another, or no complete response arrives.
    #[track_caller]
    pub fn observe(&self, observation: &Value) -> Value {
        self.post("observe", observation).expect(200)
    }

    /// Sends observations as JSON lines and reads the results as they arrive, without the summary.
    ///
    /// # Errors
    /// If no response head arrives.
    ///
    /// # Panics
    /// If the node refuses the request as a whole.
    #[track_caller]
    pub fn observe_lines(&self, body: &str) -> Result<Lines, ureq::Error> {
        let response = self.client.start("POST", &self.path("observations"), "application/x-ndjson", body)?;
        let of_lines = response.headers().get("content-type").is_some_and(|kind| kind == "application/x-ndjson");
        assert!(of_lines, "{} refuses JSON lines: {}", self.path("observations"), response.status());
        let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Lines { reader: BufReader::new(reader) })
    }

    /// The user's state with up to `history` of the latest events.
    ///
    /// # Panics
    /// If the status is not 200.
    #[track_caller]
    #[must_use]
    pub fn user(&self, user: &str, history: usize) -> Value {
        self.get(&format!("users/{user}?history={history}")).expect(200)
    }
}

impl Reply {
    /// Checks the status and returns the body as JSON.
    ///
    /// # Panics
    /// If the status is another, or the body is not JSON.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "the answer was {}", self.text);
        self.json()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text))
    }

    /// A header's value, if the header is present and its value is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Iterator for Lines {
    type Item = io::Result<Value>;

    /// The next complete line. A line cut off by a closed connection is an error, never a value.
    fn next(&mut self) -> Option<io::Result<Value>> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) if line.starts_with("{\"summary\":") => None,
            Ok(_) if line.ends_with('\n') => Some(serde_json::from_str(&line).map_err(io::Error::other)),
            Ok(_) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Some(Err(error)),
        }
    }
}
