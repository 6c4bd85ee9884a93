//! Configuration: a TOML file, then the environment, then flags; the later wins, and unknown keys are refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs};

use bytesize::ByteSize;
use celeris_manager::{TrainerLimits, Trainers, TrainingOptions};
use celeris_storage::StorageOptions;
use serde::Deserialize;
use toml::{Table, Value};

use crate::middleware::origins::without_port;

/// What the names of environment variables begin with, and what stands in them between a section and its key.
const ENV_PREFIX: &str = "CELERIS_";
const ENV_SEPARATOR: &str = "__";

/// Everything that can be configured of a node.
///
/// In the environment a key is written `CELERIS_SECTION__KEY`, as in `CELERIS_MEMORY__USERS=2GiB`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the node listens.
    pub server: Server,
    /// What requests may ask for.
    pub limits: Limits,
    /// What the node may hold in memory.
    pub memory: Memory,
    /// The copy of the log as Parquet.
    pub sealing: Sealing,
    /// How what is stored is verified in the background.
    pub verification: Verification,
    /// What is recorded of rankings.
    pub decisions: Decisions,
    /// What models may be trained by, besides the built-in trainer.
    pub training: Training,
}

/// Where and how the node listens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port; port 0 picks a free one.
    pub listen: String,
    /// Names by which clients address the node, without ports, besides the loopback names and the address it listens on.
    /// Requests for other hosts are refused.
    pub hosts: Vec<String>,
    /// Sites whose pages may use the node from a browser, as in `https://app.example`.
    pub origins: Vec<String>,
    /// Connections at once, at most half of the files that the process may open. Above that, only health checks are
    /// answered.
    pub connections: usize,
    /// How long a connection may go without sending a whole head of a request, and without taking any of a response.
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    /// How long requests under way may take to end once the node is asked to stop.
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7117".to_owned(),
            hosts: Vec::new(),
            origins: Vec::new(),
            connections: 4096,
            idle_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Server {
    fn check(&self) -> Result<(), String> {
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
        Ok(())
    }
}

/// Whether it is a name, an IPv4 address, or an IPv6 address in brackets, without a port.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    !name.is_empty() && !name.contains(['/', ' ', '*', '[', ']']) && (name != host || !name.contains(':'))
}

/// Whether a browser sends it in this form.
fn is_origin(origin: &str) -> bool {
    let own_ports = [("https://", ":443"), ("http://", ":80")];
    own_ports.iter().any(|(scheme, own_port)| {
        origin.strip_prefix(scheme).is_some_and(|site| {
            let Some(host) = without_port(site.as_bytes()) else { return false };
            let (host, port) = site.split_at(host.len());
            is_host(host)
                && (port.is_empty() || port[1..].parse::<u16>().is_ok())
                && port != *own_port
                && !site.contains(char::is_uppercase)
        })
    })
}

/// The bounds of requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a JSON body.
    pub body: ByteSize,
    /// Bytes that may have arrived of bodies that are not whole yet, all together; more are answered 503.
    pub arriving: ByteSize,
    /// Bytes of one line of NDJSON.
    pub line: ByteSize,
    /// Items of one predict or topk request.
    pub items_per_request: usize,
    /// Requests under way at once; more are answered 503.
    pub requests: usize,
    /// NDJSON streams open at once; more are answered 503. They do not count as requests.
    pub streams: usize,
    /// How long a stream may be silent before it is ended; empty lines keep it open.
    #[serde(with = "humantime_serde")]
    pub stream_idle_timeout: Duration,
    /// How far ahead of the node's clock the time of an observation may be.
    #[serde(with = "humantime_serde")]
    pub clock_skew: Duration,
    /// How long a request may take.
    #[serde(with = "humantime_serde")]
    pub request_timeout: Duration,
    /// Observations of one NDJSON stream that may be under way at once.
    pub observations_in_flight: usize,
    /// Models on this node.
    pub models: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: ByteSize::mib(4),
            arriving: ByteSize::mib(256),
            line: ByteSize::kib(64),
            items_per_request: 10_000,
            requests: 1024,
            streams: 64,
            stream_idle_timeout: Duration::from_secs(60),
            clock_skew: Duration::from_secs(300),
            request_timeout: Duration::from_secs(30),
            observations_in_flight: 8192,
            models: 100,
        }
    }
}

