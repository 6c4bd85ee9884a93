//! Configuration from a TOML file, environment variables and flags. Later sources override earlier
//! ones; unknown keys are rejected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs};

use bytesize::ByteSize;
use celeris_manager::{TrainerLimits, Trainers, TrainingOptions};
use celeris_model::ids::PARTITIONS;
use celeris_model::{NodeName, Shards, Timestamp};
use celeris_storage::StorageOptions;
use serde::{Deserialize, Serialize, Serializer};
use toml::{Table, Value};
use utoipa::ToSchema;

use crate::hosts::without_port;

/// Prefix of the environment variables, and the separator between section and key in their names.
const ENV_PREFIX: &str = "CELERIS_";
const ENV_SEPARATOR: &str = "__";

/// The configuration of a node.
///
/// In the environment a key is written `CELERIS_SECTION__KEY`, as in `CELERIS_MEMORY__USERS=2GiB`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    #[schema(inline)]
    pub server: Server,
    /// Limits of requests.
    #[schema(inline)]
    pub limits: Limits,
    /// Memory budgets.
    #[schema(inline)]
    pub memory: Memory,
    /// Copying of the log to Parquet segments.
    #[schema(inline)]
    pub sealing: Sealing,
    /// Background verification of the store.
    #[schema(inline)]
    pub verification: Verification,
    /// Recording of decisions.
    #[schema(inline)]
    pub decisions: Decisions,
    /// Trainers and their limits.
    #[schema(inline)]
    pub training: Training,
    /// The cluster of which the node is a member.
    #[schema(inline)]
    pub cluster: Cluster,
}

/// The listening socket and its connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Address and port; port 0 picks a free one.
    pub listen: String,
    /// Host names by which clients reach the node, without ports. The loopback names and the
    /// listening address are always accepted; requests for any other host are rejected.
    pub hosts: Vec<String>,
    /// Web origins whose pages may call the node from a browser, such as `https://app.example`.
    pub origins: Vec<String>,
    /// Maximum number of open connections, capped at half of the process's file descriptor limit.
    /// Beyond it, only health checks are answered.
    pub connections: usize,
    /// How long a connection may take to send a complete request head, and how long it may accept
    /// no response bytes.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub idle_timeout: Duration,
    /// How long requests in flight may take to finish after the node was asked to stop.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
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

/// Whether `host` is a name, an IPv4 address, or an IPv6 address in brackets, without a port.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    !name.is_empty() && !name.contains(['/', ' ', '*', '[', ']']) && (name != host || !name.contains(':'))
}

/// Whether `origin` has the form in which browsers send the `Origin` header.
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

/// Limits of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum size of a JSON body.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub body: ByteSize,
    /// Maximum total size of all partially received bodies; requests beyond it are answered with
    /// 503.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub arriving: ByteSize,
    /// Maximum size of one NDJSON line.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub line: ByteSize,
    /// Maximum number of items in one predict or topk request.
    pub items_per_request: usize,
    /// Maximum number of concurrent requests; requests beyond it are answered with 503.
    pub requests: usize,
    /// Maximum number of open NDJSON streams; streams beyond it are answered with 503. They do not
    /// count as requests.
    pub streams: usize,
    /// How long a stream may send nothing before it is closed; empty lines keep it open.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub stream_idle_timeout: Duration,
    /// The earliest timestamp of an observation, as RFC 3339 text. The default rejects times in
    /// seconds, which as milliseconds are in January 1970.
    #[serde(with = "rfc3339")]
    #[schema(value_type = String)]
    pub earliest_time: Timestamp,
    /// How far the timestamp of an observation may be ahead of the node's clock.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub clock_skew: Duration,
    /// How long a request may take; it is answered with 504 after that.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub request_timeout: Duration,
    /// Maximum number of observations in flight per NDJSON stream.
    pub observations_in_flight: usize,
    /// Maximum number of models.
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
            earliest_time: YEAR_2000,
            clock_skew: Duration::from_secs(300),
            request_timeout: Duration::from_secs(30),
            observations_in_flight: 8192,
            models: 100,
        }
    }
}

const YEAR_2000: Timestamp = Timestamp(946_684_800_000);

