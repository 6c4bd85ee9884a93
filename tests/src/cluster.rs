//! A cluster of node processes over NATS servers, all on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::certificates::Certificate;
use crate::client::{Client, ModelClient};
use crate::nats::{Nats, send_signal};
use crate::network::{Host, Network};
use crate::node_process::{Exit, NodeProcess, ProcessOptions};
use crate::small_disk::SmallDisk;
use crate::wait::eventually;

/// The shards of a test's cluster.
const SHARDS: usize = 6;

/// A cluster. Dropping it kills its processes.
pub struct Cluster {
    nodes: Vec<Option<NodeProcess>>,
    pub nats: Nats,
    /// Small disks of nodes, by their numbers.
    disks: BTreeMap<usize, SmallDisk>,
    network: Option<Network>,
    folder: TempDir,
    options: ProcessOptions,
    settings: String,
    /// The scheme of the servers' addresses.
    nats_scheme: &'static str,
}

impl Cluster {
    /// Starts this number of nodes over this number of NATS servers, and waits until every shard has an
    /// owner. `None`, and the test is skipped, if there is no NATS server.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    #[must_use]
    pub fn start(nodes: usize, servers: usize) -> Option<Self> {
        Self::configured(nodes, servers, "")
    }

    /// Like [`Cluster::start`], with further lines for the section `[cluster]` of the configuration.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    #[must_use]
    pub fn configured(nodes: usize, servers: usize, settings: &str) -> Option<Self> {
        let cluster = Self { settings: settings.to_owned(), ..Self::prepared(servers)? };
        Some(cluster.with_nodes(nodes))
    }

    /// Nodes over these NATS servers, none yet, which connect to them by `tls://`. Clients of the nodes trust this authority, and show
    /// this certificate. `settings` are further lines for the section `[cluster]` of the configuration, and sections after it.
    ///
    /// # Panics
    /// If a folder cannot be made.
    #[must_use]
    pub fn encrypted(nats: Nats, (ca, own): (&Path, Certificate), settings: &str) -> Self {
        let options = ProcessOptions::default().trusting(ca, own);
        Self { options, settings: settings.to_owned(), nats_scheme: "tls", ..Self::over(nats) }
    }

    /// Changes the further lines of the configuration of nodes that are started from now on.
    pub fn set_settings(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    /// Adds a node that may refuse to start, and returns its number.
    ///
    /// # Errors
    /// How it ended, if it did before it was ready.
    ///
    /// # Panics
    /// If it is not ready by the deadline.
    #[track_caller]
    pub fn try_add_node(&mut self) -> Result<usize, Exit> {
        self.nodes.push(None);
        let node = self.nodes.len() - 1;
        self.try_start_node(node).map(|()| node).inspect_err(|_| drop(self.nodes.pop()))
    }

    /// Like [`Cluster::start`], with each node and each server on a host of its own, in this order. The test
    /// is skipped too where this process may not make networks.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    #[must_use]
    pub fn in_network(nodes: usize, servers: usize) -> Option<Self> {
        let network = Network::unless_forbidden(nodes + servers)?;
        let hosts: Vec<Host> = (nodes..nodes + servers).map(|host| network.host(host)).collect();
        let cluster = Self { network: Some(network), ..Self::over(Nats::start_on(&hosts)?) };
        Some(cluster.with_nodes(nodes))
    }

    #[track_caller]
    fn with_nodes(mut self, nodes: usize) -> Self {
        for _ in 0..nodes {
            self.add_node();
        }
        self.await_owners();
        self
    }

    /// This number of NATS servers, and no node yet. `None`, and the test is skipped, if there is no NATS
    /// server.
    ///
    /// # Panics
    /// If they do not start.
    #[track_caller]
    #[must_use]
    pub fn prepared(servers: usize) -> Option<Self> {
        Nats::start(servers).map(Self::over)
    }

    fn over(nats: Nats) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let options = ProcessOptions::default();
        let (nodes, disks, settings) = (Vec::new(), BTreeMap::new(), String::new());
        Self { nodes, nats, disks, network: None, folder, options, settings, nats_scheme: "nats" }
    }

