//! The section `[cluster]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use celeris_model::ids::PARTITIONS;
use celeris_model::{NodeName, Shards};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::addresses::{self, is_base_url};
use super::{ClusterTls, Server};

/// The cluster of which the node is a member: its logs are replicated by NATS JetStream. Without a name,
/// the node is on its own, and the other keys have no effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// The name of the cluster: ASCII letters, digits, `-` and `_`.
    #[schema(value_type = Option<String>)]
    pub name: Option<String>,
    /// The name of this node, the same after every restart, and of no other node.
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeName>,
    /// The URL by which clients and the other nodes reach this node. By default, `http://`, or `https://` with `server.tls`, and
    /// the listening address, which other machines reach only if it is an address of theirs.
    #[schema(value_type = Option<String>)]
    pub url: Option<String>,
    /// A file with the secret by which the nodes know each other, the same on all of them: at least 32 characters, without
    /// white space. Without it, any program that reaches a node may ask what only nodes ask, and the cluster takes no keys of clients.
    #[schema(value_type = Option<String>)]
    pub secret_file: Option<PathBuf>,
    /// The addresses of the NATS servers, such as `nats://10.0.0.1:4222`; `tls://` for encrypted connections.
    #[serde(serialize_with = "addresses::serialize")]
    pub nats: Vec<String>,
    /// The user that the node is to the NATS servers, if they ask for one.
    #[schema(value_type = Option<String>)]
    pub nats_user: Option<String>,
    /// A file with the password of `nats_user`. It is read for each connection.
    #[schema(value_type = Option<String>)]
    pub nats_password_file: Option<PathBuf>,
    /// A file with a token for the NATS servers, in place of user and password. It is read for each connection.
    #[schema(value_type = Option<String>)]
    pub nats_token_file: Option<PathBuf>,
    /// The monitoring addresses of the NATS servers, such as `http://10.0.0.1:8222`. The node reads there
    /// whether the servers sync every write (`sync_interval: always`), and does not start if they
    /// do not.
    #[serde(serialize_with = "addresses::serialize")]
    pub nats_monitor: Vec<String>,
    /// Starts even if the NATS servers do not sync every write, or do not say so. A power failure of
    /// several servers may then lose acknowledged observations.
    pub unsafe_no_sync: bool,
    /// The copies of each log in NATS: 3, or 1 without any tolerance of failures.
    pub replicas: usize,
    /// The number of shards of a new cluster, 1 to 64, fixed for its life: two for each node that it
    /// is to have.
    pub shards: u8,
    /// How long the logs in NATS hold what all nodes have synced, at most.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub trim_delay: Duration,
    /// How long a new version waits before it serves until all nodes have it.
    #[serde(with = "super::times")]
    #[schema(value_type = String)]
    pub ready_within: Duration,
    /// Encryption of what the node sends to other nodes and to the NATS servers.
    #[schema(inline)]
    pub tls: ClusterTls,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: None,
            node: None,
            url: None,
            secret_file: None,
            nats: Vec::new(),
            nats_user: None,
            nats_password_file: None,
            nats_token_file: None,
            nats_monitor: Vec::new(),
            unsafe_no_sync: false,
            replicas: 3,
            shards: 6,
            trim_delay: Duration::from_secs(600),
            ready_within: Duration::from_secs(60),
            tls: ClusterTls::default(),
        }
    }
}

impl Cluster {
    /// `server` is the section of the node's socket.
    pub(super) fn check(&self, server: &Server) -> Result<(), String> {
        let listen = server.listen.as_str();
        let Some(name) = &self.name else {
            let is_absent = *self == Self::default();
            let missing = "cluster.name: missing; give the name of the cluster, or remove the section [cluster] for a \
                           node on its own";
            return if is_absent { Ok(()) } else { Err(missing.to_owned()) };
        };
        if NodeName::new(name.as_str()).is_err() {
            return Err(format!("cluster.name: {name:?} must consist of 1 to 64 ASCII letters, digits, `-` and `_`"));
        }
        if self.node.is_none() {
            return Err("cluster.node: every node of a cluster needs a name of its own, such as \"a\"".to_owned());
        }
        if self.nats.is_empty() {
            return Err(
                "cluster.nats: give the addresses of the NATS servers, such as [\"nats://10.0.0.1:4222\"]".to_owned()
            );
        }
        if let Some(url) = self.url.as_ref().filter(|url| !is_base_url(url)) {
            return Err(format!(
                "cluster.url: {url:?} is no address of a node; give scheme, host and port, such as \"http://10.0.0.5:7117\""
            ));
        }
        if self.url.is_none() && listen.parse().is_ok_and(|address: SocketAddr| address.ip().is_unspecified()) {
            return Err(format!(
                "cluster.url: the other nodes cannot reach this one at {listen}; give the address by which they do, such as \
                 \"http://10.0.0.5:7117\""
            ));
        }
        self.check_encryption(server.tls.cert.is_some())?;
        if !matches!(self.replicas, 1 | 3 | 5) {
            return Err(format!("cluster.replicas: must be 1, 3 or 5, got {}", self.replicas));
        }
        if Shards::new(self.shards).is_none() {
            return Err(format!("cluster.shards: must be from 1 to {PARTITIONS}, got {}", self.shards));
        }
        Ok(())
    }

