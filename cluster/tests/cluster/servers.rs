//! NATS servers as processes.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};

use celeris_skip::Need;
use rustix::process::{Pid, Signal, kill_process};

/// Servers that replicate among each other, with stores that outlive their processes.
pub struct Servers {
    dir: tempfile::TempDir,
    program: PathBuf,
    processes: Vec<Option<Child>>,
    ports: Vec<u16>,
    monitor_ports: Vec<u16>,
}

/// Whether servers sync each write.
#[derive(Clone, Copy, PartialEq)]
pub enum Sync {
    Always,
    Seldom,
}

fn program() -> Option<PathBuf> {
    let given = env::var_os("CELERIS_NATS_SERVER").map(PathBuf::from);
    let in_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let installed = env::home_dir().map(|home| home.join(".cache/celeris/peers/nats/bin"));
    let candidates = in_path.chain(installed).map(|folder| folder.join("nats-server"));
    given.into_iter().chain(candidates).find(|program| program.is_file())
}

/// Below the ports that systems give to connections, which could take one before its server starts;
/// each is given once.
fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(97) % 10_000;
    let candidates = std::iter::repeat_with(|| (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000 + 20_000);
    let ports = candidates.filter_map(|port| u16::try_from(port).ok());
    ports.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).take(count).collect()
}

impl Servers {
    /// Starts servers; `None` if the test is to be skipped.
    #[track_caller]
    pub fn start(count: usize, sync: Sync) -> Option<Self> {
        let program = celeris_skip::unless(Need::Nats, program(), "there is no nats-server")?;
        let dir = tempfile::tempdir().unwrap();
        let [ports, monitor_ports, routes] = [(); 3].map(|()| free_ports(count));
        for at in 0..count {
            let mut config = format!(
                "server_name: n{at}\nlisten: 127.0.0.1:{}\nhttp: 127.0.0.1:{}\n\
                 jetstream {{ store_dir: {:?}, max_file_store: 4GB{} }}\n",
                ports[at],
                monitor_ports[at],
                dir.path().join(at.to_string()),
                if sync == Sync::Always { ", sync_interval: always" } else { "" },
            );
            if count > 1 {
                let routes_of_all: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
                let routes_of_all = routes_of_all.join(", ");
                let listen = routes[at];
                writeln!(config, "cluster {{ name: c, listen: 127.0.0.1:{listen}, routes: [ {routes_of_all} ] }}")
                    .unwrap();
            }
            fs::write(dir.path().join(format!("{at}.conf")), config).unwrap();
        }
        let processes = (0..count).map(|_| None).collect();
        let mut servers = Self { dir, program, processes, ports, monitor_ports };
        (0..count).for_each(|at| servers.start_again(at));
        Some(servers)
    }

    pub fn start_again(&mut self, at: usize) {
        let config = self.dir.path().join(format!("{at}.conf"));
        let log = self.dir.path().join(format!("{at}.log"));
        let process = Command::new(&self.program)
            .args([Path::new("-c"), &config, Path::new("-l"), &log])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.processes[at] = Some(process);
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[at])).is_err() {
            assert!(Instant::now() < deadline, "{}", fs::read_to_string(&log).unwrap_or_default());
            std::thread::yield_now();
        }
    }

    pub fn kill(&mut self, at: usize) {
        let mut process = self.processes[at].take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn pause(&self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    pub fn resume(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    fn signal(&self, at: usize, signal: Signal) {
        let pid = Pid::from_child(self.processes[at].as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }

    pub fn count(&self) -> usize {
        self.ports.len()
    }

    pub fn port(&self, at: usize) -> u16 {
        self.ports[at]
    }

    pub fn urls(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect()
    }

    pub fn monitor_urls(&self) -> Vec<String> {
        self.monitor_ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect()
    }

    /// The server that leads a stream; waits until one does.
    pub async fn leader(&self, stream: &str) -> usize {
        let client = async_nats::connect(self.urls()).await.unwrap();
        let jetstream = async_nats::jetstream::new(client);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            assert!(Instant::now() < deadline, "no leader");
            let Ok(stream) = jetstream.get_stream_no_info(stream).await else { continue };
            let Ok(info) = stream.get_info().await else { continue };
            let leader = info.cluster.and_then(|cluster| cluster.leader);
            if let Some(at) = leader.and_then(|leader| leader.strip_prefix('n')?.parse().ok()) {
                return at;
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
