//! The version directories of a backup: a copy of the store of a running node has none.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use celeris_pipelines::ObjectId;
use celeris_storage::Storage;

use super::fetching::fetch;
use super::{ModelRecord, VersionRecord, models_key, versions_key};
use crate::cluster::{RemoteFile, VersionSource};
use crate::error::ManagerError;

/// The versions of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionsKept {
    /// How many versions the backup has.
    pub kept: usize,
    /// The versions that the source does not have any more, as `MODEL version N`. None of them serves.
    pub missing: Vec<String>,
}

/// Gets every version that a copy of a store names from `source`, into the directory of the copy. Each file is
/// checked and synced. `progress` is called with the versions so far and in total. Blocks the thread.
///
/// # Errors
/// `Fetch` if a version that serves is not to be had, or another one is there and damaged; `Io` or `Storage`.
pub fn keep_versions(
    storage: &Storage,
    source: &dyn VersionSource,
    progress: &dyn Fn(usize, usize),
) -> Result<VersionsKept, ManagerError> {
    let versions = versions_of(storage)?;
    let mut outcome = VersionsKept::default();
    for (number, (record, version)) in versions.iter().enumerate() {
        progress(number, versions.len());
        let noting = Noting { source, lacks: AtomicBool::new(false) };
        match fetch(storage, (record, version), &noting, &|| false) {
            Ok(()) => outcome.kept += 1,
            // Pruned between the copy and now.
            Err(_) if noting.lacks.load(Ordering::Relaxed) && version.version != record.active => {
                outcome.missing.push(format!("{} version {}", record.config.name, version.version));
            }
            Err(error) => return Err(error),
        }
    }
    progress(versions.len(), versions.len());
    Ok(outcome)
}

/// All versions of all models.
fn versions_of(storage: &Storage) -> Result<Vec<(ModelRecord, VersionRecord)>, ManagerError> {
    let mut found = Vec::new();
    for (_, record) in storage.registry().list::<ModelRecord>(&models_key()?)? {
        let record = record?;
        for (_, version) in storage.registry().list::<VersionRecord>(&versions_key(&record.config.name)?)? {
            found.push((record.clone(), version?));
        }
    }
    Ok(found)
}

/// Notes whether the source said that it has no such file.
struct Noting<'a> {
    source: &'a dyn VersionSource,
    lacks: AtomicBool,
}

impl VersionSource for Noting<'_> {
    fn fetch(&self, file: RemoteFile<'_>, into: &Path) -> io::Result<()> {
        let fetched = self.source.fetch(file, into);
        let lacks = fetched.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.lacks.store(lacks, Ordering::Relaxed);
        fetched
    }

    fn object(&self, id: ObjectId, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.source.object(id, bytes_max)
    }
}
