//! NATS servers, as processes, for tests of clusters.

mod publisher;
mod streams;

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use celeris_skip::{Need, unless};
use tempfile::TempDir;

pub use publisher::Publisher;
pub use streams::StreamCopy;

use crate::network::Host;
use crate::small_disk::SmallDisk;
use crate::wait::eventually;

/// Where `scripts/test` installs programs of others.
pub(crate) fn peers() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CELERIS_PEERS") {
        return Some(named.into());
    }
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    Some(cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?.join("celeris/peers"))
}

/// The server's program: the one that `CELERIS_NATS_SERVER` names, the one that `scripts/test` installs, or
/// the one on the path.
pub(crate) fn program() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CELERIS_NATS_SERVER") {
        return Some(named.into());
    }
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let candidates = [peers()?.join("nats/bin")].into_iter().chain(folders);
    candidates.map(|folder| folder.join("nats-server")).find(|program| program.is_file())
}

/// The program; `None`, and the test is skipped, if there is none.
fn installed() -> Option<PathBuf> {
    unless(Need::Nats, program(), "no nats-server; scripts/test installs it")
}

/// A cluster of NATS servers on this machine that sync every write. Dropping it kills them.
pub struct Nats {
    program: PathBuf,
    servers: Vec<Server>,
    folder: TempDir,
    /// Further lines of each server's configuration.
    settings: String,
}

struct Server {
    host: Host,
    /// Where the store is, if it is small.
    disk: Option<SmallDisk>,
    port: u16,
    route: u16,
    monitor: u16,
    process: Option<Child>,
}

/// Ports that are free now. All are bound at the same time, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let bound: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port is free")).collect();
    bound.iter().map(|listener| listener.local_addr().expect("the socket is bound").port()).collect()
}

impl Nats {
    /// Starts this number of servers and waits until they have a leader; `None`, and the test is skipped,
    /// if there is no program.
    ///
    /// # Panics
    /// If they do not start.
    #[must_use]
    pub fn start(servers: usize) -> Option<Self> {
        Self::start_on(&vec![Host::loopback(); servers])
    }

    /// Like [`Nats::start`], with further lines for the configuration of each server.
    ///
    /// # Panics
    /// If they do not start.
    #[must_use]
    pub fn configured(servers: usize, settings: &str) -> Option<Self> {
        Self::start_with(&vec![Host::loopback(); servers], settings)
    }

    /// Like [`Nats::start`], with a server on each of these hosts.
    ///
    /// # Panics
    /// If they do not start.
    #[must_use]
    pub fn start_on(hosts: &[Host]) -> Option<Self> {
        Self::start_with(hosts, "")
    }

    fn start_with(hosts: &[Host], settings: &str) -> Option<Self> {
        let program = installed()?;
        let ports = free_ports(3 * hosts.len());
        let server = |(ports, host): (&[u16], &Host)| {
            let (host, [port, route, monitor]) = (host.clone(), [ports[0], ports[1], ports[2]]);
            Server { host, disk: None, port, route, monitor, process: None }
        };
        let servers: Vec<Server> = ports.chunks(3).zip(hosts).map(server).collect();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut nats = Self { program, servers, folder, settings: settings.to_owned() };
        (0..nats.servers.len()).for_each(|server| nats.configure(server));
        (0..nats.servers.len()).for_each(|server| nats.start_server(server));
        nats.await_ready();
        Some(nats)
    }

    /// Whether there is a program; if there is none, the test is skipped.
    #[must_use]
    pub fn is_installed() -> bool {
        installed().is_some()
    }

    fn file(&self, server: usize, extension: &str) -> PathBuf {
        self.folder.path().join(format!("{server}.{extension}"))
    }

    /// The folder with the files of a server's streams.
    #[must_use]
    pub fn store(&self, server: usize) -> PathBuf {
        self.file(server, "store")
    }

    fn configure(&self, server: usize) {
        let Server { host, port, route, monitor, .. } = &self.servers[server];
        let host = host.address();
        // The space that streams reserve is stated, so that a store may move to a small disk.
        let mut text = format!(
            "server_name: n{server}\nlisten: \"{host}:{port}\"\nhttp: \"{host}:{monitor}\"\n\
             jetstream {{ store_dir: \"{}\", sync_interval: always, max_file_store: 32GB }}\n",
            self.store(server).display()
        );
        let _ = writeln!(text, "{}", self.settings);
        if self.servers.len() > 1 {
            let route_to = |server: &Server| format!("\"nats://{}:{}\"", server.host.address(), server.route);
            let routes: Vec<String> = self.servers.iter().map(route_to).collect();
            let _ =
                writeln!(text, "cluster {{ name: test, listen: \"{host}:{route}\", routes: [{}] }}", routes.join(", "));
        }
        fs::write(self.file(server, "conf"), text).expect("the folder is ours");
    }