    /// The configuration file of a node, which need not exist yet; written when this is called.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn config(&self, node: usize) -> PathBuf {
        let file = self.folder.path().join(format!("{}.toml", Self::name(node)));
        fs::write(&file, self.configuration(node)).expect("the folder is ours");
        file
    }

    /// The name of a node: `a`, `b` and so on.
    ///
    /// # Panics
    /// If there are more than 26.
    #[must_use]
    pub fn name(node: usize) -> String {
        char::from(b'a' + u8::try_from(node).expect("a small number")).to_string()
    }

    /// The data directory of a node.
    #[must_use]
    pub fn data_dir(&self, node: usize) -> PathBuf {
        self.folder.path().join(Self::name(node))
    }

    /// The folder of all nodes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn configuration(&self, node: usize) -> String {
        let replicas = if self.nats.len() >= 3 { 3 } else { 1 };
        format!(
            "[cluster]\nname = \"test\"\nnode = \"{}\"\nnats = {:?}\nnats_monitor = {:?}\nshards = {SHARDS}\n\
             replicas = {replicas}\n{}\n",
            Self::name(node),
            self.nats_urls(),
            self.nats.monitor_urls(),
            self.settings
        )
    }

    fn nats_urls(&self) -> Vec<String> {
        self.nats.urls().iter().map(|url| url.replacen("nats", self.nats_scheme, 1)).collect()
    }

    /// Starts a node that does not run, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready.
    #[track_caller]
    pub fn start_node(&mut self, node: usize) {
        if let Err(exit) = self.try_start_node(node) {
            panic!("node {} ended before it was ready: {exit:?}", Self::name(node));
        }
    }

    /// Like [`Cluster::start_node`], of a node that may refuse to start.
    ///
    /// # Errors
    /// How it ended, if it did before it was ready.
    ///
    /// # Panics
    /// If it is not ready by the deadline.
    #[track_caller]
    pub fn try_start_node(&mut self, node: usize) -> Result<(), Exit> {
        let mut options = self.options.clone().config(self.config(node));
        if let Some(network) = &self.network {
            options = options.host(network.host(node));
        }
        self.nodes[node] = Some(options.try_serve(&self.data_dir(node))?);
        Ok(())
    }

    /// Nodes that are started from now on pause for good at this fault point; [`ProcessOptions::pause_at`].
    pub fn pause_at(&mut self, point: Option<&str>) {
        self.options = point.map_or_else(ProcessOptions::default, |point| ProcessOptions::default().pause_at(point));
    }

    /// Waits until the standard error of a node contains `text`.
    ///
    /// # Panics
    /// If it does not by the deadline.
    #[track_caller]
    pub fn await_stderr(&self, node: usize, text: &str) {
        self.process(node).await_stderr(text);
    }

    /// Waits until a node has read its whole store.
    ///
    /// # Errors
    /// How it ended, if it did before.
    ///
    /// # Panics
    /// If neither happens by the deadline.
    #[track_caller]
    pub fn await_verified(&mut self, node: usize) -> Result<(), Exit> {
        let process = self.nodes[node].as_mut().expect("the node runs");
        process.await_stderr_or_exit("the whole store is verified").inspect_err(|_| self.nodes[node] = None)
    }

    /// The network of the hosts: first those of the nodes, then those of the servers.
    ///
    /// # Panics
    /// If all processes are on one host.
    #[must_use]
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the cluster is in a network")
    }

    /// Moves the data directory of a node that does not run to a disk of this size. `None`, and the test is
    /// skipped, where this process may not mount.
    ///
    /// # Panics
    /// If it does not fit.
    #[must_use]
    pub fn shrink_disk(&mut self, node: usize, mebibytes: u32) -> Option<()> {
        assert!(!self.runs(node), "the node has its data directory open");
        let disk = SmallDisk::in_place_of(&self.data_dir(node), mebibytes)?;
        self.disks.insert(node, disk);
        Some(())
    }

    /// The small disk of a node.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn disk(&self, node: usize) -> &SmallDisk {
        &self.disks[&node]
    }

    /// Adds a node, and returns its number.
    ///
    /// # Panics
    /// If it does not become ready.
    #[track_caller]
    pub fn add_node(&mut self) -> usize {
        self.nodes.push(None);
        self.start_node(self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// The number of nodes, running or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a node runs.
    #[must_use]
    pub fn runs(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    fn process(&self, node: usize) -> &NodeProcess {
        self.nodes[node].as_ref().expect("the node runs")
    }

    /// A client of a node.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn client(&self, node: usize) -> Client {
        self.process(node).client()
    }

    /// A client of a model, by a node.
    ///
    /// # Panics
    /// If it does not run.
    #[must_use]
    pub fn model(&self, node: usize, name: &str) -> ModelClient {
        self.process(node).model(name)
    }

    /// Sends SIGKILL to a node.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].take().expect("the node runs").kill_hard();
    }

    /// Sends SIGTERM to a node, and waits for its exit.
    ///
    /// # Panics
    /// If it does not run, or does not exit by the deadline.
    #[track_caller]
    pub fn terminate(&mut self, node: usize) -> Exit {
        self.nodes[node].take().expect("the node runs").terminate()
    }

    /// Sends a signal, such as `STOP` or `CONT`, to a node.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, node: usize, signal: &str) {
        send_signal(self.process(node).id(), signal);
    }

    /// The owner of each shard and of the catalog, as a node knows them and if all of them own what they
    /// are to own.
    fn owners_by(&self, node: usize) -> Option<(String, Vec<String>)> {
        let reply = self.client(node).try_send("GET", "/v1/cluster", "", "").ok()?.json();
        let map = &reply["map"];
        let coordinator = map["coordinator"].as_str()?.to_owned();
        let shards = map["shards"].as_array()?;
        let owners =
            shards.iter().map(|shard| Some(shard["owner"].as_str()?.to_owned())).collect::<Option<Vec<_>>>()?;
        Some((coordinator, owners)).filter(|(_, owners)| owners.len() == SHARDS)
    }

    /// Waits until all running nodes agree on the owners, which are running nodes that own their shards, and
    /// returns the numbers of the coordinator and of the owner of each shard.
    ///
    /// # Panics
    /// If they do not by the deadline.
    #[track_caller]
    pub fn await_owners(&self) -> (usize, Vec<usize>) {
        let running: Vec<usize> = (0..self.len()).filter(|node| self.runs(*node)).collect();
        let number = |name: &str| (0..self.len()).find(|node| Self::name(*node) == name);
        eventually("every shard has an owner", || {
            let known: Vec<_> = running.iter().map(|node| self.owners_by(*node)).collect::<Option<_>>()?;
            let (coordinator, owners) = known.first()?;
            if known.iter().any(|other| other != &known[0]) {
                return None;
            }
            let owners: Vec<usize> = owners.iter().map(|owner| number(owner)).collect::<Option<_>>()?;
            let coordinator = number(coordinator)?;
            let owns = |(shard, owner): (usize, &usize)| {
                let reply = self.client(*owner).try_send("GET", "/v1/cluster", "", "").ok()?.json();
                (reply["map"]["shards"][shard]["owned"] == true).then_some(())
            };
            let is_running = |node: &usize| running.contains(node);
            if !owners.iter().all(is_running) || !is_running(&coordinator) {
                return None;
            }
            owners.iter().enumerate().map(owns).collect::<Option<Vec<()>>>()?;
            Some((coordinator, owners))
        })
    }

    /// Waits until a node has been given shards, which it is once it serves what the others serve.
    ///
    /// # Panics
    /// If it is not by the deadline.
    #[track_caller]
    pub fn await_shards(&self, node: usize) {
        eventually("the node owns shards", || self.await_owners().1.contains(&node).then_some(()));
    }
}