/// A timestamp as RFC 3339 text.
mod rfc3339 {
    use celeris_model::Timestamp;
    use celeris_model::observation::EARLIEST;
    use serde::{Deserialize, Deserializer, Serializer, de, ser};

    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        let time = jiff::Timestamp::from_millisecond(time.0).map_err(ser::Error::custom)?;
        serializer.collect_str(&time)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|_| de::Error::custom(format!("expected a time like 1995-01-01T00:00:00Z, got {text:?}")))?;
        Ok(Timestamp(time.as_millisecond()).max(EARLIEST))
    }
}

/// Memory budgets of the caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// User states and histories.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub users: ByteSize,
    /// Features of items added after training.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub features: ByteSize,
    /// Cached predictions.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub predictions: ByteSize,
    /// The most items of a request whose predictions are cached and looked up; 0 disables the
    /// cache. `celeris-bench topk` measures it: at dimension 50 a repeated request of 4 items takes
    /// 0.45 of the time, a new one 1.35.
    pub prediction_items: usize,
    /// Per-user states of selections.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub selections: ByteSize,
    /// Items that users have seen, which recommendations can exclude.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub seen: ByteSize,
    /// Block cache of the store.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
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

/// Recording of decisions: whether, in how much detail, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Decisions {
    /// Whether decisions are recorded.
    pub enabled: bool,
    /// Decisions over at most this many candidates record all of them.
    pub candidates_in_full: usize,
    /// The share of decisions over more candidates that record all of them; the others record a
    /// digest.
    pub candidates_sampled: f64,
    /// Maximum bytes of decisions per second, with bursts of one second's worth; decisions beyond
    /// it are dropped and counted.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
    pub bytes_per_second: ByteSize,
    /// Maximum number of decisions queued for the writer; decisions beyond it are dropped and
    /// counted.
    pub queue: usize,
    /// How long decisions are kept and rewards are joined to them.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
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

/// Copying of the log to sealed Parquet segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sealing {
    /// Whether the log is copied to Parquet files.
    pub enabled: bool,
    /// The longest time a record waits to be sealed. Amended records disappear from the files
    /// within twice this time.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub interval: Duration,
    /// This many waiting records trigger sealing before the interval has passed.
    pub records: u64,
}

impl Default for Sealing {
    fn default() -> Self {
        Self { enabled: true, interval: Duration::from_secs(60), records: 100_000 }
    }
}

/// Background verification of the store's checksums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Verification {
    /// Delay after the start of the node.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub delay: Duration,
    /// Time between the end of one full pass and the start of the next.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub interval: Duration,
    /// Read rate, per second.
    #[serde(serialize_with = "serialize_size")]
    #[schema(value_type = String)]
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

/// Trainers and training limits, set by the operator of the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Training {
    /// Trainers in addition to the built-in `als`, by the name that models and requests use. Each
    /// is a complete command line in which `{job}` stands for the job file, `{folder}` for its
    /// folder and `{spark_als}` for the Spark training script. Trainers run with the rights of the
    /// node.
    pub trainers: BTreeMap<String, Vec<String>>,
    /// Upper limits of every training.
    #[schema(inline)]
    pub limits: TrainingLimits,
    /// The folder from which version directories can be registered; without it, registration is
    /// disabled.
    #[schema(value_type = Option<String>)]
    pub import_dir: Option<PathBuf>,
    /// Whether models that are created without `triggers` are retrained automatically: offsets from
    /// 10 observations on, the first training at 1000, then by volume.
    pub automatic: bool,
}

impl Default for Training {
    fn default() -> Self {
        Self { trainers: BTreeMap::new(), limits: TrainingLimits::default(), import_dir: None, automatic: true }
    }
}

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
    /// The URL by which clients and the other nodes reach this node. By default, `http://` and the
    /// listening address, which other machines reach only if it is an address of theirs.
    #[schema(value_type = Option<String>)]
    pub url: Option<String>,
    /// The addresses of the NATS servers, such as `nats://10.0.0.1:4222`.
    pub nats: Vec<String>,
    /// The monitoring addresses of the NATS servers, such as `http://10.0.0.1:8222`. The node reads there
    /// whether the servers sync every write (`sync_interval: always`), and does not start if they
    /// do not.
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
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub trim_delay: Duration,
    /// How long a new version waits before it serves until all nodes have it.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub ready_within: Duration,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            name: None,
            node: None,
            url: None,
            nats: Vec::new(),
            nats_monitor: Vec::new(),
            unsafe_no_sync: false,
            replicas: 3,
            shards: 6,
            trim_delay: Duration::from_secs(600),
            ready_within: Duration::from_secs(60),
        }
    }
}

