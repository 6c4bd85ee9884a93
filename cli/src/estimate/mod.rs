//! `estimate-size`: estimates the memory and disk usage of a node from a small sample of the
//! planned load.
//!
//! Sizes are measured, not computed by formulas: a sample of the planned users runs through
//! predictor and store, and the accounted cache bytes and the bytes on disk are scaled up.

pub mod machine;
pub mod scene;
pub mod warm;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use celeris_datasets::TemporaryFolder;
use celeris_export::{Sealer, SealingOptions};
use celeris_model::ModelName;
use celeris_model::canonical::CHECKPOINT_EVERY;
use celeris_predictor::PredictorOptions;
use celeris_retrieval::{Matrix, Table};
use celeris_storage::{Storage, StorageOptions};
use serde::Serialize;

use self::warm::{Ids, Warm};
use crate::Failure;
use crate::serve::runtime;
use celeris_api::config::Config;

/// Approximate number of observations of the sample.
const SAMPLE_OBSERVATIONS: u64 = 20_000;

/// Maximum number of items of the sample.
const SAMPLE_ITEMS_MAX: u64 = 50_000;

/// Sealing interval of the sample.
const SEALING_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout for sealing the sample, far longer than it takes.
const SEALING_MAX: Duration = Duration::from_secs(60);

/// The planned load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Number of users.
    pub users: u64,
    /// Length of feature and weight vectors.
    pub dim: usize,
    /// Number of observations of each user.
    pub history: u64,
    /// Number of items in each model's table.
    pub items: u64,
    /// Number of models that learn from the stream.
    pub models: u64,
}

/// The estimated sizes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    pub memory: Memory,
    pub disk: Disk,
}

/// Memory usage, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// One user with the whole history: state under every model, events, and cache entry.
    pub user: f64,
    /// All users, if all were warm.
    pub all_users: f64,
    /// Feature tables.
    pub features: f64,
    /// Memtables of the store.
    pub write_buffers: f64,
    /// Block cache of the store: blocks, indexes and filters.
    pub blocks: f64,
    /// The process without data.
    pub process: f64,
    /// Total with all users warm.
    pub total: f64,
    /// The configured budget of user states.
    pub user_budget: f64,
    /// Number of users that stay warm within the budget.
    pub warm_users: f64,
    /// Total with as many warm users as the budget allows and all other caches full.
    pub total_within_budget: f64,
}

/// Disk usage, in bytes, without the write-ahead log of a running node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Disk {
    /// One observation with its index entries and an id made by the server.
    pub observation: f64,
    /// One observation with its index entries and a client id of 32 characters.
    pub observation_with_id: f64,
    /// All observations without client ids.
    pub observations: f64,
    /// All observations with client ids.
    pub observations_with_id: f64,
    /// Sealed segments: a copy of all observations as Parquet; 0 if sealing is disabled.
    pub segments: f64,
    /// One version of every model.
    pub versions: f64,
    /// Maximum size of the write-ahead log of a running node.
    pub log_max: f64,
    /// Total of observations with client ids, segments and versions.
    pub total: f64,
}

/// Measurements of the sample.
struct Sample {
    user_bytes: f64,
    observation_bytes: f64,
    /// Bytes of an observation in a sealed segment.
    sealed_bytes: f64,
    /// Bytes of a record written to the log.
    record_bytes: f64,
    process_bytes: f64,
}

