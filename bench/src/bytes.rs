//! What one observation costs on the disk.

use crate::Settings;
use crate::load::client;
use crate::ndjson::Lines;
use crate::process::{Server, prepare};
use celeris_cli::Failure;
use celeris_cli::estimate::sorted_file_bytes;
use celeris_cli::estimate::warm::Ids;

/// Enough that what is written once a file does not count.
const OBSERVATIONS_EACH: usize = 20;

const USERS: usize = 5_000;

/// Bytes written to the write-ahead log and flushed to sorted files, by observation; `None` where the node does not tell.
///
/// The log's share is RocksDB's own statistic. A node flushes what is left when it stops, where no statistic can be read
/// any more; the files it leaves tell instead, since in a run too short for a compaction each was flushed once.
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
