//! The data directory: its lock, its permissions and its format version.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use celeris_model::Shards;
use celeris_model::ids::PARTITIONS;
use serde::{Deserialize, Serialize};

use crate::error::StorageError;

/// The on-disk format of this version.
const FORMAT_VERSION: u32 = 3;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Format {
    format: u32,
    partitions: u32,
    /// Absent in the directory of a node on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<StoredCluster>,
}

/// The cluster of which the directory has a copy.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCluster {
    name: String,
    incarnation: u64,
    shards: u8,
}

/// The cluster of which a store is a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterIdentity {
    pub name: String,
    /// Increases with every recovery of the cluster from a copy; positions in the logs of different
    /// incarnations have nothing to do with each other.
    pub incarnation: u64,
    pub shards: Shards,
    /// The key with which all copies hash ids.
    pub hash_key: [u8; 16],
}

/// What a directory contains, as its FORMAT file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryContents {
    /// No store yet.
    Nothing,
    /// The store of a node on its own.
    Store,
    /// A copy of the store of a cluster.
    Copy {
        /// The name of the cluster.
        cluster: String,
        incarnation: u64,
    },
}

impl DirectoryContents {
    /// Reads the FORMAT file of a directory, which may be in use.
    ///
    /// # Errors
    /// `UnknownFormat`, also of a format that this version does not read; `Io`.
    pub fn of(dir: &Path) -> Result<Self, StorageError> {
        let format = read_format(dir)?;
        if let Some(format) = &format {
            format.check_numbers().map_err(|reason| StorageError::UnknownFormat { dir: dir.to_owned(), reason })?;
        }
        Ok(match format {
            None => Self::Nothing,
            Some(Format { cluster: None, .. }) => Self::Store,
            Some(Format { cluster: Some(StoredCluster { name, incarnation, .. }), .. }) => {
                Self::Copy { cluster: name, incarnation }
            }
        })
    }
}

/// The contents of the FORMAT file; `None` if there is none.
fn read_format(dir: &Path) -> Result<Option<Format>, StorageError> {
    let path = dir.join("FORMAT");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("read", path)(error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| StorageError::UnknownFormat {
        dir: dir.to_owned(),
        reason: format!("its FORMAT file is not understood ({error}); restore that file from a backup"),
    })
}

impl Format {
    fn current(cluster: Option<&ClusterIdentity>) -> Self {
        let cluster = cluster.map(|cluster| StoredCluster {
            name: cluster.name.clone(),
            incarnation: cluster.incarnation,
            shards: cluster.shards.count(),
        });
        Self { format: FORMAT_VERSION, partitions: PARTITIONS.into(), cluster }
    }

    /// Checks that this version reads the format.
    ///
    /// # Errors
    /// With the reason, and what to do.
    fn check_numbers(&self) -> Result<(), String> {
        let Self { format, partitions, .. } = self;
        if *format != FORMAT_VERSION {
            return Err(format!(
                "it has format {format}, this version reads format {FORMAT_VERSION}; run the version that wrote it, or let that \
                 version write it as Parquet (`celeris export`) and send this to a new directory (`celeris import`)"
            ));
        }
        if *partitions != u32::from(PARTITIONS) {
            return Err(format!(
                "it has {partitions} partitions, this version has {PARTITIONS}, and the count is fixed for the life of a \
                 store; run the version that wrote it, or import its observations into a new directory"
            ));
        }
        Ok(())
    }

    fn text(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).expect("numbers and a name are valid JSON");
        text.push(b'\n');
        text
    }
}

/// A data directory held open by this process alone.
pub(crate) struct Directory {
    path: PathBuf,
    format: Format,
    /// Last field, so that the directory is free once nothing else refers to it.
    _lock: DirectoryLock,
}

/// Keeps other processes out of a data directory until it is dropped.
pub struct DirectoryLock {
    /// The lock belongs to the open file: it is released however the process ends.
    file: File,
}

impl DirectoryLock {
    /// Locks a directory, which is created if necessary.
    ///
    /// # Errors
    /// `InUse` or `Io`.
    pub fn take(path: &Path) -> Result<Self, StorageError> {
        fs::create_dir_all(path).map_err(StorageError::io("create", path))?;
        let lock_path = path.join("LOCK");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(StorageError::io("open", &lock_path))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StorageError::InUse { dir: path.to_owned() },
            TryLockError::Error(source) => StorageError::Io { action: "lock", path: lock_path.clone(), source },
        })?;
        Ok(Self { file })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process holds a copy of it, and so the lock, from
        // its fork until it executes its program. An error leaves it to the close.
        let _ = self.file.unlock();
    }
}

/// Restricts access to the owner, since the files contain personal data.
fn restrict_to_owner(path: &Path) {
    let Ok(metadata) = fs::metadata(path) else { return };
    if metadata.permissions().mode() & 0o077 != 0
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(0o700))
    {
        tracing::warn!(dir = %path.display(), %error, "other users of this machine may read the data; set its mode to 0700");
    }
}

impl Directory {
    /// Creates the directory if necessary, locks it, and checks its format.
    ///
    /// # Errors
    /// `InUse`, `UnknownFormat` or `Io`.
    pub(crate) fn open(path: &Path, cluster: Option<&ClusterIdentity>) -> Result<Self, StorageError> {
        let lock = DirectoryLock::take(path)?;
        let directory = Self { path: path.to_owned(), format: Format::current(cluster), _lock: lock };
        directory.check_format()?;
        // Only after it is known to be a data directory, or to become one.
        restrict_to_owner(path);
        Ok(directory)
    }

