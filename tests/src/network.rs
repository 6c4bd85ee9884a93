//! Hosts of one network on this machine: network namespaces, connected by a bridge.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use celeris_skip::{Need, unless};

/// Networks of this process so far.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// No interface has it: packets to it are lost without a sign to their sender.
const NOWHERE: &str = "02:00:00:00:00:01";

/// Where a process runs.
#[derive(Debug, Clone)]
pub struct Host {
    address: String,
    namespace: Option<String>,
}

impl Host {
    /// This machine, as the test itself has it.
    #[must_use]
    pub fn loopback() -> Self {
        Self { address: "127.0.0.1".to_owned(), namespace: None }
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The words before a command line that is to run there. The process keeps its id.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let namespace = self.namespace.iter();
        namespace.flat_map(|name| ["ip", "netns", "exec", name].map(str::to_owned)).collect()
    }
}

/// A network whose hosts the test reaches too. Dropping it removes it.
pub struct Network {
    /// The bridge; names of interfaces have at most 15 characters.
    name: String,
    /// The first three numbers of all addresses.
    subnet: String,
    hosts: usize,
}

impl Network {
    /// A network of this number of hosts. `None`, and the test is skipped, where this process may not make
    /// one.
    ///
    /// # Panics
    /// If it can only be made in part.
    #[must_use]
    pub fn unless_forbidden(hosts: usize) -> Option<Self> {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let name = format!("cel{process:x}x{number:x}");
        let made = ip(&["link", "add", &name, "type", "bridge"]);
        unless(Need::Namespaces, made.ok(), "network namespaces and bridges cannot be made here (root and iproute2)")?;
        let taken = ip(&["-4", "address"]).unwrap_or_default();
        // The range that is reserved for tests of networks.
        let subnets = (0..254_u32).map(|shift| format!("198.18.{}", (process + shift) % 254));
        let subnet = subnets.into_iter().find(|subnet| !taken.contains(&format!("{subnet}."))).expect("one is free");
        let network = Self { name, subnet, hosts };
        done(&["address", "add", &format!("{}.254/24", network.subnet), "dev", &network.name]);
        done(&["link", "set", &network.name, "up"]);
        (0..hosts).for_each(|host| network.add(host));
        Some(network)
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}h{host}", self.name)
    }

    fn address(&self, host: usize) -> String {
        format!("{}.{}", self.subnet, host + 1)
    }

    fn add(&self, host: usize) {
        let namespace = self.namespace(host);
        done(&["netns", "add", &namespace]);
        done(&["link", "add", &namespace, "type", "veth", "peer", "name", "eth0", "netns", &namespace]);
        done(&["link", "set", &namespace, "master", &self.name, "up"]);
        self.inside(host, &["address", "add", &format!("{}/24", self.address(host)), "dev", "eth0"]);
        self.inside(host, &["link", "set", "eth0", "up"]);
        self.inside(host, &["link", "set", "lo", "up"]);
    }

    fn inside(&self, host: usize, arguments: &[&str]) {
        done(&[&["-n", &self.namespace(host)], arguments].concat());
    }

    /// A host by its number.
    #[must_use]
    pub fn host(&self, host: usize) -> Host {
        assert!(host < self.hosts, "the network has {} hosts", self.hosts);
        Host { address: self.address(host), namespace: Some(self.namespace(host)) }
    }

    /// Loses all packets from one host to another, without a sign to either.
    ///
    /// # Panics
    /// If the network is gone.
    pub fn lose(&self, from: usize, to: usize) {
        let to = self.address(to);
        self.inside(from, &["neighbour", "replace", &to, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0"]);
    }

    /// Undoes [`Network::lose`].
    ///
    /// # Panics
    /// If nothing was lost between the two.
    pub fn pass(&self, from: usize, to: usize) {
        self.inside(from, &["neighbour", "delete", &self.address(to), "dev", "eth0"]);
    }

    /// Delays the packets that a host sends, and loses some of them at random. `None`, and the test is
    /// skipped, where the kernel cannot.
    #[must_use]
    pub fn slow_down(&self, host: usize, delay_ms: u32, loss_percent: f32) -> Option<()> {
        let (delay, loss) = (format!("{delay_ms}ms"), format!("{loss_percent}%"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host), "tc", "qdisc", "add", "dev", "eth0", "root", "netem"]);
        let slowed = output(command.args(["delay", &delay, "loss", &loss]));
        unless(Need::Netem, slowed.ok(), "the kernel has no netem, which delays and loses packets").map(drop)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Interfaces go with their namespaces.
        for host in 0..self.hosts {
            let _ = ip(&["netns", "delete", &self.namespace(host)]);
        }
        let _ = ip(&["link", "delete", &self.name]);
    }
}

fn done(arguments: &[&str]) {
    ip(arguments).unwrap_or_else(|problem| panic!("ip {}: {problem}", arguments.join(" ")));
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    output(Command::new("ip").args(arguments))
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