/// Estimates the sizes of `plan` under `config`.
///
/// # Errors
/// `BadInput` if the plan is invalid; otherwise if the sample cannot be run in the temporary
/// folder.
pub fn estimate(plan: &Plan, config: &Config) -> Result<Estimate, Failure> {
    check(plan)?;
    let plain = sample(plan, Ids::None)?;
    let with_id = sample(plan, Ids::Given)?;
    let (features, version_bytes) = table(plan)?;
    // The product of two counts may be more than a count.
    let observations = plan.users as f64 * plan.history as f64;
    let options = StorageOptions::default();
    let write_buffers = (observations * with_id.record_bytes).min(options.write_buffer_bytes as f64);
    let all_users = plan.users as f64 * plain.user_bytes;
    let user_budget = config.memory.users.as_u64() as f64;
    // Blocks that were read, filters and indexes first, stay cached as far as the budget allows.
    let blocks = (observations * with_id.observation_bytes).min(config.memory.blocks.as_u64() as f64);
    let fixed = features + write_buffers + blocks + plain.process_bytes;
    let memory = &config.memory;
    let other_caches = [memory.features, memory.predictions, memory.selections, memory.seen];
    let caches: f64 = other_caches.iter().map(|budget| budget.as_u64() as f64).sum();
    let memory = Memory {
        user: plain.user_bytes,
        all_users,
        features,
        write_buffers,
        blocks,
        process: plain.process_bytes,
        total: all_users + fixed,
        user_budget,
        warm_users: (user_budget / plain.user_bytes).min(plan.users as f64).floor(),
        total_within_budget: all_users.min(user_budget) + fixed + caches,
    };
    let versions = plan.models as f64 * version_bytes;
    let segments = if config.sealing.enabled { observations * with_id.sealed_bytes } else { 0.0 };
    let disk = Disk {
        observation: plain.observation_bytes,
        observation_with_id: with_id.observation_bytes,
        observations: observations * plain.observation_bytes,
        observations_with_id: observations * with_id.observation_bytes,
        segments,
        versions,
        log_max: options.wal_bytes_max as f64,
        total: observations * with_id.observation_bytes + segments + versions,
    };
    Ok(Estimate { memory, disk })
}

