//! Three NATS servers as processes, which sync every write.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use celeris_cli::Failure;

/// Servers of a cluster, and copies of each stream.
pub const SERVERS: usize = 3;

/// How long the servers may take until JetStream has a leader.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between two polls of a condition.
pub const POLL: Duration = Duration::from_millis(20);

/// The server's program: the one that `CELERIS_NATS_SERVER` names, the one that `scripts/test`
/// installs, or the one on the path.
pub fn program() -> Option<PathBuf> {
    if let Some(named) = env::var_os("CELERIS_NATS_SERVER") {
        return Some(named.into());
    }
    let usual = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache/celeris/peers"));
    let peers = env::var_os("CELERIS_PEERS").map(PathBuf::from).or_else(usual);
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let candidates = peers.map(|peers| peers.join("nats/bin")).into_iter().chain(folders);
    candidates.map(|folder| folder.join("nats-server")).find(|program| program.is_file())
}

struct Server {
    port: u16,
    route: u16,
    monitor: u16,
    process: Option<Child>,
}

/// The servers. Dropping this kills them.
pub struct Nats {
    program: PathBuf,
    folder: PathBuf,
    servers: Vec<Server>,
}

impl Nats {
    /// Starts the servers with their files in `folder`, and waits until they are ready.
    ///
    /// # Errors
    /// If they do not start.
    pub fn start(program: PathBuf, folder: &Path) -> Result<Self, Failure> {
        let ports = free_ports(3 * SERVERS).map_err(Failure::other)?;
        let server = |ports: &[u16]| Server { port: ports[0], route: ports[1], monitor: ports[2], process: None };
        let servers = ports.chunks(3).map(server).collect();
        fs::create_dir_all(folder).map_err(Failure::other)?;
        let mut nats = Self { program, folder: folder.to_owned(), servers };
        for server in 0..SERVERS {
            fs::write(nats.file(server, "conf"), nats.configuration(server)).map_err(Failure::other)?;
            nats.start_server(server)?;
        }
        nats.await_ready()?;
        Ok(nats)
    }

    fn file(&self, server: usize, extension: &str) -> PathBuf {
        self.folder.join(format!("{server}.{extension}"))
    }

    fn configuration(&self, server: usize) -> String {
        let Server { port, route, monitor, .. } = &self.servers[server];
        let store = self.file(server, "store");
        let mut text = format!(
            "server_name: {}\nlisten: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
             jetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            name(server),
            store.display()
        );
        let routes: Vec<String> =
            self.servers.iter().map(|server| format!("\"nats://127.0.0.1:{}\"", server.route)).collect();
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "cluster {{ name: bench, listen: \"127.0.0.1:{route}\", routes: [{}] }}", routes.join(", "));
        text
    }

    /// Starts a server that does not run.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn start_server(&mut self, server: usize) -> Result<(), Failure> {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.file(server, "conf")).arg("-l").arg(self.file(server, "log"));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.servers[server].process = Some(process.map_err(Failure::other)?);
        Ok(())
    }

    /// Waits until all servers are healthy: then JetStream has a leader.
    ///
    /// # Errors
    /// If they do not become healthy.
    pub fn await_ready(&self) -> Result<(), Failure> {
        for server in &self.servers {
            let url = format!("http://127.0.0.1:{}/healthz", server.monitor);
            poll("a healthy NATS server", READY_TIMEOUT, || ureq::get(&url).call().ok().map(drop))?;
        }
        Ok(())
    }

    /// Sends SIGKILL to a server.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&mut self, server: usize) -> Result<(), Failure> {
        self.end(server, Signal::KILL)
    }

    /// Stops a server cleanly, by SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// If it does not run.
    pub fn stop(&mut self, server: usize) -> Result<(), Failure> {
        self.end(server, Signal::TERM)
    }

    fn end(&mut self, server: usize, signal: Signal) -> Result<(), Failure> {
        let process = self.servers[server].process.take();
        let mut process = process.ok_or_else(|| Failure::other("the NATS server does not run"))?;
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a child has a number"), signal).map_err(Failure::other)?;
        process.wait().map(drop).map_err(Failure::other)
    }

    /// The addresses for clients.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("nats://127.0.0.1:{}", server.port)).collect()
    }

    /// The addresses for monitoring.
    pub fn monitor_urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("http://127.0.0.1:{}", server.monitor)).collect()
    }
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
    }
}

/// The name of a server, as streams report their leaders.
pub fn name(server: usize) -> String {
    format!("n{server}")
}

/// Ports that are free now. All are bound at the same time, so that they differ.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let bound: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    bound.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Polls `look` until it returns a value.
///
/// # Errors
/// If there is none in time.
pub fn poll<T>(what: &str, timeout: Duration, mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if Instant::now() > deadline {
            return Err(Failure::other(format!("{what}: not within {} seconds", timeout.as_secs())));
        }
        std::thread::sleep(POLL);
    }
}
