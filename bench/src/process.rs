//! A node and a bare handler as separate processes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use celeris_bandits::PolicySpec;
use celeris_features::{PartsFiles, Theta, TrainerPart};
use celeris_manager::{Manager, ManagerOptions, ModelConfig};
use celeris_model::{ItemId, ModelName};
use celeris_predictor::{Predictor, PredictorOptions};
use celeris_storage::{Storage, StorageOptions};
use hyper::header::HeaderValue;
use rustix::process::{Pid, Signal, kill_process};
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

use celeris_cli::Failure;
use celeris_cli::estimate::warm::metric;
use celeris_cli::estimate::{machine, scene};

/// The model of benched nodes.
pub const MODEL: &str = "bench";

/// Writes a data directory with one model whose active version has `catalog` items; returns their
/// ids.
///
/// # Errors
/// If the directory cannot be written.
pub fn prepare(dir: &Path, catalog: usize, dim: usize) -> Result<Vec<ItemId>, Failure> {
    prepare_versions(dir, catalog, dim, 1)
}

/// Like [`prepare`], with several versions of the same items, numbered from 2; the last one is
/// active.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_versions(dir: &Path, catalog: usize, dim: usize, versions: usize) -> Result<Vec<ItemId>, Failure> {
    let theta = scene::theta(catalog, dim).map_err(Failure::other)?;
    write_versions(dir, dim, versions, |finished, name| scene::write_version(finished, name, &theta))?;
    Ok(theta.items().to_vec())
}

/// Like [`prepare`], with this table.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_table(dir: &Path, theta: &Theta) -> Result<(), Failure> {
    write_versions(dir, theta.dim(), 1, |finished, name| scene::write_version(finished, name, theta))
}

/// Like [`prepare_table`], with computed parts of the features.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_parts(dir: &Path, theta: &Theta, parts: &PartsFiles) -> Result<(), Failure> {
    write_versions(dir, theta.dim(), 1, |finished, name| {
        let texts = parts.texts.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        let part = TrainerPart { warm: None, tables: parts.tables.clone(), texts };
        scene::write_version_with(finished, name, theta, part)
    })
}

/// Makes a model of features of length `dim` and registers as many versions, which `write` writes into a folder.
fn write_versions(
    dir: &Path,
    dim: usize,
    versions: usize,
    write: impl Fn(&Path, ModelName) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let storage = Storage::open(dir, &StorageOptions::default())?;
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    let options = ManagerOptions {
        models_max: 1,
        trainer: celeris_binary()?,
        training: Default::default(),
        import_dir: Some(dir.to_owned()),
    };
    let manager = Manager::open(storage.clone(), Arc::new(predictor), options)?;
    let name = ModelName::new(MODEL).map_err(Failure::other)?;
    let policy = PolicySpec::named("greedy").map_err(Failure::other)?;
    manager.create(ModelConfig { policy, ..ModelConfig::new(name.clone(), dim) })?;
    let finished = dir.join("invented");
    for _ in 0..versions {
        write(&finished, name.clone())?;
        let registered = manager.versions().register(&name, Path::new("invented"))?;
        manager.promotion().activate(&name, registered.version)?;
        std::fs::remove_dir_all(&finished).map_err(Failure::other)?;
    }
    Ok(storage.close()?)
}

/// A server process. Dropping it kills the process.
pub struct Server {
    child: Child,
    address: SocketAddr,
    /// How its connections are encrypted, if they are.
    tls: Option<TlsConnector>,
    /// The key that its requests have.
    authorization: Option<HeaderValue>,
}

impl Server {
    /// Starts a node on `data_dir` and waits until it is ready.
    ///
    /// # Errors
    /// If it ends before it is ready.
    pub fn node(data_dir: &Path) -> Result<Self, Failure> {
        Self::node_with(data_dir, &[])
    }

    /// Like [`Server::node`], configured by these environment variables.
    ///
    /// # Errors
    /// As [`Server::node`].
    pub fn node_with(data_dir: &Path, configuration: &[(&str, &str)]) -> Result<Self, Failure> {
        let mut command = command(celeris_binary()?);
        command.envs(configuration.iter().copied());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir);
        Self::start(command)
    }

    /// Connections to it are encrypted by these settings from now on, and requests have this key.
    ///
    /// # Errors
    /// If the key is no text of a header.
    pub fn secured(mut self, tls: Arc<ClientConfig>, key: &str) -> Result<Self, Failure> {
        self.tls = Some(TlsConnector::from(tls));
        self.authorization = Some(HeaderValue::try_from(format!("Bearer {key}")).map_err(Failure::other)?);
        Ok(self)
    }

    /// Starts the bare handler and waits until it is ready.
    ///
    /// # Errors
    /// If it ends before it is ready.
    pub fn bare() -> Result<Self, Failure> {
        let mut command = command(std::env::current_exe().map_err(Failure::other)?);
        command.arg("bare-handler");
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, Failure> {
        command.env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::other)?;
        let stdout = child.stdout.take().expect("standard output is piped");
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, address, tls: None, authorization: None };
        let ready = BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| {
            let (_scheme, address) = line.strip_prefix("ready ")?.split_once("://")?;
            Some(address.trim().parse::<SocketAddr>())
        });
        let Some(Ok(address)) = ready else { return Err(Failure::other("a benched server ended before it was ready")) };
        server.address = address;
        Ok(server)
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How its connections are encrypted, if they are.
    pub fn tls(&self) -> Option<&TlsConnector> {
        self.tls.as_ref()
    }

    /// The header of its requests.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Seconds that its threads have computed; NaN if the system does not tell.
    pub fn cpu_seconds(&self) -> f64 {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else { return f64::NAN };
        let threads = threads.filter_map(Result::ok).map(|thread| thread.path().join("schedstat"));
        threads.map(cpu_seconds).filter(|seconds| !seconds.is_nan()).sum()
    }

    /// Resident memory, in bytes.
    pub fn resident_bytes(&self) -> Option<u64> {
        machine::kibibytes(&format!("/proc/{}/status", self.child.id()), "VmRSS")
    }

    /// The value of a metric; `None` if there is none of this name.
    ///
    /// # Errors
    /// If it does not respond.
    pub fn metric(&self, name: &str) -> Result<Option<f64>, Failure> {
        let url = format!("http://{}/metrics", self.address);
        let text = ureq::get(&url).call().and_then(|mut reply| reply.body_mut().read_to_string());
        Ok(metric(&text.map_err(Failure::other)?, name))
    }

    /// Stops the server with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// If it does not exit successfully.
    pub fn stop(mut self) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a child has a number"), Signal::TERM).map_err(Failure::other)?;
        let status = self.child.wait().map_err(Failure::other)?;
        if status.success() { Ok(()) } else { Err(Failure::other(format!("a benched server ended with {status}"))) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Seconds that a thread has computed, by its file in `/proc`; NaN if there is none.
pub fn cpu_seconds(schedstat: impl AsRef<Path>) -> f64 {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    text.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

/// The path of the binary `celeris`, which is built into the same folder as this one.
///
/// # Errors
/// If it does not exist.
pub fn celeris_binary() -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe().map_err(Failure::other)?.with_file_name("celeris");
    if binary.exists() {
        return Ok(binary);
    }
    Err(Failure::bad_input(format!(
        "there is no {}; build it with: cargo build --release --workspace",
        binary.display()
    )))
}

/// A command without the `CELERIS_` variables of the caller's environment.
pub fn command(binary: PathBuf) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CELERIS_") {
            command.env_remove(name);
        }
    }
    command
}