    /// `serves_tls` is whether the node's own socket is encrypted.
    fn check_encryption(&self, serves_tls: bool) -> Result<(), String> {
        self.tls.check()?;
        let wrong = |problem: &str| Err(problem.to_owned());
        let is_https = self.url.as_ref().map_or(serves_tls, |url| url.starts_with("https://"));
        if serves_tls && !is_https {
            return wrong("cluster.url: must begin with https://, since the node has a certificate (server.tls.cert)");
        }
        if is_https && self.tls.ca.is_none() {
            return wrong(
                "cluster.tls.ca: name the authorities of the certificates of the nodes, which reach each other by https://",
            );
        }
        if self.encrypts_nats() && !self.nats.iter().all(|server| is_encrypted(server)) {
            return wrong("cluster.nats: either all addresses begin with tls://, or none");
        }
        if self.nats_user.is_some() != self.nats_password_file.is_some() {
            return wrong("cluster.nats_user: goes together with cluster.nats_password_file");
        }
        if self.nats_user.is_some() && self.nats_token_file.is_some() {
            return wrong("cluster.nats_token_file: give either a token, or cluster.nats_user and its password");
        }
        Ok(())
    }

    /// Whether NATS servers that do not encrypt are refused.
    #[must_use]
    pub fn encrypts_nats(&self) -> bool {
        self.nats.iter().any(|server| is_encrypted(server))
    }
}

fn is_encrypted(server: &str) -> bool {
    server.starts_with("tls://")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_section_without_the_name_of_the_cluster_is_refused() {
        assert_eq!(Cluster::default().check(&listening("127.0.0.1:7117")), Ok(()));
        let nameless = Cluster { nats: vec!["nats://10.0.0.1:4222".to_owned()], ..Cluster::default() };
        assert!(nameless.check(&listening("127.0.0.1:7117")).unwrap_err().starts_with("cluster.name: missing"));
    }

    #[test]
    fn a_node_of_a_cluster_needs_an_address_that_others_reach() {
        let cluster = Cluster {
            name: Some("production".to_owned()),
            node: Some(NodeName::new("a").unwrap()),
            nats: vec!["nats://10.0.0.1:4222".to_owned()],
            ..Cluster::default()
        };
        for everywhere in ["0.0.0.0:7117", "[::]:7117"] {
            let problem = cluster.check(&listening(everywhere)).unwrap_err();
            assert!(problem.starts_with("cluster.url") && problem.contains(everywhere), "{problem}");
            let named = Cluster { url: Some("http://10.0.0.1:7117".to_owned()), ..cluster.clone() };
            named.check(&listening(everywhere)).unwrap();
        }
        cluster.check(&listening("10.0.0.1:7117")).unwrap();
        cluster.check(&listening("localhost:7117")).unwrap();
    }

    #[test]
    fn encryption_is_of_all_or_refused() {
        let file = || Some(PathBuf::from("file.pem"));
        let cluster = Cluster {
            name: Some("production".to_owned()),
            node: Some(NodeName::new("a").unwrap()),
            nats: vec!["nats://10.0.0.1:4222".to_owned()],
            ..Cluster::default()
        };
        let plain = listening("10.0.0.1:7117");
        let mut encrypted = listening("10.0.0.1:7117");
        (encrypted.tls.cert, encrypted.tls.key) = (file(), file());
        let known = Cluster { tls: ClusterTls { ca: file(), ..ClusterTls::default() }, ..cluster.clone() };
        known.check(&encrypted).unwrap();
        known.check(&plain).unwrap();
        let at = |url: &str, of: &Cluster| Cluster { url: Some(url.to_owned()), ..of.clone() };
        at("https://node.example:7117", &known).check(&plain).unwrap();
        let servers = |servers: [&str; 2]| Cluster { nats: servers.map(str::to_owned).to_vec(), ..cluster.clone() };
        servers(["tls://a:4222", "tls://b:4222"]).check(&plain).unwrap();
        let half = ClusterTls { ca: file(), cert: file(), key: None };
        let user = || Some("celeris".to_owned());
        let login = Cluster { nats_user: user(), nats_password_file: file(), ..cluster.clone() };
        login.check(&plain).unwrap();
        for (wrong, server, field) in [
            (cluster.clone(), &encrypted, "cluster.tls.ca"),
            (at("https://node.example:7117", &cluster), &plain, "cluster.tls.ca"),
            (at("http://node.example:7117", &known), &encrypted, "cluster.url"),
            (at("ftp://node.example:7117", &known), &encrypted, "cluster.url"),
            (servers(["tls://a:4222", "nats://b:4222"]), &plain, "cluster.nats"),
            (Cluster { tls: half, ..cluster.clone() }, &plain, "cluster.tls"),
            (Cluster { nats_user: user(), ..cluster.clone() }, &plain, "cluster.nats_user"),
            (Cluster { nats_password_file: file(), ..cluster.clone() }, &plain, "cluster.nats_user"),
            (Cluster { nats_token_file: file(), ..login }, &plain, "cluster.nats_token_file"),
        ] {
            let problem = wrong.check(server).unwrap_err();
            assert!(problem.starts_with(field), "{field}: {problem}");
        }
    }

    fn listening(address: &str) -> Server {
        Server { listen: address.to_owned(), ..Server::default() }
    }
}
