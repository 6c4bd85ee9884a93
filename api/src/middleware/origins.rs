//! Checks of the `Host` and `Origin` headers.
//!
//! A page of any site can send requests to every address that its visitor can reach, loopback
//! included, and with DNS rebinding it can also read the responses. Therefore a request must be for
//! a host name of the node, and the page must be the node's own or from an origin that the
//! configuration allows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::cluster;
use crate::config::Server;
use crate::connections::Connection;
use crate::error::ApiError;
use crate::hosts::{host_of, without_port};
use crate::middleware::limits::rejected;
use crate::personalizer::KEY_HEADER;
use crate::scope::{RequestId, TraceParent};
use crate::state::Node;

/// Path prefix of the API.
const API: &str = "/v1/";

/// Host names of the loopback interface.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// For how long a browser may cache a preflight response.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(600);

/// The accepted host names and web origins of a node.
pub struct Origins {
    /// Without ports, in lower case.
    hosts: Vec<String>,
    /// As browsers send them: `https://app.example:8443`.
    sites: Vec<HeaderValue>,
    /// Whether the node listens on all addresses, so that the address a client connected to is also
    /// accepted as a host.
    every_address: bool,
    /// The node, whose cluster gives it another name.
    node: Option<Node>,
}

impl Origins {
    /// Accepts the loopback names, the listening address, the configured hosts and origins, and the
    /// host by which the cluster of `node` reaches it.
    pub fn new(server: &Server, listening: SocketAddr, node: Node) -> Self {
        Self { node: Some(node), ..Self::configured(server, listening) }
    }

    fn configured(server: &Server, listening: SocketAddr) -> Self {
        let configured = server.listen.rsplit_once(':').map_or(server.listen.as_str(), |(host, _)| host);
        let listens_on = [configured.to_owned(), host_of(listening.ip())];
        let names = LOOPBACK.map(str::to_owned).into_iter().chain(listens_on).chain(server.hosts.iter().cloned());
        let mut hosts: Vec<String> = Vec::new();
        for name in names.map(|name| name.to_ascii_lowercase()) {
            if !name.is_empty() && !hosts.contains(&name) {
                hosts.push(name);
            }
        }
        // The configuration check has verified that they are plain text.
        let sites = server.origins.iter().filter_map(|site| HeaderValue::from_str(site).ok()).collect();
        Self { hosts, sites, every_address: listening.ip().is_unspecified(), node: None }
    }

    /// The CORS layer for the configured origins; `None` if none is configured.
    pub fn cors(&self) -> Option<CorsLayer> {
        let cors = CorsLayer::new()
            .allow_origin(AllowOrigin::list(self.sites.iter().cloned()))
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers([
                header::CONTENT_TYPE,
                header::AUTHORIZATION,
                RequestId::HEADER,
                TraceParent::HEADER,
                TraceParent::STATE,
                HeaderName::from_static(KEY_HEADER),
            ])
            .expose_headers([RequestId::HEADER])
            .max_age(PREFLIGHT_MAX_AGE);
        (!self.sites.is_empty()).then_some(cors)
    }

    /// Checks the connection and the headers of a request.
    ///
    /// # Errors
    /// 503 on a reserve connection, 421 if the host is not a name of the node, 403 if the origin is
    /// not allowed.
    pub fn check(&self, request: &Request) -> Result<(), ApiError> {
        let connection: &Arc<Connection> = request.extensions().get().expect("the server adds it to every request");
        if connection.reserve {
            return Err(rejected("too many connections are open on this node; try again"));
        }
        if let Some(authority) = request.uri().authority() {
            self.check_target(authority, request.headers(), &connection.host)?;
        }
        self.check_headers(request.headers(), request.uri().path(), &connection.host)
    }

    /// Checks the target of a request that names a host itself, as those to a proxy do: it counts in place of the header
    /// (RFC 9112, 3.2.2), so both have to be the same name of the node.
    fn check_target(&self, target: &Authority, headers: &HeaderMap, dialled: &str) -> Result<(), ApiError> {
        let host = without_port(target.as_str().as_bytes());
        let said = headers.get(header::HOST).and_then(|said| without_port(said.as_bytes()));
        let is_said = |host: &[u8]| said.is_some_and(|said| said.eq_ignore_ascii_case(host));
        if host.is_some_and(|host| self.is_own(host, dialled) && is_said(host)) {
            return Ok(());
        }
        Err(ApiError::misdirected(format!(
            "the target of the request names the host {target:?}, and must name that of the header Host, one of this node;              send the path alone, as to a server"
        )))
    }

    /// Checks a request for `path` on a connection to the local address `dialled`.
    fn check_headers(&self, headers: &HeaderMap, path: &str, dialled: &str) -> Result<(), ApiError> {
        let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let host = hosts.next().unwrap_or_default();
        if hosts.next().is_some() || !without_port(host).is_some_and(|host| self.is_own(host, dialled)) {
            return Err(ApiError::misdirected(format!(
                "host {:?} is not a name of this node; add it to server.hosts in the configuration, or use {}",
                String::from_utf8_lossy(host),
                self.hosts.join(", ")
            )));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return check_site(headers, path) };
        let bytes = origin.as_bytes();
        let asks = |scheme: &[u8]| bytes.strip_prefix(scheme).is_some_and(|site| site.eq_ignore_ascii_case(host));
        if asks(b"http://") || asks(b"https://") || self.sites.iter().any(|site| site == origin) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!(
            "origin {:?} may not use this node from a browser; add it to server.origins in the configuration",
            String::from_utf8_lossy(bytes)
        )))
    }

    fn is_own(&self, host: &[u8], dialled: &str) -> bool {
        self.hosts.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(host))
            || (self.every_address && dialled.as_bytes().eq_ignore_ascii_case(host))
            || self.of_cluster().is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(host))
    }
}

