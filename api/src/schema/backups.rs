//! Copies of a node for backups, and the backups that were made of it.

use std::collections::BTreeMap;

use celeris_model::{StreamName, Timestamp};
use celeris_storage::Watermark;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::backups::{CopiedFile, Held, Made};

/// A copy of the node's data directory as of one moment.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackupCopy {
    /// Names the backup; ids sort by time.
    pub id: String,
    /// When the copy was made, in Unix milliseconds.
    pub at: i64,
    /// The version of the node.
    pub celeris: String,
    /// Names the store: the same for all backups of a node, and of all nodes of a cluster.
    pub store: String,
    /// The cluster of the node; null if it is on its own.
    pub cluster: Option<BackupCluster>,
    /// Records in the log.
    pub records: u64,
    /// The last record of each partition of each stream.
    #[schema(value_type = BTreeMap<String, Vec<u64>>)]
    pub position: BTreeMap<StreamName, Watermark>,
    /// How many versions of models the copy has.
    pub versions: usize,
    /// Versions and objects that the store names and that are not to be had.
    pub missing: Vec<String>,
    /// By their numbers, from 0.
    pub files: Vec<BackupFile>,
    /// After so many seconds without a request for it, the copy is removed.
    pub idle_seconds_max: u64,
}

/// The cluster of a copy.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackupCluster {
    pub name: String,
    /// Increases with every recovery from the copy of a node.
    pub incarnation: u64,
}

/// A file of a copy.
#[derive(Debug, Serialize, ToSchema)]
pub struct BackupFile {
    /// Its path in the data directory.
    pub name: String,
    pub bytes: u64,
    /// Names the contents: a file that was fetched by this before need not be fetched again. Null for files that change.
    pub known_by: Option<String>,
}

impl From<&CopiedFile> for BackupFile {
    fn from(CopiedFile { name, bytes, known_by }: &CopiedFile) -> Self {
        Self { name: name.clone(), bytes: *bytes, known_by: known_by.clone() }
    }
}

/// A backup that is complete.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishedBackup {
    /// Where it is; 1 to 1024 bytes.
    #[schema(min_length = 1, max_length = 1024)]
    pub to: String,
    /// The size of its files.
    pub bytes: u64,
    /// The size of those that were not there before.
    pub sent_bytes: u64,
}

/// The backups that were made of this node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BackupList)]
pub struct Backups {
    /// The latest 20, the last one first.
    pub backups: Vec<MadeBackup>,
    /// Copies that are held for backups being made.
    pub running: Vec<RunningBackup>,
}

/// A backup that was made of this node.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeBackup {
    pub id: String,
    /// The time whose state it has, in Unix milliseconds.
    pub at: i64,
    /// When it was complete, in Unix milliseconds.
    pub finished: i64,
    /// Who made it; null if the node needs no keys.
    pub principal: Option<String>,
    /// Where it is.
    pub to: String,
    /// Records in its log.
    pub records: u64,
    /// The size of its files.
    pub bytes: u64,
    /// The size of those that were not there before.
    pub sent_bytes: u64,
}

impl From<Made> for MadeBackup {
    fn from(Made { id, at, finished, principal, to, records, bytes, sent_bytes }: Made) -> Self {
        let Timestamp(at) = at;
        Self { id, at, finished: finished.0, principal, to, records, bytes, sent_bytes }
    }
}

/// A copy that is held for a backup.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunningBackup {
    pub id: String,
    /// When the copy was made, in Unix milliseconds.
    pub at: i64,
    /// Who makes it; null if the node needs no keys.
    pub principal: Option<String>,
}

impl From<&Held> for RunningBackup {
    fn from(held: &Held) -> Self {
        Self { id: held.id.clone(), at: held.at.0, principal: held.principal.clone() }
    }
}
