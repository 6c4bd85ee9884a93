//! What one observation costs on the disk.

use std::fs;
use std::path::Path;

use crate::bench::Settings;
use crate::bench::load::client;
use crate::bench::ndjson::Lines;
use crate::bench::process::{Server, prepare};
use crate::bench::warm::Ids;
use crate::cli::Failure;

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

/// Bytes in the sorted files of a data directory's main database.
pub fn sorted_file_bytes(dir: &Path) -> Result<f64, Failure> {
    let mut bytes = 0.0;
    for entry in fs::read_dir(dir.join("db")).map_err(Failure::other)? {
        let entry = entry.map_err(Failure::other)?;
        if entry.path().extension().is_some_and(|extension| extension == "sst") {
            bytes += entry.metadata().map_err(Failure::other)?.len() as f64;
        }
    }
    Ok(bytes)
}