fn check(plan: &Plan) -> Result<(), Failure> {
    let positive = [("users", plan.users), ("history", plan.history), ("items", plan.items), ("models", plan.models)];
    for (name, value) in positive {
        if value == 0 {
            return Err(Failure::bad_input(format!("--{name}: must be at least 1")));
        }
    }
    let (min, max) = (celeris_manager::settings::DIM_MIN, celeris_manager::settings::DIM_MAX);
    if !(min..=max).contains(&plan.dim) {
        return Err(Failure::bad_input(format!("--dim: must be {min} to {max}")));
    }
    Ok(())
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Runs a sample of users and measures its sizes.
fn sample(plan: &Plan, ids: Ids) -> Result<Sample, Failure> {
    let history = sample_history(plan.history);
    let users = (SAMPLE_OBSERVATIONS / history).clamp(1, plan.users.min(1_000));
    let items = count(plan.items.min(1_000));
    let runtime = runtime()?;
    let options = PredictorOptions { user_bytes_max: usize::MAX, ..PredictorOptions::default() };
    let warm = Warm::open(items, plan.dim, &options)?;
    for number in 1..plan.models {
        warm.add_model(&format!("other-{number}"), items, plan.dim)?;
    }
    let process_bytes = resident();
    runtime.block_on(warm.teach(count(users), count(history), ids))?;
    let user_bytes = warm.held_bytes("users") / users as f64;
    let counters = warm.storage().log().counters();
    let record_bytes = counters.bytes as f64 / counters.records.max(1) as f64;
    let sealed_bytes = seal(warm.storage())?;
    warm.storage().close()?;
    let observation_bytes = sorted_file_bytes(warm.storage().dir())? / (users * history) as f64;
    Ok(Sample { user_bytes, observation_bytes, sealed_bytes, record_bytes, process_bytes })
}

/// The length of a shorter history that takes as much memory as the planned one: a long history is
/// reduced to the sums of its last checkpoint and the events after it.
fn sample_history(planned: u64) -> u64 {
    if planned < 2 * CHECKPOINT_EVERY { planned } else { CHECKPOINT_EVERY + planned % CHECKPOINT_EVERY }
}

/// Seals the sample; returns the bytes of an observation in its segments.
fn seal(storage: &Storage) -> Result<f64, Failure> {
    let options = SealingOptions { interval: SEALING_INTERVAL, records: u64::MAX };
    let sealer = Sealer::start(storage.clone(), options, celeris_manager::names_by_id).map_err(Failure::other)?;
    let started = Instant::now();
    let sealed = loop {
        let status = sealer.status().into_iter().map(|(_, status)| status).find(|status| status.lag_records == 0);
        if let Some(status) = status {
            break status;
        }
        if started.elapsed() > SEALING_MAX {
            return Err(Failure::other("the sample was not sealed in time; is the temporary folder nearly full?"));
        }
        std::thread::sleep(SEALING_INTERVAL);
    };
    sealer.stop();
    Ok(sealed.bytes as f64 / sealed.rows.max(1) as f64)
}

/// Resident memory of the process, in bytes.
fn resident() -> f64 {
    machine::kibibytes("/proc/self/status", "VmRSS").unwrap_or(0) as f64
}

/// Bytes of all models' feature tables in memory, including the search structures, and of one
/// version on disk.
fn table(plan: &Plan) -> Result<(f64, f64), Failure> {
    let sampled = plan.items.min(SAMPLE_ITEMS_MAX);
    let scale = plan.items as f64 / sampled as f64;
    let theta = scene::theta(count(sampled), plan.dim).map_err(Failure::other)?;
    let dir = TemporaryFolder::new().map_err(Failure::other)?;
    let model = ModelName::new("sample").map_err(Failure::other)?;
    scene::write_version(dir.path(), model, &theta)?;
    let disk = file_bytes(dir.path())? * scale;
    let rows = (0..).take(theta.items().len()).collect();
    let searched = Table::build(Matrix::new(plan.dim, theta.features(), theta.offsets()), rows);
    Ok((plan.models as f64 * scale * (theta.bytes() + searched.bytes()) as f64, disk))
}

/// Bytes in the sorted files of a data directory's main database.
///
/// # Errors
/// If the folder cannot be read.
pub fn sorted_file_bytes(dir: &Path) -> Result<f64, Failure> {
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(dir.join("db")).map_err(Failure::other)? {
        let entry = entry.map_err(Failure::other)?;
        if entry.path().extension().is_some_and(|extension| extension == "sst") {
            bytes += entry.metadata().map_err(Failure::other)?.len() as f64;
        }
    }
    Ok(bytes)
}

/// Bytes of all files below a folder.
///
/// # Errors
/// If a folder cannot be read.
pub fn file_bytes(folder: &Path) -> Result<f64, Failure> {
    let mut bytes = 0.0;
    for entry in std::fs::read_dir(folder).map_err(Failure::other)? {
        let entry = entry.map_err(Failure::other)?;
        let metadata = entry.metadata().map_err(Failure::other)?;
        bytes += if metadata.is_dir() { file_bytes(&entry.path())? } else { metadata.len() as f64 };
    }
    Ok(bytes)
}

/// Sizes from here on are beyond what is counted.
const SHOWN_BYTES_MAX: f64 = u64::MAX as f64;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are positive, and below the bound")]
fn size(bytes: f64) -> String {
    if bytes < SHOWN_BYTES_MAX { bytesize::ByteSize(bytes as u64).to_string() } else { "over 16 EiB".to_owned() }
}

impl fmt::Display for Estimate {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Self { memory, disk } = self;
        writeln!(formatter, "memory, all users warm    {:>12}", size(memory.total))?;
        writeln!(formatter, "  user states             {:>12}   {} a user", size(memory.all_users), size(memory.user))?;
        writeln!(formatter, "  feature tables          {:>12}", size(memory.features))?;
        writeln!(formatter, "  write buffers           {:>12}", size(memory.write_buffers))?;
        writeln!(formatter, "  blocks of the store     {:>12}", size(memory.blocks))?;
        writeln!(formatter, "  process                 {:>12}", size(memory.process))?;
        writeln!(formatter, "memory within the budgets {:>12}", size(memory.total_within_budget))?;
        let budget = size(memory.user_budget);
        writeln!(formatter, "  users that stay warm    {:>12}   in a budget of {budget}", memory.warm_users)?;
        writeln!(formatter, "disk                      {:>12}", size(disk.total))?;
        let (plain, with_id) = (size(disk.observations), size(disk.observations_with_id));
        writeln!(formatter, "  observations, no ids    {plain:>12}   {:.0} bytes each", disk.observation)?;
        writeln!(formatter, "  observations with ids   {with_id:>12}   {:.0} bytes each", disk.observation_with_id)?;
        writeln!(formatter, "  sealed segments         {:>12}", size(disk.segments))?;
        writeln!(formatter, "  one version a model     {:>12}", size(disk.versions))?;
        writeln!(formatter, "  write-ahead log, up to  {:>12}   on top, while the node runs", size(disk.log_max))?;
        if memory.total.max(disk.total) >= SHOWN_BYTES_MAX {
            writeln!(formatter, "sizes beyond 16 EiB (2^64 bytes) are not counted; --json has them as numbers")?;
        }
        Ok(())
    }
}
