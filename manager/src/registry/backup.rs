//! The version directories of a copy of the store for a backup.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use celeris_formats::MANIFEST_FILE;
use celeris_pipelines::ObjectId;
use celeris_storage::Storage;

use super::fetching::{fetch, is_manifest_of};
use super::version_directory::versions_below;
use super::{ModelRecord, VersionRecord, models_key, versions_key};
use crate::cluster::{RemoteFile, VersionSource};
use crate::error::ManagerError;

/// The versions of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VersionsKept {
    /// How many versions the copy has.
    pub(crate) kept: usize,
    /// The versions that are not to be had, as `MODEL version N`.
    pub(crate) missing: Vec<String>,
}

/// Links the complete version directories of a data directory into `folder`, as far as they are not there. They never
/// change. One that is removed meanwhile is linked in part, and no registry names it any more.
///
/// # Errors
/// `Io`.
pub(crate) fn link_versions(data_dir: &Path, folder: &Path) -> Result<(), ManagerError> {
    let (from, to) = (data_dir.join("versions"), folder.join("versions"));
    for model in names(&from)? {
        for version in names(&from.join(&model))? {
            // Those under other names are being written.
            let source = from.join(&model).join(&version);
            if version.parse::<u64>().is_ok() && source.join(MANIFEST_FILE).is_file() {
                link_files(&source, &to.join(&model).join(&version))?;
            }
        }
    }
    Ok(())
}

/// Links the plain files of a folder into another, as far as they are not there.
///
/// # Errors
/// `Io`.
pub(crate) fn link_files(from: &Path, to: &Path) -> Result<(), ManagerError> {
    let names = names(from)?;
    if names.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(ManagerError::io(to))?;
    for name in names {
        let (source, link) = (from.join(&name), to.join(&name));
        if !fs::symlink_metadata(&source).is_ok_and(|data| data.is_file()) {
            continue;
        }
        match fs::hard_link(&source, &link) {
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
            // On another file system, or one without links.
            Err(_) => drop(fs::copy(&source, &link).map_err(ManagerError::io(&link))?),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The names in a folder; none if it does not exist.
fn names(folder: &Path) -> Result<Vec<String>, ManagerError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(ManagerError::io(folder))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
    let names: io::Result<Vec<Option<String>>> = entries.map(name).collect();
    Ok(names.map_err(ManagerError::io(folder))?.into_iter().flatten().collect())
}

/// Gets the versions that the store names and that are not in `folder` from `source`. Each file is checked and synced.
/// Blocks the thread.
///
/// # Errors
/// `Fetch` if a version that serves is not to be had from a source; `Io` or `Storage`.
pub(crate) fn complete_versions(
    storage: &Storage,
    folder: &Path,
    source: Option<&dyn VersionSource>,
) -> Result<VersionsKept, ManagerError> {
    let mut outcome = VersionsKept::default();
    for (record, version) in versions_of(storage)? {
        let dir = versions_below(folder, record.identity()).join(version.version.to_string());
        let missing = || format!("{} version {}", record.config.name, version.version);
        if is_manifest_of(&dir, &version) {
            outcome.kept += 1;
            continue;
        }
        let Some(source) = source else {
            outcome.missing.push(missing());
            continue;
        };
        let noting = Noting { source, lacks: AtomicBool::new(false) };
        match fetch(folder, (&record, &version), &noting, &|| false) {
            Ok(()) => outcome.kept += 1,
            // Pruned between the copy and now.
            Err(_) if noting.lacks.load(Ordering::Relaxed) && version.version != record.active => {
                outcome.missing.push(missing());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// All versions of all models.
fn versions_of(storage: &Storage) -> Result<Vec<(ModelRecord, VersionRecord)>, ManagerError> {
    let mut found = Vec::new();
    for (_, record) in storage.registry().list::<ModelRecord>(&models_key()?)? {
        // One that cannot be read is out of service here too, and is in the copy as it is.
        let Ok(record) = record else { continue };
        for (_, version) in storage.registry().list::<VersionRecord>(&versions_key(&record.config.name)?)? {
            found.extend(version.ok().map(|version| (record.clone(), version)));
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
