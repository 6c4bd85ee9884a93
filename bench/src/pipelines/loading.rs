//! Loading, memory and first runs of many pipelines, in processes of their own.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use celeris_cli::Failure;
use celeris_cli::estimate::machine;
use celeris_evaluate::peers::run as run_process;
use celeris_model::Context;
use celeris_pipelines::Scratch;
use serde::{Deserialize, Serialize};

use super::fleet::{self, Sharing, record};
use super::latency::expect_equal;
use crate::Settings;
use crate::report::Report;
use crate::stopwatch::Durations;

/// Processes of each side.
const ROUNDS: [usize; 2] = [5, 1];

const MIB: f64 = (1 << 20) as f64;

/// What a process is to load, on its standard input.
#[derive(Serialize, Deserialize)]
struct Job {
    folder: PathBuf,
    sharing: Sharing,
}

/// What the process prints, as one JSON object.
#[derive(Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// From the first file until all pipelines can be run.
    pub seconds: f64,
    /// What the resident memory has grown by, when each pipeline has been run once.
    pub bytes: u64,
    /// The first run of each pipeline.
    pub first_runs: Vec<f64>,
    /// The output of each pipeline for its first item.
    pub values: Vec<f32>,
}

impl Loaded {
    pub fn mebibytes(&self) -> f64 {
        self.bytes as f64 / MIB
    }
}

fn resident() -> Result<u64, Failure> {
    machine::kibibytes("/proc/self/status", "VmRSS").ok_or_else(|| Failure::other("cannot read the resident memory"))
}

/// The process: loads the pipelines that standard input names, and runs each once.
///
/// # Errors
/// If the folder cannot be read.
pub fn process() -> Result<(), Failure> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock()).map_err(Failure::other)?;
    let (items, context) = (fleet::items(&job.folder)?, Context::default());
    let before = resident()?;
    let started = Instant::now();
    let plans = fleet::load(&job.folder, job.sharing)?;
    let seconds = started.elapsed().as_secs_f64();
    let (mut scratch, mut first_runs, mut values) = (Scratch::default(), Vec::new(), Vec::new());
    for (plan, item) in plans.iter().zip(items.iter().cycle()) {
        let mut out = [0.0];
        let started = Instant::now();
        if job.sharing == Sharing::Apart {
            // Every operator writes into memory of its own that is allocated for this record.
            scratch = Scratch::default();
        }
        plan.run(record(item, &context), &mut scratch, &mut out)?;
        first_runs.push(started.elapsed().as_secs_f64());
        values.push(out[0]);
    }
    let bytes = resident()?.saturating_sub(before);
    let loaded = Loaded { seconds, bytes, first_runs, values };
    let json = serde_json::to_string(&loaded).map_err(Failure::other)?;
    writeln!(std::io::stdout().lock(), "{json}").map_err(Failure::other)
}

fn load(folder: &Path, sharing: Sharing) -> Result<Loaded, Failure> {
    let file = folder.join("job.json");
    let job = Job { folder: folder.to_owned(), sharing };
    std::fs::write(&file, serde_json::to_vec(&job).map_err(Failure::other)?).map_err(Failure::other)?;
    let mut command = Command::new(std::env::current_exe().map_err(Failure::other)?);
    command.arg("load-pipelines").stdin(File::open(&file).map_err(Failure::other)?);
    serde_json::from_slice(&run_process(&mut command).map_err(Failure::other)?).map_err(Failure::other)
}

/// Compares processes that share objects and stages with processes that share nothing and have a stage for each operator.
/// Returns what the fastest of ours has loaded.
///
/// # Errors
/// If a process fails, or outputs differ.
pub fn run(settings: &Settings, report: &mut Report, name: &str, folder: &Path) -> Result<Loaded, Failure> {
    eprintln!("  {name}: loading …");
    let mut loaded: [Vec<Loaded>; 2] = Default::default();
    let mut first_runs: [Durations; 2] = Default::default();
    for _ in 0..settings.pick(ROUNDS[0], ROUNDS[1]) {
        for (side, sharing) in [Sharing::Shared, Sharing::Apart].into_iter().enumerate() {
            let one = load(folder, sharing)?;
            one.first_runs.iter().for_each(|seconds| first_runs[side].add(Duration::from_secs_f64(*seconds)));
            loaded[side].push(one);
        }
    }
    let fastest = |loaded: Vec<Loaded>| loaded.into_iter().min_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let [ours, apart] = loaded.map(fastest);
    let (Some(ours), Some(apart)) = (ours, apart) else { return Err(Failure::other("nothing was loaded")) };
    expect_equal("pipelines that share nothing", &ours.values, &apart.values)?;
    let [shared, alone] = &mut first_runs;
    for (suffix, quantile) in [("", 0.5), ("/p99", 0.99)] {
        let micros = [&mut *shared, &mut *alone].map(|durations| durations.quantile_micros(quantile));
        report.compare(format!("{name}/cold{suffix}"), "us", micros[0], micros[1]);
    }
    report.compare(format!("memory/{name}=250"), "MiB", ours.mebibytes(), apart.mebibytes());
    report.compare(format!("load/{name}=250/apart"), "s", ours.seconds, apart.seconds);
    Ok(ours)
}
