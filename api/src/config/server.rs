//! The section `[server]`.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::addresses::{is_host, is_origin};
use super::tls::Tls;

/// The listening socket and its connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port; port 0 picks a free one.
    pub listen: String,
    /// Address and port of a second socket, for operators: then `/metrics`, `/docs` and the page are served there alone, and the
    /// whole API as well.
    #[schema(value_type = Option<String>)]
    pub operators: Option<String>,
    /// Serves without keys or TLS also on addresses that other machines reach, which the node refuses otherwise: for a network
    /// that only your services reach, or behind a proxy that does both.
    pub insecure: bool,
    /// Host names by which clients reach the node, without ports. The loopback names and the
    /// listening address are always accepted; requests for any other host are rejected.
    pub hosts: Vec<String>,
    /// Web origins whose pages may call the node from a browser, such as `https://app.example`.
    pub origins: Vec<String>,
    /// Maximum number of open connections, capped at half of the process's file descriptor limit.
    /// Beyond it, only health checks are answered.
    pub connections: usize,
    /// How long a connection may take to send a complete request head, and how long it may accept
    /// no response bytes.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub idle_timeout: Duration,
    /// How long requests in flight may take to finish after the node was asked to stop.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub drain_timeout: Duration,
    /// Encryption of connections.
    #[schema(inline)]
    pub tls: Tls,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7117".to_owned(),
            operators: None,
            insecure: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            connections: 4096,
            idle_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(10),
            tls: Tls::default(),
        }
    }
}

impl Server {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.connections == 0 || self.idle_timeout.is_zero() {
            return Err("server.connections and server.idle_timeout: must be above 0".to_owned());
        }
        if let Some(host) = self.hosts.iter().find(|host| !is_host(host)) {
            return Err(format!(
                "server.hosts: {host:?} is no host; give names without a port, such as \"celeris.example\""
            ));
        }
        if let Some(origin) = self.origins.iter().find(|origin| !is_origin(origin)) {
            return Err(format!(
                "server.origins: {origin:?} is no origin as browsers send it; give scheme, host and a port that is not the \
                 scheme's own, in lower case, such as \"https://app.example\""
            ));
        }
        if let Some(operators) = self.operators.as_ref().filter(|of| of.parse::<SocketAddr>().is_err()) {
            return Err(format!("server.operators: {operators:?} is no address and port, such as \"127.0.0.1:7118\""));
        }
        self.tls.check()
    }
}