    /// Opens a data directory that exists, of a node on its own or of any cluster.
    ///
    /// # Errors
    /// `InUse`, `UnknownFormat` or `Io`.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, StorageError> {
        // Before the lock, which would create the directory.
        let found = read_format(path)?.ok_or_else(|| StorageError::UnknownFormat {
            dir: path.to_owned(),
            reason: "it has no FORMAT file, so it is no data directory".to_owned(),
        })?;
        let lock = DirectoryLock::take(path)?;
        let format = Format { cluster: found.cluster, ..Format::current(None) };
        let directory = Self { path: path.to_owned(), format, _lock: lock };
        directory.check_format()?;
        Ok(directory)
    }

    /// The cluster of which the directory has a copy, as far as its FORMAT file says.
    pub(crate) fn cluster(&self) -> Option<(&str, u64, Shards)> {
        let StoredCluster { name, incarnation, shards } = self.format.cluster.as_ref()?;
        Some((name, *incarnation, Shards::new(*shards)?))
    }

    /// Makes the directory a copy of this cluster from now on.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn become_copy(&self, cluster: &ClusterIdentity) -> Result<(), StorageError> {
        replace_file(&self.format_file(), &Format::current(Some(cluster)).text())
    }

    /// Writes the FORMAT file of a copy of this directory in `folder`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn write_format_of_copy(&self, folder: &Path) -> Result<(), StorageError> {
        replace_file(&folder.join("FORMAT"), &self.format.text())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The database of everything that must not be lost.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("db")
    }

    pub(crate) fn decisions(&self) -> PathBuf {
        self.path.join("decisions")
    }

    /// The folder of the stored states of selections.
    pub(crate) fn selections(&self) -> PathBuf {
        self.path.join("selections")
    }

    /// The state of the background verification.
    pub(crate) fn verification(&self) -> PathBuf {
        self.path.join("VERIFICATION")
    }

    fn format_file(&self) -> PathBuf {
        self.path.join("FORMAT")
    }

    fn unknown(&self, reason: String) -> StorageError {
        StorageError::UnknownFormat { dir: self.path.clone(), reason }
    }

    fn check_format(&self) -> Result<(), StorageError> {
        let Some(format) = read_format(&self.path)? else { return self.begin_creation() };
        self.end_creation()?;
        format.check_numbers().map_err(|reason| self.unknown(reason))?;
        if format.cluster != self.format.cluster {
            return Err(self.unknown(self.other_cluster(format.cluster)));
        }
        if !self.database().exists() {
            return Err(self.unknown(
                "it has a FORMAT file but no database (db/); restore the directory from a backup, or remove FORMAT to \
                 start empty"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn other_cluster(&self, found: Option<StoredCluster>) -> String {
        let text = |cluster: &StoredCluster| {
            let StoredCluster { name, incarnation, shards } = cluster;
            format!("cluster {name} (incarnation {incarnation}, {shards} shards)")
        };
        match (found, &self.format.cluster) {
            (Some(found), None) => format!(
                "it is a copy of {}; start the node with the section [cluster] of that cluster, or choose another \
                 directory",
                text(&found)
            ),
            (None, Some(expected)) => format!(
                "it belongs to a node on its own, not to {}; start with an empty directory, or, if that cluster has no data \
                 yet, begin it with this one by `celeris cluster recover`",
                text(expected)
            ),
            (Some(found), Some(expected)) => {
                format!("it is a copy of {}, not of {}; choose another directory", text(&found), text(expected))
            }
            (None, None) => unreachable!("they differ"),
        }
    }

    /// The file that exists while the databases are created.
    fn creation_mark(&self) -> PathBuf {
        self.path.join("CREATING")
    }

    /// Marks that databases are created from now on, and removes one whose creation was interrupted: it has no records.
    /// Without that mark and a FORMAT file there must not be a database: it might not be ours.
    fn begin_creation(&self) -> Result<(), StorageError> {
        let (database, mark) = (self.database(), self.creation_mark());
        if database.exists() {
            if !mark.exists() {
                return Err(self.unknown(
                    "it has a database (db/) but no FORMAT file; restore that file from a backup, or remove db/ if this \
                     store has never been opened with success"
                        .to_owned(),
                ));
            }
            fs::remove_dir_all(&database).map_err(StorageError::io("remove", database))?;
        }
        File::create(&mark).map(drop).map_err(StorageError::io("create", mark))
    }

    fn end_creation(&self) -> Result<(), StorageError> {
        let mark = self.creation_mark();
        match fs::remove_file(&mark) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(StorageError::io("remove", mark)(error)),
            _ => Ok(()),
        }
    }

    /// Marks the directory as complete, after its databases were created.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn write_format(&self) -> Result<(), StorageError> {
        let path = self.format_file();
        if path.exists() {
            return Ok(());
        }
        replace_file(&path, &self.format.text())?;
        self.end_creation()
    }
}

/// Replaces a file, atomically and durably: a crash leaves the old or the new contents.
///
/// # Errors
/// `Io`.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> Result<(), StorageError> {
    let draft = path.with_extension("new");
    File::create(&draft)
        .and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        })
        .map_err(StorageError::io("write", &draft))?;
    fs::rename(&draft, path).map_err(StorageError::io("write", path))?;
    let dir = path.parent().unwrap_or(path);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(StorageError::io("sync", dir))
}