    /// Starts a server that does not run.
    ///
    /// # Panics
    /// If the program cannot be run.
    pub fn start_server(&mut self, server: usize) {
        let words: Vec<OsString> = self.servers[server].host.prefix().into_iter().map(Into::into).collect();
        let words: Vec<OsString> = words.into_iter().chain([self.program.clone().into()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-c").arg(self.file(server, "conf")).arg("-l").arg(self.file(server, "log"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.servers[server].process = Some(process.expect("the program can be run"));
    }

    /// Waits until all servers are healthy: then JetStream has a leader.
    ///
    /// # Panics
    /// If they are not by the deadline.
    #[track_caller]
    pub fn await_ready(&self) {
        for server in 0..self.len() {
            eventually("the NATS servers are healthy", || self.is_ready(server).then_some(()));
        }
    }

    /// Whether a server says that it is healthy.
    #[must_use]
    pub fn is_ready(&self, server: usize) -> bool {
        ureq::get(format!("{}/healthz", self.servers[server].monitor_url())).call().is_ok()
    }

    /// Sends SIGKILL to a server.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self, server: usize) {
        let mut process = self.servers[server].process.take().expect("the server runs");
        process.kill().expect("a running child can be killed");
        process.wait().expect("a child can be waited for");
    }

    /// Sends SIGTERM to a server, and waits for its exit.
    ///
    /// # Panics
    /// If it does not run, or does not exit by the deadline.
    #[track_caller]
    pub fn terminate(&mut self, server: usize) {
        self.signal(server, "TERM");
        let mut process = self.servers[server].process.take().expect("the server runs");
        let ended = || process.try_wait().expect("a child can be waited for");
        eventually("the server ends", ended);
    }

    /// Sends a signal, such as `STOP`, `CONT` or `TERM`, to a server.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, server: usize, signal: &str) {
        let process = self.servers[server].process.as_ref().expect("the server runs");
        send_signal(process.id(), signal);
    }

    /// Whether a server runs.
    #[must_use]
    pub fn runs(&self, server: usize) -> bool {
        self.servers[server].process.is_some()
    }

    /// The number of servers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there is no server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The addresses for clients.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("nats://{}:{}", server.host.address(), server.port)).collect()
    }

    /// The addresses for monitoring.
    #[must_use]
    pub fn monitor_urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::monitor_url).collect()
    }

    /// The folder of all files of the servers.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Moves the store of a server that does not run to a disk of this size. `None`, and the test is skipped,
    /// where this process may not mount.
    ///
    /// # Panics
    /// If the store does not fit.
    #[must_use]
    pub fn shrink_disk(&mut self, server: usize, mebibytes: u32) -> Option<()> {
        assert!(!self.runs(server), "the server has its store open");
        self.servers[server].disk = Some(SmallDisk::in_place_of(&self.store(server), mebibytes)?);
        Some(())
    }

    /// The small disk of a server.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn disk(&self, server: usize) -> &SmallDisk {
        self.servers[server].disk.as_ref().expect("the server has a small disk")
    }
}

impl Server {
    fn monitor_url(&self) -> String {
        format!("http://{}:{}", self.host.address(), self.monitor)
    }
}

/// Sends a signal to a process.
///
/// # Panics
/// If there is no such process.
pub fn send_signal(process: u32, signal: &str) {
    // The standard library can only send SIGKILL.
    let status = Command::new("sh").args(["-c", r#"kill -"$1" "$0""#, &process.to_string(), signal]).status();
    assert!(status.expect("every system has a shell").success(), "process {process} does not run");
}

impl Drop for Nats {
    fn drop(&mut self) {
        for server in &mut self.servers {
            if let Some(mut process) = server.process.take() {
                // It may have ended.
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        if std::thread::panicking() {
            for server in 0..self.servers.len() {
                let log = fs::read_to_string(self.file(server, "log")).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(15).collect();
                eprintln!("--- the end of the log of NATS server {server}, backwards:\n{}\n---", last.join("\n"));
            }
        }
    }
}