/// Budgets of what is held in memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// User states and histories.
    pub users: ByteSize,
    /// Features of items that came after training.
    pub features: ByteSize,
    /// Cached predictions.
    pub predictions: ByteSize,
    /// The most items of a request whose predictions are cached and looked up; with 0 all requests are computed. `celeris
    /// bench topk` measures it: at dimension 50 a repeated request of 4 items takes 0.45 of the time, a new one 1.35.
    pub prediction_items: usize,
    /// What selections have learnt of single users.
    pub selections: ByteSize,
    /// What users have seen, for recommendations that do not repeat it.
    pub seen: ByteSize,
    /// Blocks of the store that were read.
    pub blocks: ByteSize,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            users: ByteSize::gib(1),
            features: ByteSize::mib(128),
            predictions: ByteSize::mib(128),
            prediction_items: 4,
            selections: ByteSize::mib(64),
            seen: ByteSize::mib(64),
            blocks: ByteSize::mib(128),
        }
    }
}

/// Which rankings leave a decision, how much of it is recorded, and for how long it is kept.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Decisions {
    /// Whether any are recorded.
    pub enabled: bool,
    /// Up to so many candidates are recorded with every decision.
    pub candidates_in_full: usize,
    /// The share of decisions over more candidates that are recorded with all of them; the others with a digest.
    pub candidates_sampled: f64,
    /// Bytes of decisions a second, with bursts of one second's worth; more are dropped and counted.
    pub bytes_per_second: ByteSize,
    /// Decisions that may wait for the writer; more are dropped and counted.
    pub queue: usize,
    /// How long they are kept, and rewards join them.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            enabled: true,
            candidates_in_full: 256,
            candidates_sampled: 0.01,
            bytes_per_second: ByteSize::mib(16),
            queue: 8192,
            retention: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Decisions {
    fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.candidates_sampled) {
            let received = self.candidates_sampled;
            return Err(format!("decisions.candidates_sampled: must be from 0 to 1, got {received}"));
        }
        if self.queue == 0 {
            return Err("decisions.queue: must be at least 1; decisions.enabled = false turns them off".to_owned());
        }
        Ok(())
    }
}

/// When the log is copied to sealed segments.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sealing {
    /// Whether it is at all.
    pub enabled: bool,
    /// How long records wait for it at most; what is amended is gone from the files within two of these.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// So many waiting records are sealed at once.
    pub records: u64,
}

impl Default for Sealing {
    fn default() -> Self {
        Self { enabled: true, interval: Duration::from_secs(60), records: 100_000 }
    }
}

/// When and how fast the store is read to find damage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verification {
    /// How long after the start it begins.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// From the end of one pass over the whole store to the beginning of the next.
    #[serde(with = "humantime_serde")]
    pub interval: Duration,
    /// Bytes read a second.
    pub bytes_per_second: ByteSize,
}

impl Default for Verification {
    fn default() -> Self {
        let options = StorageOptions::default();
        Self {
            delay: options.verification_delay,
            interval: options.verification_interval,
            bytes_per_second: ByteSize(options.verification_bytes_per_second),
        }
    }
}

/// What whoever runs the node allows those who may call it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// Trainers besides the built-in `als`, by the name that models and requests use: each a whole command line, the
    /// program and all of its arguments, in which `{job}` stands for the job file, `{folder}` for its folder and
    /// `{spark_als}` for the script that trains on Spark. They run with the rights of the node.
    pub trainers: BTreeMap<String, Vec<String>>,
    /// What any training may take.
    pub limits: TrainingLimits,
    /// The folder that version directories are registered from; without one, none are.
    pub import_dir: Option<PathBuf>,
}

/// What one training may take, all of its processes together. A model's `trainer.limits` may be lower.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingLimits {
    /// Memory; half of the machine's where it is missing.
    pub memory: Option<ByteSize>,
    /// From its start.
    #[serde(with = "humantime_serde")]
    pub time: Duration,
    /// Without a line of output or a change in its output folder, after which it is taken for dead.
    #[serde(with = "humantime_serde")]
    pub heartbeat: Duration,
    /// Processes and threads.
    pub processes: u64,
    /// What it may write into the folder of its job; half of what is free where it is missing.
    pub disk: Option<ByteSize>,
}

impl Default for TrainingLimits {
    fn default() -> Self {
        let TrainerLimits { memory, time, heartbeat, processes, disk } = TrainerLimits::default();
        Self { memory: memory.map(ByteSize::b), time, heartbeat, processes, disk: disk.map(ByteSize::b) }
    }
}