impl Origins {
    /// The host by which the cluster reaches the node.
    fn of_cluster(&self) -> Option<String> {
        cluster::own_host(&self.node.as_ref()?.cluster.as_ref()?.view())
    }
}

/// Rejects requests that a page of another site makes without an `Origin` header, for example for
/// an image. Links to the node's own pages may be followed from anywhere.
fn check_site(headers: &HeaderMap, path: &str) -> Result<(), ApiError> {
    let is = |name: &str, values: &[&str]| {
        headers.get(name).is_some_and(|given| values.iter().any(|value| given.as_bytes() == value.as_bytes()))
    };
    let is_link = is("sec-fetch-mode", &["navigate"]) && is("sec-fetch-dest", &["document"]);
    if !is("sec-fetch-site", &["cross-site", "same-site"]) || (is_link && !path.starts_with(API)) {
        return Ok(());
    }
    Err(ApiError::forbidden(
        "a page of another site may not use this node from a browser; add its origin to server.origins in the \
         configuration, and ask with CORS",
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn checked(origins: &Origins, host: &str, origin: Option<&str>) -> Result<(), u16> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        origins.check_headers(&headers, "/v1/models", "10.0.0.7").map_err(|error| error.problem().status)
    }

    #[test]
    fn a_node_answers_to_its_own_names_and_to_pages_that_may_ask() {
        let server = Server {
            listen: "Node-1.internal:7117".to_owned(),
            hosts: vec!["celeris.example".to_owned()],
            origins: vec!["https://app.example".to_owned()],
            ..Server::default()
        };
        let origins = Origins::configured(&server, "10.0.0.7:7117".parse().unwrap());
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:7117", "[::1]:7117", "10.0.0.7:7117", "node-1.internal:80"]
        {
            assert_eq!(checked(&origins, host, None), Ok(()), "{host}");
        }
        assert_eq!(checked(&origins, "celeris.example", None), Ok(()));
        for host in [
            "",
            "localhost:evil.example",
            "[::1]evil",
            "evil.example",
            "evil.example:7117",
            "localhost.evil.example",
            "10.0.0.8",
            "[::1",
            "[::2]:7117",
        ] {
            assert_eq!(checked(&origins, host, None), Err(421), "{host}");
        }
        let own = Some("http://localhost:7117");
        assert_eq!(checked(&origins, "localhost:7117", own), Ok(()));
        assert_eq!(checked(&origins, "localhost:7117", Some("https://localhost:7117")), Ok(()));
        assert_eq!(checked(&origins, "localhost", Some("https://app.example")), Ok(()));
        for origin in
            ["null", "http://localhost:3000", "http://app.example", "https://app.example.evil", "ftp://localhost"]
        {
            assert_eq!(checked(&origins, "localhost:7117", Some(origin)), Err(403), "{origin}");
        }
    }

    #[test]
    fn a_target_that_names_a_host_names_that_of_the_header() {
        let server = Server { hosts: vec!["celeris.example".to_owned()], ..Server::default() };
        let origins = Origins::configured(&server, "127.0.0.1:7117".parse().unwrap());
        let checked = |target: &str, host: &str| {
            let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            origins.check_target(&target.parse().unwrap(), &headers, "10.0.0.7").map_err(|error| error.problem().status)
        };
        assert_eq!(checked("localhost:7117", "localhost:7117"), Ok(()));
        assert_eq!(checked("Celeris.example", "celeris.example:80"), Ok(()));
        for (target, host) in [
            ("evil.example", "localhost:7117"),
            ("evil.example", "evil.example"),
            ("localhost:7117", "evil.example"),
            ("localhost", "127.0.0.1"),
            ("user@localhost:7117", "localhost:7117"),
        ] {
            assert_eq!(checked(target, host), Err(421), "{target} {host}");
        }
    }

    #[test]
    fn embedded_requests_of_other_sites_are_refused_and_links_are_not() {
        let checked = |path: &str, sent: [&'static str; 3]| {
            let mut headers = HeaderMap::new();
            let names = ["sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"];
            names.into_iter().zip(sent).for_each(|(name, value)| drop(headers.insert(name, value.parse().unwrap())));
            check_site(&headers, path).map_err(|error| error.problem().status)
        };
        assert_eq!(checked("/v1/models", ["cross-site", "no-cors", "image"]), Err(403));
        assert_eq!(checked("/v1/models", ["same-site", "no-cors", "script"]), Err(403));
        assert_eq!(checked("/v1/models", ["cross-site", "navigate", "document"]), Err(403));
        assert_eq!(checked("/", ["cross-site", "navigate", "iframe"]), Err(403));
        assert_eq!(checked("/", ["cross-site", "navigate", "document"]), Ok(()));
        assert_eq!(checked("/v1/models", ["same-origin", "cors", "empty"]), Ok(()));
        assert_eq!(checked("/v1/models", ["none", "navigate", "document"]), Ok(()));
    }

    #[test]
    fn a_node_on_all_addresses_accepts_the_dialled_address_as_host() {
        let server = Server { listen: "0.0.0.0:7117".to_owned(), ..Server::default() };
        let origins = Origins::configured(&server, "0.0.0.0:7117".parse().unwrap());
        assert_eq!(checked(&origins, "10.0.0.7:7117", None), Ok(()));
        assert_eq!(checked(&origins, "10.0.0.8:7117", None), Err(421));
    }
}
