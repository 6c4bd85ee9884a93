//! Three nodes of a cluster as processes, and a node on its own with the same store.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use celeris_model::{ItemId, Partition, Shards, UserId};
use serde_json::{Value, json};

use super::nats::{Nats, SERVERS, poll};
use crate::process::{MODEL, Server, celeris_binary, prepare};
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Nodes of a cluster.
pub const NODES: usize = 3;

/// Shards of the cluster: the default for three nodes.
pub const SHARDS: u8 = 6;

/// How long a cluster may take until every shard has an owner.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a cluster is made of.
pub struct Plan<'a> {
    pub folder: &'a Path,
    /// The name of the cluster, whose streams have it too.
    pub name: &'a str,
    /// Items of the active version.
    pub catalog: usize,
    pub dim: usize,
    /// Environment variables of all nodes.
    pub configuration: &'a [(&'a str, &'a str)],
}

/// The nodes of a cluster. Dropping this kills them.
pub struct Nodes {
    folder: PathBuf,
    name: String,
    nats: (Vec<String>, Vec<String>),
    configuration: Vec<(String, String)>,
    nodes: Vec<Option<Server>>,
    items: Vec<ItemId>,
}

impl Nodes {
    /// Makes a store with a model the origin of a cluster, starts its nodes, and waits until every
    /// shard has an owner. Also starts a node on its own with the same store.
    ///
    /// # Errors
    /// If a node does not start.
    pub fn start(plan: &Plan<'_>, nats: &Nats) -> Result<(Self, Server), Failure> {
        let Plan { folder, name, catalog, dim, configuration } = *plan;
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut nodes = Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            nats: (nats.urls(), nats.monitor_urls()),
            configuration: configuration.iter().map(owned).collect(),
            nodes: (0..NODES).map(|_| None).collect(),
            items: Vec::new(),
        };
        let alone = folder.join("alone");
        nodes.items = prepare(&alone, catalog, dim)?;
        // The same version has the same items and features in both.
        prepare(&nodes.data_dir(0), catalog, dim)?;
        nodes.begin()?;
        for node in 0..NODES {
            nodes.start_node(node)?;
        }
        nodes.await_version()?;
        Ok((nodes, Server::node_with(&alone, configuration)?))
    }

    /// Waits until the owners of all shards have the active version, which they get from the first node.
    fn await_version(&self) -> Result<(), Failure> {
        let (owners, users) = (self.await_owners()?, users_by_shard(64 * usize::from(SHARDS))?);
        for (owner, users) in owners.into_iter().zip(users) {
            let url = format!("http://{}/v1/models/{MODEL}/predict", self.address(owner));
            let user = users.first().ok_or_else(|| Failure::other("a shard has no users"))?;
            let body = json!({ "user": user, "item": self.items[0] }).to_string();
            let ask = || ureq::post(&url).content_type("application/json").send(&body).ok().map(drop);
            poll("the version on all nodes", READY_TIMEOUT, ask)?;
        }
        Ok(())
    }

    /// The items of the active version.
    pub fn items(&self) -> &[ItemId] {
        &self.items
    }

    fn data_dir(&self, node: usize) -> PathBuf {
        self.folder.join(node_name(node))
    }

    fn settings(&self, node: usize) -> Vec<(String, String)> {
        let section = |key: &str| format!("CELERIS_CLUSTER__{key}");
        let mut settings = vec![
            (section("NAME"), self.name.clone()),
            (section("NODE"), node_name(node)),
            (section("NATS"), format!("{:?}", self.nats.0)),
            (section("NATS_MONITOR"), format!("{:?}", self.nats.1)),
            (section("SHARDS"), SHARDS.to_string()),
            (section("REPLICAS"), SERVERS.to_string()),
        ];
        settings.extend(self.configuration.iter().cloned());
        settings
    }

    /// Makes the store of the first node the log of the cluster.
    fn begin(&self) -> Result<(), Failure> {
        let config = self.folder.join("recover.toml");
        let (nats, monitor) = &self.nats;
        let text = format!(
            "[cluster]\nname = \"{}\"\nnode = \"{}\"\nnats = {nats:?}\nnats_monitor = {monitor:?}\n\
             shards = {SHARDS}\nreplicas = {SERVERS}\n",
            self.name,
            node_name(0)
        );
        fs::write(&config, text).map_err(Failure::other)?;
        let mut command = Command::new(celeris_binary()?);
        command.args(["cluster", "recover", "--yes", "--data-dir"]).arg(self.data_dir(0));
        command.arg("--config").arg(&config).stdout(Stdio::null());
        let status = command.status().map_err(Failure::other)?;
        if status.success() { Ok(()) } else { Err(Failure::other("the store did not become a cluster's")) }
    }

    /// Starts a node that does not run.
    ///
    /// # Errors
    /// If it ends before it is ready.
    pub fn start_node(&mut self, node: usize) -> Result<(), Failure> {
        let settings = self.settings(node);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&**key, &**value)).collect();
        self.nodes[node] = Some(Server::node_with(&self.data_dir(node), &settings)?);
        Ok(())
    }

    /// A node that runs.
    pub fn node(&self, node: usize) -> &Server {
        self.nodes[node].as_ref().expect("the bench asks nodes that it has not ended")
    }

    pub fn address(&self, node: usize) -> SocketAddr {
        self.node(node).address()
    }

    /// The nodes that run.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|node| self.nodes[*node].is_some())
    }

    /// Takes a node out, to end it.
    pub fn take(&mut self, node: usize) -> Server {
        self.nodes[node].take().expect("the bench ends a node once")
    }

    /// The answer of a node to `GET /v1/cluster`.
    fn map_of(&self, node: usize) -> Option<Value> {
        let url = format!("http://{}/v1/cluster", self.address(node));
        let text = ureq::get(&url).call().and_then(|mut reply| reply.body_mut().read_to_string()).ok()?;
        serde_json::from_str::<Value>(&text).ok().map(|reply| reply["map"].clone())
    }

    /// Waits until all running nodes agree on the owners, which own their shards, and the shards are
    /// divided evenly; returns the owner of each shard.
    ///
    /// # Errors
    /// If they do not in time.
    pub fn await_owners(&self) -> Result<Vec<usize>, Failure> {
        poll("an owner of every shard", READY_TIMEOUT, || self.owners())
    }

    fn owners(&self) -> Option<Vec<usize>> {
        let maps: Vec<(usize, Value)> =
            self.running().map(|node| Some((node, self.map_of(node)?))).collect::<Option<_>>()?;
        let owners = |map: &Value| -> Option<Vec<usize>> {
            map["coordinator"].as_str()?;
            map["shards"].as_array()?.iter().map(|shard| number(shard["owner"].as_str()?)).collect()
        };
        let known = owners(&maps.first()?.1)?;
        let share = usize::from(SHARDS) / maps.len();
        for (node, map) in &maps {
            let owned = map["shards"].as_array()?.iter().filter(|shard| shard["owned"] == true).count();
            if owners(map)? != known || owned != share {
                return None;
            }
            debug_assert!(known.contains(node));
        }
        Some(known)
    }
}

fn node_name(node: usize) -> String {
    ["a", "b", "c"][node].to_owned()
}

fn number(name: &str) -> Option<usize> {
    (0..NODES).find(|node| node_name(*node) == name)
}

/// The shard of a user.
pub fn shard_of(user: &UserId) -> usize {
    let shards = Shards::new(SHARDS).expect("it is a number of shards");
    usize::from(shards.of(Partition::of(user)).index())
}

/// The first `count` users of the bench by shard.
///
/// # Errors
/// None: generated ids are valid.
pub fn users_by_shard(count: usize) -> Result<Vec<Vec<UserId>>, Failure> {
    let mut users = vec![Vec::new(); usize::from(SHARDS)];
    for number in 0..count {
        let user = scene::user(number).map_err(Failure::other)?;
        users[shard_of(&user)].push(user);
    }
    Ok(users)
}
