//! `celeris-bench size`: the estimates of `estimate-size` against the sizes of a loaded node.

use crate::Settings;
use crate::load::client;
use crate::ndjson::Lines;
use crate::process::{Server, prepare};
use crate::report::Report;
use celeris_api::config::Config;
use celeris_cli::Failure;
use celeris_cli::estimate::warm::Ids;
use celeris_cli::estimate::{Plan, estimate, file_bytes};

const MIB: f64 = (1 << 20) as f64;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("size");
    let (users, history, items) = settings.pick((20_000, 20, 10_000), (50, 5, 100));
    let plan = Plan { users: users as u64, dim: 50, history: history as u64, items: items as u64, models: 1 };
    let estimate = estimate(&plan, &Config::default())?;
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let items = prepare(dir.path(), items, plan.dim)?;
    let node = Server::node(dir.path())?;
    // Users interleave, as in production, rather than one after the other.
    let lines = Lines::invent(&items, users, history, Ids::Given, 70)?;
    client()?.block_on(lines.send(&node))?;
    drop(lines);
    let resident = node.resident_bytes().map_or(f64::NAN, |bytes| bytes as f64);
    report.compare("estimate/memory", "MiB", estimate.memory.total / MIB, resident / MIB);
    node.stop()?;
    report.compare("estimate/disk", "MiB", estimate.disk.total / MIB, file_bytes(dir.path())? / MIB);
    Ok(report)
}
