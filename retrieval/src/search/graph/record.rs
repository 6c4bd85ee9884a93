//! The record stored with an index file: the table it was built from, and its measurements.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use super::GraphError;
use crate::search::table::Matrix;

/// The record's format; others are rejected.
const FORMAT: u32 = 1;

/// Bytes of a file hashed per read.
const READ_BYTES: usize = 1 << 20;

/// The candidate count for searches up to `k`, with its measured cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The largest `k` that the plan applies to.
    pub k: usize,
    /// Number of candidates requested from the graph.
    pub expansion: usize,
    /// The mean share of the true `k` best that was found.
    pub recall: f64,
    /// Median time of a search by the graph, in microseconds.
    pub graph_micros: f64,
    /// Median time of the exact search of the same queries, in microseconds.
    pub exact_micros: f64,
}

impl Plan {
    /// The least recall with which the graph is used.
    pub const RECALL_MIN: f64 = 0.99;

    /// Whether the graph had sufficient recall in less time than the exact search.
    #[must_use]
    pub fn pays(&self) -> bool {
        self.recall >= Self::RECALL_MIN && self.graph_micros < self.exact_micros
    }
}

/// The contents of the record file. It is written after the graph, and a graph without a record is not used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    format: u32,
    /// Checksum of dimension, offsets and features.
    table: u64,
    /// Number of rows in the graph; 0 if there is none.
    pub(super) rows: usize,
    /// Size of the graph's file.
    pub(super) file_bytes: u64,
    file_checksum: u64,
    /// By ascending `k`.
    pub(super) plans: Vec<Plan>,
}

impl Record {
    /// The record of the graph in `file`, or of a build without a graph.
    pub(super) fn new(
        matrix: Matrix<'_>,
        rows: usize,
        plans: Vec<Plan>,
        file: Option<&Path>,
    ) -> Result<Self, GraphError> {
        let (file_bytes, file_checksum) = file.map_or(Ok((0, 0)), checksum)?;
        Ok(Self { format: FORMAT, table: table_checksum(matrix), rows, file_bytes, file_checksum, plans })
    }

    /// Writes the record of the graph at `path` atomically.
    pub(super) fn write(&self, path: &Path) -> Result<(), GraphError> {
        let (to, temporary) = (place(path), temporary(&place(path)));
        let text = serde_json::to_vec_pretty(self).map_err(GraphError::library)?;
        let written =
            File::create(&temporary).and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        written.and_then(|()| rename(&temporary, &to)).map_err(|source| GraphError::Io { path: to, source })
    }

    pub(super) fn read(path: &Path) -> Result<Self, GraphError> {
        let path = place(path);
        let text = fs::read(&path).map_err(|source| GraphError::Io { path: path.clone(), source })?;
        let record: Self = serde_json::from_slice(&text).map_err(|_| GraphError::Torn { path: path.clone() })?;
        if record.format == FORMAT { Ok(record) } else { Err(GraphError::Torn { path }) }
    }

    /// Checks that the graph at `path` is intact and was built from this matrix.
    pub(super) fn check(&self, path: &Path, matrix: Matrix<'_>) -> Result<(), GraphError> {
        if self.table != table_checksum(matrix) || self.rows > matrix.len() {
            return Err(GraphError::OtherTable { path: path.to_owned() });
        }
        if self.rows > 0 && checksum(path)? != (self.file_bytes, self.file_checksum) {
            return Err(GraphError::Torn { path: path.to_owned() });
        }
        Ok(())
    }
}

/// The path of the record of the graph at `path`.
fn place(path: &Path) -> PathBuf {
    path.with_extension("json")
}

/// The temporary path to which a file is written before it is renamed.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Renames a file and syncs its directory.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Length and checksum of a file.
fn checksum(path: &Path) -> Result<(u64, u64), GraphError> {
    let hashed = || -> io::Result<(u64, u64)> {
        let (mut file, mut buffer) = (File::open(path)?, vec![0; READ_BYTES]);
        let (mut hasher, mut bytes) = (Xxh3Default::new(), 0);
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok((bytes, hasher.digest()));
            }
            hasher.update(&buffer[..read]);
            bytes += read as u64;
        }
    };
    hashed().map_err(|source| GraphError::Io { path: path.to_owned(), source })
}

fn table_checksum(matrix: Matrix<'_>) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(&(matrix.dim() as u64).to_le_bytes());
    let mut bytes = Vec::with_capacity(READ_BYTES);
    for slot in 0..matrix.len() {
        let row = matrix.features(slot).iter().copied().chain([matrix.offset(slot)]);
        bytes.extend(row.flat_map(|value| value.to_le_bytes()));
        if bytes.len() >= READ_BYTES {
            hasher.update(&bytes);
            bytes.clear();
        }
    }
    hasher.update(&bytes);
    hasher.digest()
}