impl Training {
    /// The same for the manager.
    ///
    /// # Errors
    /// A message that names the key.
    pub fn options(&self) -> Result<TrainingOptions, String> {
        let TrainingLimits { memory, time, heartbeat, processes, disk } = self.limits.clone();
        let [memory, disk] = [memory, disk].map(|size| size.map(|size| size.as_u64()));
        let limits = TrainerLimits { memory, time, heartbeat, processes, disk };
        limits.check().map_err(|problem| format!("training.limits.{problem}"))?;
        let trainers = Trainers::new(&self.trainers).map_err(|problem| format!("training.trainers.{problem}"))?;
        Ok(TrainingOptions { trainers, limits })
    }
}

/// Reads the configuration. `listen` is the flag of that name.
///
/// # Errors
/// A message that names the key and where it was given.
pub fn load(file: Option<&Path>, listen: Option<&str>) -> Result<Config, String> {
    let mut keys = file.map(of_file).transpose()?.unwrap_or_default();
    let variables =
        env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for (name, value) in variables {
        // Only names with a section are configuration; other programs' variables may share the prefix.
        if let Some(key) = name.strip_prefix(ENV_PREFIX).filter(|key| key.contains(ENV_SEPARATOR)) {
            let variable = of_variable(key, &value);
            check(&variable).map_err(|error| format!("environment variable {name}: {error}"))?;
            lay_over(&mut keys, variable);
        }
    }
    let mut config = check(&keys)?;
    if let Some(listen) = listen {
        listen.clone_into(&mut config.server.listen);
    }
    config.server.check()?;
    config.decisions.check()?;
    config.training.options()?;
    Ok(config)
}

fn check(keys: &Table) -> Result<Config, String> {
    Config::deserialize(keys.clone()).map_err(|error| error.to_string())
}

/// The keys of a TOML file. Read as a configuration first, for errors that show the line.
fn of_file(file: &Path) -> Result<Table, String> {
    let in_file = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| in_file(&error))?;
    toml::from_str::<Config>(&text).map_err(|error| in_file(&error))?;
    text.parse().map_err(|error: toml::de::Error| in_file(&error))
}

/// The key of one variable, named without the prefix. A value that is not TOML is a string.
fn of_variable(name: &str, value: &str) -> Table {
    let parsed = format!("value = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
    let value = parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(value.to_owned()));
    let name = name.to_lowercase();
    let (outer, key) = name.rsplit_once(ENV_SEPARATOR).unwrap_or(("", &name));
    let innermost = Table::from_iter([(key.to_owned(), value)]);
    outer.rsplit(ENV_SEPARATOR).fold(innermost, |inner, key| Table::from_iter([(key.to_owned(), Value::Table(inner))]))
}

/// Sets the keys of `upper` in `lower`, table by table.
fn lay_over(lower: &mut Table, upper: Table) {
    for (key, value) in upper {
        match (lower.get_mut(&key), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => lay_over(lower, upper),
            (_, value) => drop(lower.insert(key, value)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_laid_over_the_keys_of_the_file() {
        let mut keys: Table = "[limits]\nmodels = 7\nbody = '1 MiB'\n[training.limits]\nprocesses = 9".parse().unwrap();
        for (name, value) in [
            ("LIMITS__BODY", "2MiB"),
            ("LIMITS__REQUESTS", "12"),
            ("SERVER__LISTEN", "[::1]:7117"),
            ("SERVER__HOSTS", r#"["a.example", "b.example"]"#),
            ("SEALING__ENABLED", "false"),
            ("TRAINING__LIMITS__TIME", "1h"),
        ] {
            lay_over(&mut keys, of_variable(name, value));
        }
        let config = check(&keys).unwrap();
        assert_eq!((config.limits.body, config.limits.models, config.limits.requests), (ByteSize::mib(2), 7, 12));
        assert_eq!(config.server.listen, "[::1]:7117");
        assert_eq!(config.server.hosts, ["a.example", "b.example"]);
        assert!(!config.sealing.enabled);
        assert_eq!((config.training.limits.processes, config.training.limits.time), (9, Duration::from_secs(3600)));
    }

    #[test]
    fn hosts_and_origins_that_no_request_can_bring_are_refused() {
        for host in ["celeris.example", "10.0.0.7", "[::1]", "LOCALHOST"] {
            assert!(is_host(host), "{host}");
        }
        for host in ["", "celeris.example:443", "[::1]:80", "::1", "http://celeris.example", "*.example", "[]"] {
            assert!(!is_host(host), "{host}");
        }
        for origin in ["https://app.example", "http://localhost:3000", "https://[::1]:8443", "http://[::1]"] {
            assert!(is_origin(origin), "{origin}");
        }
        let never = [
            "app.example",
            "https://App.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example/",
            "https://app.example:port",
            "ftp://app.example",
            "https://",
            "null",
        ];
        for origin in never {
            assert!(!is_origin(origin), "{origin}");
        }
    }
}