impl Cluster {
    /// `listen` is the address of the node's socket.
    fn check(&self, listen: &str) -> Result<(), String> {
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
        if !matches!(self.replicas, 1 | 3 | 5) {
            return Err(format!("cluster.replicas: must be 1, 3 or 5, got {}", self.replicas));
        }
        if Shards::new(self.shards).is_none() {
            return Err(format!("cluster.shards: must be from 1 to {PARTITIONS}, got {}", self.shards));
        }
        Ok(())
    }
}

/// Whether `url` is `http://` with host and port, and nothing behind.
fn is_base_url(url: &str) -> bool {
    let site = url.strip_prefix("http://").unwrap_or_default();
    let Some(host) = without_port(site.as_bytes()) else { return false };
    let (host, port) = site.split_at(host.len());
    is_host(host) && (port.is_empty() || port[1..].parse::<u16>().is_ok())
}

/// Limits of one training, all of its processes together. A model's `trainer.limits` may be lower.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingLimits {
    /// Memory; by default half of the machine's.
    #[serde(serialize_with = "serialize_optional_size")]
    #[schema(value_type = Option<String>)]
    pub memory: Option<ByteSize>,
    /// Wall-clock time from the start of the training.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub time: Duration,
    /// Longest time without a line of output or a change in the output folder; after it, the
    /// training is considered hung.
    #[serde(with = "humantime_serde")]
    #[schema(value_type = String)]
    pub heartbeat: Duration,
    /// Processes and threads.
    pub processes: u64,
    /// Bytes written into the job folder; by default half of the free disk space.
    #[serde(serialize_with = "serialize_optional_size")]
    #[schema(value_type = Option<String>)]
    pub disk: Option<ByteSize>,
}

impl Default for TrainingLimits {
    fn default() -> Self {
        let TrainerLimits { memory, time, heartbeat, processes, disk } = TrainerLimits::default();
        Self { memory: memory.map(ByteSize::b), time, heartbeat, processes, disk: disk.map(ByteSize::b) }
    }
}

/// Writes a size exactly, in the largest unit of which it is a multiple.
fn serialize_size<S: Serializer>(size: &ByteSize, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = size.as_u64();
    let unit = [(30, "GiB"), (20, "MiB"), (10, "KiB")].into_iter().find(|(bits, _)| bytes.trailing_zeros() >= *bits);
    match unit.filter(|_| bytes > 0) {
        Some((bits, unit)) => serializer.collect_str(&format_args!("{} {unit}", bytes >> bits)),
        None => serializer.collect_str(&format_args!("{bytes} B")),
    }
}

fn serialize_optional_size<S: Serializer>(size: &Option<ByteSize>, serializer: S) -> Result<S::Ok, S::Error> {
    match size {
        Some(size) => serialize_size(size, serializer),
        None => serializer.serialize_none(),
    }
}

impl Training {
    /// The manager's options of the same content.
    ///
    /// # Errors
    /// A message with the name of the invalid key.
    pub fn options(&self) -> Result<TrainingOptions, String> {
        let TrainingLimits { memory, time, heartbeat, processes, disk } = self.limits.clone();
        let [memory, disk] = [memory, disk].map(|size| size.map(|size| size.as_u64()));
        let limits = TrainerLimits { memory, time, heartbeat, processes, disk };
        limits.check().map_err(|problem| format!("training.limits.{problem}"))?;
        let trainers = Trainers::new(&self.trainers).map_err(|problem| format!("training.trainers.{problem}"))?;
        Ok(TrainingOptions { trainers, limits, automatic: self.automatic })
    }
}

/// Reads the configuration from the file and the environment. `listen` is the value of the command
/// line flag.
///
/// # Errors
/// A message with the name of the invalid key and its source.
pub fn load(file: Option<&Path>, listen: Option<&str>) -> Result<Config, String> {
    let variables = env::vars_os();
    load_from(
        file,
        variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        listen,
    )
}

