//! Bytes written to disk per observation.

use crate::Settings;
use crate::load::client;
use crate::ndjson::Lines;
use crate::process::{Server, prepare};
use celeris_cli::Failure;
use celeris_cli::estimate::sorted_file_bytes;
use celeris_cli::estimate::warm::Ids;

/// Enough that constant overhead per file is negligible.
const OBSERVATIONS_EACH: usize = 20;

const USERS: usize = 5_000;

/// Bytes written to the write-ahead log and flushed to sorted files, per observation; `None` if the
/// node lacks the metric.
///
/// The write-ahead log's share is RocksDB's own statistic. The last flush happens when the node
/// stops, after which the statistic cannot be read, so flushed bytes are measured as file sizes: in
/// a run too short for compactions, each file was flushed once.
pub fn per_observation(settings: &Settings, ids: Ids) -> Result<Option<f64>, Failure> {
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let items = prepare(dir.path(), 1_000, 10)?;
    let files_before = sorted_file_bytes(dir.path())?;
    let node = Server::node(dir.path())?;
    let lines = Lines::invent(&items, settings.pick(USERS, 20), settings.pick(OBSERVATIONS_EACH, 2), ids, 60)?;
    let written = || node.metric("celeris_log_wal_bytes_total");
    let before = written()?;
    client()?.block_on(lines.send(&node))?;
    let after = written()?;
    node.stop()?;
    let flushed = sorted_file_bytes(dir.path())? - files_before;
    let logged = after.zip(before).map(|(after, before)| after - before);
    Ok(logged.map(|logged| (logged + flushed) / lines.count() as f64))
}