/// Like [`load`], with these environment variables instead of those of the process.
///
/// # Errors
/// As [`load`].
pub fn load_from(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    listen: Option<&str>,
) -> Result<Config, String> {
    let mut keys = file.map(of_file).transpose()?.unwrap_or_default();
    for (name, value) in variables {
        // Only names with a section are configuration; variables of other programs may share the
        // prefix.
        if let Some(key) = name.strip_prefix(ENV_PREFIX).filter(|key| key.contains(ENV_SEPARATOR)) {
            let variable = of_variable(key, &value);
            check(&variable).map_err(|error| format!("environment variable {name}: {error}"))?;
            merge(&mut keys, variable);
        }
    }
    let mut config = check(&keys)?;
    if let Some(listen) = listen {
        listen.clone_into(&mut config.server.listen);
    }
    config.server.check()?;
    config.decisions.check()?;
    config.training.options()?;
    config.cluster.check(&config.server.listen)?;
    Ok(config)
}

fn check(keys: &Table) -> Result<Config, String> {
    Config::deserialize(keys.clone()).map_err(|error| error.to_string())
}

/// The keys of a TOML file. It is deserialized as a [`Config`] first, because those errors include
/// the line.
fn of_file(file: &Path) -> Result<Table, String> {
    let in_file = |error: &dyn fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| in_file(&error))?;
    toml::from_str::<Config>(&text).map_err(|error| in_file(&error))?;
    text.parse().map_err(|error: toml::de::Error| in_file(&error))
}

/// The key of one environment variable, whose name has no prefix here. A value that is not TOML is
/// read as a string.
fn of_variable(name: &str, value: &str) -> Table {
    let parsed = format!("value = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
    let value = parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(value.to_owned()));
    let name = name.to_lowercase();
    let (outer, key) = name.rsplit_once(ENV_SEPARATOR).unwrap_or(("", &name));
    let innermost = Table::from_iter([(key.to_owned(), value)]);
    outer.rsplit(ENV_SEPARATOR).fold(innermost, |inner, key| Table::from_iter([(key.to_owned(), Value::Table(inner))]))
}

/// Sets the keys of `upper` in `lower`, table by table.
fn merge(lower: &mut Table, upper: Table) {
    for (key, value) in upper {
        match (lower.get_mut(&key), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => merge(lower, upper),
            (_, value) => drop(lower.insert(key, value)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_override_the_file() {
        let mut keys: Table = "[limits]\nmodels = 7\nbody = '1 MiB'\n[training.limits]\nprocesses = 9".parse().unwrap();
        for (name, value) in [
            ("LIMITS__BODY", "2MiB"),
            ("LIMITS__REQUESTS", "12"),
            ("SERVER__LISTEN", "[::1]:7117"),
            ("SERVER__HOSTS", r#"["a.example", "b.example"]"#),
            ("SEALING__ENABLED", "false"),
            ("TRAINING__LIMITS__TIME", "1h"),
        ] {
            merge(&mut keys, of_variable(name, value));
        }
        let config = check(&keys).unwrap();
        assert_eq!((config.limits.body, config.limits.models, config.limits.requests), (ByteSize::mib(2), 7, 12));
        assert_eq!(config.server.listen, "[::1]:7117");
        assert_eq!(config.server.hosts, ["a.example", "b.example"]);
        assert!(!config.sealing.enabled);
        assert_eq!((config.training.limits.processes, config.training.limits.time), (9, Duration::from_secs(3600)));
    }

    #[test]
    fn a_section_without_the_name_of_the_cluster_is_refused() {
        assert_eq!(Cluster::default().check("127.0.0.1:7117"), Ok(()));
        let nameless = Cluster { nats: vec!["nats://10.0.0.1:4222".to_owned()], ..Cluster::default() };
        assert!(nameless.check("127.0.0.1:7117").unwrap_err().starts_with("cluster.name: missing"));
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
            let problem = cluster.check(everywhere).unwrap_err();
            assert!(problem.starts_with("cluster.url") && problem.contains(everywhere), "{problem}");
            let named = Cluster { url: Some("http://10.0.0.1:7117".to_owned()), ..cluster.clone() };
            named.check(everywhere).unwrap();
        }
        cluster.check("10.0.0.1:7117").unwrap();
        cluster.check("localhost:7117").unwrap();
    }

    #[test]
    fn hosts_and_origins_that_no_request_can_have_are_refused() {
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
